"""How much scoring an explanation may cost: a number of masks, tokens or seconds, or automatic."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ropelime.errors import InputError

_FORMS = "'auto', a number of masks, '20000 tokens' or '5 seconds'"
_UNITS = {
    "": "masks",
    "mask": "masks",
    "masks": "masks",
    "pass": "masks",
    "passes": "masks",
    "t": "tokens",
    "token": "tokens",
    "tokens": "tokens",
    "s": "seconds",
    "sec": "seconds",
    "second": "seconds",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class Budget:
    """A limit; without any, scoring stops by itself.

    Attributes:
        masks: Masks besides the full prompt and the prompt with no feature.
        tokens: Tokens that the surrogate may run.
        seconds: Time for scoring. How many masks that allows depends on the machine.
    """

    masks: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, spec: object) -> Budget:
        """Read ``"auto"``, a number of masks, ``"20000 tokens"`` or ``"5 seconds"``."""
        if isinstance(spec, cls):
            return spec
        if spec is None or spec == "auto":
            return cls()
        if isinstance(spec, int) and not isinstance(spec, bool):
            return cls._limit("masks", spec)
        if isinstance(spec, str):
            found = re.fullmatch(r"\s*(\d[\d,_]{0,15}(?:\.\d{1,9})?)\s*([a-z]*)\s*", spec.lower())
            if found and found[2] in _UNITS:
                unit, number = _UNITS[found[2]], found[1].replace(",", "").replace("_", "")
                if unit == "seconds" or "." not in number:
                    return cls._limit(unit, float(number) if unit == "seconds" else int(number))
        raise InputError(f"budget must be {_FORMS}, not {spec!r}.")

    @classmethod
    def _limit(cls, unit: str, value: float) -> Budget:
        least = 0 if unit == "seconds" else 1
        if value < least or value <= 0:
            more = "more than 0" if unit == "seconds" else "at least 1"
            raise InputError(f"budget must be {more}, not {value:g}.")
        return cls(**{unit: value})  # type: ignore[arg-type]

    @property
    def auto(self) -> bool:
        """Whether scoring stops by itself."""
        return self == Budget()

    def __str__(self) -> str:
        for unit in ("masks", "tokens", "seconds"):
            value = getattr(self, unit)
            if value is not None:
                return f"{value} {unit}"
        return "auto"
