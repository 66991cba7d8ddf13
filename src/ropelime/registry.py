"""One resolver for every stage that has several strategies.

A strategy is a frozen dataclass with a class attribute ``name``. Callers pass it as an object, as a
name (``"ridge"``), as a name with its parameters in order (``"sparse-k:2sqrt:16k"``), or as the
dictionary that :func:`describe` writes into an explanation.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ropelime.errors import InputError

T = TypeVar("T")
_LARGEST = sys.float_info.max


def unknown(kind: str, given: object, known: Iterable[str]) -> InputError:
    """The error for an unknown name, with the nearest known one."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given).split(":")[0], names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"Unknown {kind} {given!r}.{hint} Known: {', '.join(names)}.")


def resolve(kind: str, spec: object, registry: Mapping[str, type[T]], *, base: type) -> T:
    """Turn a name, a dictionary or an object into a strategy.

    Args:
        kind: The kind of strategy, for error messages ("sampler", "kernel", ...).
        spec: The caller's name, dictionary or object.
        registry: The known strategies by name.
        base: The class that an object must inherit from.
    """
    if isinstance(spec, str):
        name, *arguments = spec.split(":")
        if name not in registry:
            raise unknown(kind, spec, registry)
        return _build(kind, spec, registry[name], [_literal(a) for a in arguments], {})
    if isinstance(spec, Mapping):
        parameters = dict(spec)
        name = parameters.pop("name", None)
        if not isinstance(name, str) or name not in registry:
            raise unknown(kind, name, registry)
        return _build(kind, spec, registry[name], [], parameters)
    if not isinstance(spec, base):
        raise InputError(
            f"{kind} must be a name or an object whose class inherits from {base.__module__}."
            f"{base.__name__}, not {spec!r}. Known names: {', '.join(sorted(registry))}."
        )
    return spec  # type: ignore[return-value]


def spelled(registry: Mapping[str, type[Any]]) -> str:
    """The names of strategies, each with its parameters in order."""
    fields = {name: [f.name.upper() for f in dataclasses.fields(cls)] for name, cls in registry.items()}
    return ", ".join(":".join([name, *own]) for name, own in fields.items())


def is_number(value: object) -> bool:
    """Whether a parameter is a finite number, as a float holds it; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -_LARGEST <= value <= _LARGEST


def describe(strategy: object) -> dict[str, Any]:
    """The strategy as plain data, from which :func:`resolve` builds it again."""
    name = getattr(strategy, "name", type(strategy).__name__)
    if not dataclasses.is_dataclass(strategy) or isinstance(strategy, type):
        return {"name": name}
    return {"name": name, **dataclasses.asdict(strategy)}


def _build(
    kind: str, spec: object, cls: type[T], arguments: list[Any], parameters: dict[str, Any]
) -> T:
    try:
        return cls(*arguments, **parameters)
    except TypeError as error:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        takes = ", ".join(f.name for f in fields) if fields else "no parameters"
        raise InputError(f"Cannot parse {kind} {spec!r}: {error}. It takes {takes}.") from None


def _literal(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
