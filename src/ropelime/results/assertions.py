"""Assertions about an explanation: this answer must rest on that document, and not on the other.

An answer rests on a part of its prompt when the sum of the normalised weights of the features in it
exceeds 1.5 times what that sum would be if all features were equal, as for a citation; the threshold
is never more than half way from there to 1. Features that oppose the answer count as negative. An
answer whose log-probability no masked prompt changed by 0.1 nats per token rests on nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.registry import unknown
from ropelime.results.citations import FACTOR, MIN_CHANGE, largest_change
from ropelime.results.ensemble import for_output
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten

KINDS = ("rests_on", "not_rests_on")
PARTS = ("document", "message", "role", "source", "text")
_LIMITS = {"rests_on": "at_least", "not_rests_on": "at_most"}


@dataclass(frozen=True)
class Assertion:
    """What must hold.

    Attributes:
        kind: ``"rests_on"`` or ``"not_rests_on"``.
        part: How the part of the prompt is selected: ``"document"``, ``"message"``, ``"role"``,
            ``"source"`` or ``"text"``.
        value: Its index, counted from 0, or its name or text.
        limit: The normalised weight from which it carries the answer; the rule of this module if None.
        factor: How many times its equal weight it must exceed, where there is no limit.
        of: The part of the answer that this is about; all of it if empty.
    """

    kind: str
    part: str
    value: int | str
    limit: float | None = None
    factor: float = FACTOR
    of: str = ""

    def __str__(self) -> str:
        about = f"{_quoted(self.of)} " if self.of else ""
        verb = "rests on" if self.kind == "rests_on" else "does not rest on"
        return f"{about}{verb} {self.selected}"

    @property
    def selected(self) -> str:
        """The part of the prompt, by its name."""
        return f"{self.part} {_quoted(self.value)}"


@dataclass(frozen=True)
class Verdict:
    """Whether an assertion holds, and by how much.

    Attributes:
        holds: Whether it does.
        weight: The normalised weight of the part, from -1 to 1; negative if it opposes the answer.
        threshold: What the weight is compared with.
        why: The comparison in words.
    """

    holds: bool
    weight: float
    threshold: float
    why: str


def read(data: Any) -> Assertion:
    """Parse an assertion such as ``{"rests_on": {"document": 3}, "at_least": 0.5}``."""
    if not isinstance(data, Mapping):
        raise InputError(f"An assertion is a mapping such as {{'rests_on': {{...}}}}, not {data!r}.")
    kinds = [kind for kind in KINDS if kind in data]
    if len(kinds) != 1:
        raise InputError(f"An assertion has exactly one of {' and '.join(KINDS)}; got {list(data)}.")
    kind = kinds[0]
    for name in data:
        if name not in (kind, _LIMITS[kind], "factor", "of"):
            raise unknown("key of an assertion", name, [*KINDS, _LIMITS[kind], "factor", "of"])
    selector = data[kind]
    if not isinstance(selector, Mapping) or len(selector) != 1:
        raise InputError(f"{kind} takes one of {', '.join(PARTS)}, as in {{'document': 3}}.")
    ((part, value),) = selector.items()
    if part not in PARTS:
        raise unknown("part of a prompt", part, PARTS)
    expected = int if part in ("document", "message") else str
    if isinstance(value, bool) or not isinstance(value, expected) or value in ("",):
        needs = "a number, counted from 0" if expected is int else "a text"
        raise InputError(f"{kind}: {part} must be {needs}, not {value!r}.")
    limit = _number(data, _LIMITS[kind], 0.0, 1.0)
    factor = _number(data, "factor", 0.0, math.inf)
    if not isinstance(data.get("of", ""), str):
        raise InputError(f"of must be a text from the answer, not {data['of']!r}.")
    return Assertion(kind, part, value, limit, FACTOR if factor is None else factor, data.get("of", ""))


def check(e: ExplanationData, assertion: Assertion) -> Verdict:
    """Check an assertion against an explanation."""
    if assertion.of:
        at = e.output.find(assertion.of)
        if at < 0:
            raise InputError(f"The answer does not contain {_quoted(assertion.of)}.")
        e = for_output(e, at, at + len(assertion.of))
    inside = _features(e, assertion)
    equal = float(inside.mean())
    if equal == 1.0 and assertion.limit is None:
        raise InputError(
            f"All features are in {assertion.selected}, so no other part can be compared with it."
        )
    weight = float((np.sign(e.weights) * e.normalized_weights)[inside].sum())
    limit = assertion.limit
    threshold = min(assertion.factor * equal, (1 + equal) / 2) if limit is None else limit
    has = f"{assertion.selected} has {round(weight, 2) + 0.0:.0%} of all weight"  # and never -0%
    if largest_change(e, 0, len(e.output_spans)) < MIN_CHANGE:
        carries, why = (
            False,
            f"{has}, but no masked prompt changed the answer: it rests on nothing here",
        )
    elif limit is None:
        carries = weight > threshold
        why = f"{has}; the threshold is {threshold:.0%}, and {equal:.0%} if all features were equal"
    else:
        carries = weight >= limit if assertion.kind == "rests_on" else weight > limit
        why = f"{has}; {_LIMITS[assertion.kind].replace('_', ' ')} {limit:.0%} was required"
    return Verdict(carries == (assertion.kind == "rests_on"), weight, threshold, why)


def _features(e: ExplanationData, assertion: Assertion) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(n,) which features are in the selected part; at least one is."""
    part, value, prompt = assertion.part, assertion.value, e.prompt
    if part == "text":
        spans = _occurrences(prompt.text, str(value))
        if not spans:
            raise InputError(f"The prompt does not contain {_quoted(value)}.")
        inside = [any(f.start < end and f.end > start for start, end in spans) for f in e.features]
    else:
        needs = "context" if part in ("document", "source") else "messages"
        if prompt.kind != needs:
            raise InputError(f"{part!r} needs {needs}=[...]; this is a {prompt.kind}.")
        count = len(prompt.parts if needs == "context" else prompt.messages)
        if isinstance(value, int) and not 0 <= value < count:
            raise InputError(f"There is no {part} {value}; they are 0 to {count - 1}.")
        selects: dict[str, Callable[[int], bool]] = {
            "document": lambda i: i == value,
            "message": lambda i: i == value,
            "role": lambda i: prompt.messages[i].role == value,
            "source": lambda i: f"/{prompt.origin(i).source}".endswith(f"/{value}"),
        }
        inside = [selects[part](f.part) for f in e.features]
    if not any(inside):
        raise InputError(f"No feature is in {assertion.selected}.")
    return np.array(inside)


def _occurrences(text: str, piece: str) -> list[tuple[int, int]]:
    spans, at = [], text.find(piece)
    while at >= 0:
        spans.append((at, at + len(piece)))
        at = text.find(piece, at + len(piece))
    return spans


def _number(data: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}.")
    return float(value)


def _quoted(value: int | str) -> str:
    return repr(shorten(value, 60)) if isinstance(value, str) else str(value)
