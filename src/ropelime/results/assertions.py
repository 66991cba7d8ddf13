"""Assertions about an explanation: this answer must rest on that document, and not on the other.

An answer rests on a part of its prompt when the features in it, taken together, support it with more
than so many times the share that they would have if all features were alike (one and a half, as for a
citation; never more than half way from that share to everything). What opposes it counts against. An
answer that no masked prompt moved by 0.1 nats a token rests on nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.registry import unknown
from ropelime.results.citations import ABOVE, MOVED, moved
from ropelime.results.ensemble import for_output
from ropelime.results.explanation import ExplanationData

KINDS = ("rests_on", "not_rests_on")
PARTS = ("document", "message", "role", "source", "text")
_LIMITS = {"rests_on": "at_least", "not_rests_on": "at_most"}


@dataclass(frozen=True)
class Assertion:
    """What must be so.

    Attributes:
        kind: ``"rests_on"`` or ``"not_rests_on"``.
        part: What names the part of the prompt: ``"document"``, ``"message"``, ``"role"``, ``"source"``
            or ``"text"``.
        value: Its number, counted from 0, or its name or text.
        limit: The share from which on it carries the answer; the rule of this module if None.
        factor: How many times its fair share it must exceed, where there is no limit.
        of: The part of the answer that this is about; all of it if empty.
    """

    kind: str
    part: str
    value: int | str
    limit: float | None = None
    factor: float = ABOVE
    of: str = ""

    def __str__(self) -> str:
        what = {"document": f"document {self.value}", "message": f"message {self.value}"}
        quoted = f"{self.part} {_short(str(self.value))!r}"
        about = f"{_short(self.of)!r} " if self.of else ""
        verb = "rests on" if self.kind == "rests_on" else "does not rest on"
        return f"{about}{verb} {what.get(self.part, quoted)}"


@dataclass(frozen=True)
class Verdict:
    """Whether an assertion holds, and by how much.

    Attributes:
        holds: Whether it does.
        share: The share of the part in the answer; below 0 if it opposes it.
        bar: The share that it is held against.
        why: The same in words.
    """

    holds: bool
    share: float
    bar: float
    why: str


def read(data: Any) -> Assertion:
    """Read an assertion such as ``{"rests_on": {"document": 3}, "at_least": 0.5}``."""
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
    wanted = int if part in ("document", "message") else str
    if isinstance(value, bool) or not isinstance(value, wanted) or value in ("",):
        needs = "a number, counted from 0" if wanted is int else "a text"
        raise InputError(f"{kind}: {part} must be {needs}, not {value!r}.")
    limit = _number(data, _LIMITS[kind], 0.0, 1.0)
    factor = _number(data, "factor", 0.0, math.inf)
    if not isinstance(data.get("of", ""), str):
        raise InputError(f"of must be a text out of the answer, not {data['of']!r}.")
    return Assertion(kind, part, value, limit, ABOVE if factor is None else factor, data.get("of", ""))


def check(e: ExplanationData, assertion: Assertion) -> Verdict:
    """Hold an assertion against an explanation."""
    if assertion.of:
        at = e.output.find(assertion.of)
        if at < 0:
            raise InputError(f"The answer does not say {_short(assertion.of)!r}.")
        e = for_output(e, at, at + len(assertion.of))
    inside = _features(e, assertion)
    fair = float(inside.mean())
    if fair == 1.0 and assertion.limit is None:
        raise InputError(
            f"{_named(assertion)} is all there is to choose from: every feature lies in it."
        )
    share = float((np.sign(e.weights) * e.normalized_weights)[inside].sum())
    bar = assertion.limit
    bar = min(assertion.factor * fair, (1 + fair) / 2) if bar is None else bar
    said = f"{_named(assertion)} carries {round(share, 2) + 0.0:.0%} of it"  # and never -0%
    if moved(e, 0, len(e.output_spans)) < MOVED:
        carries, why = False, f"{said}, but no masked prompt moved the answer: it rests on nothing here"
    elif assertion.limit is None:
        carries = share > bar
        why = f"{said}; more than {bar:.0%} is resting on it, and its fair share is {fair:.0%}"
    else:
        carries = share >= bar if assertion.kind == "rests_on" else share > bar
        why = f"{said}; {_LIMITS[assertion.kind].replace('_', ' ')} {bar:.0%} was asked for"
    return Verdict(carries == (assertion.kind == "rests_on"), share, bar, why)


def _named(assertion: Assertion) -> str:
    number = assertion.part in ("document", "message")
    value = assertion.value if number else repr(_short(str(assertion.value)))
    return f"{assertion.part} {value}"


def _features(e: ExplanationData, assertion: Assertion) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(n,) which features lie in the part that is meant; at least one does."""
    part, value, prompt = assertion.part, assertion.value, e.prompt
    if part == "text":
        spans = _found(prompt.text, str(value))
        if not spans:
            raise InputError(f"The prompt does not say {_short(str(value))!r}.")
        inside = [any(f.start < end and f.end > start for start, end in spans) for f in e.features]
    else:
        needs = "context" if part in ("document", "source") else "messages"
        if prompt.kind != needs:
            raise InputError(f"{part!r} needs {needs}=[...]; this is a {prompt.kind}.")
        count = len(prompt.parts if needs == "context" else prompt.messages)
        if isinstance(value, int) and not 0 <= value < count:
            raise InputError(f"There is no {part} {value}; they are 0 to {count - 1}.")
        meant: dict[str, Callable[[int], bool]] = {
            "document": lambda i: i == value,
            "message": lambda i: i == value,
            "role": lambda i: prompt.messages[i].role == value,
            "source": lambda i: f"/{prompt.origin(i).source}".endswith(f"/{value}"),
        }
        inside = [meant[part](f.part) for f in e.features]
    if not any(inside):
        raise InputError(f"No feature lies in {_named(assertion)}.")
    return np.array(inside)


def _found(text: str, piece: str) -> list[tuple[int, int]]:
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


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
