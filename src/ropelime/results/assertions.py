"""Assertions about an explanation: this answer must rest on that document, or have a source at all.

An answer rests on a part of its prompt when the sum of the normalised weights of the features in it
exceeds 1.5 times what that sum would be if all features were equal, as for a citation; the threshold
is never more than half way from there to 1. Features that oppose the answer count as negative. An
answer rests on nothing if no masked prompt changed its log-probability by 0.1 nats per token. Nor is it
shown to rest on a part if it hardly rests on its prompt at all: if its verdict ``rests`` has a chance
below 10 %. That does not show the opposite, for it may say the same in other words. Where a verifying
call without one feature of the part gave another answer, and the same prompt sent again did not, the
answer rests on it, unless a limit is given.

A sentence of the answer is grounded if it probably comes from the prompt, as in a citation.

A tool call is caused by a tool's output if that is likely enough, as :mod:`decisions` says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.registry import unknown
from ropelime.results.citations import FACTOR, MIN_CHANGE, ground, largest_change
from ropelime.results.decisions import SURE, decide
from ropelime.results.ensemble import for_output
from ropelime.results.explanation import ExplanationData
from ropelime.text.actions import call_spans
from ropelime.text.display import shorten
from ropelime.typing import Masks

PARTS = ("document", "message", "role", "source", "text")
_LIMITS = {"rests_on": "at_least", "not_rests_on": "at_most"}  # by the kind of assertion
_ACTIONS = "no_action_caused_by"
_GROUNDED = ("every_sentence_grounded", "grounded")
RESTS = 0.1  # the chance that an answer rests on its prompt, below which no part carries it
_ROUNDING = 1e-9  # 1 - 1/10 is a little less than 0.9
_SENTENCE = 160  # characters of a sentence that is quoted


@dataclass(frozen=True)
class Assertion:
    """What must hold."""

    kind: str  # "rests_on", "not_rests_on", "grounded" or "no_action_caused_by"
    part: str = ""  # how the part of the prompt is selected, one of PARTS
    value: int | str = ""  # its number, counted from 1, or its name or text
    # The normalised weight to compare with, the rule above if None; the share of the sentences; or the
    # chance that a tool's output caused a call.
    limit: float | None = None
    factor: float = FACTOR  # how many times its equal weight it must exceed, where there is no limit
    of: str = ""  # the part of the answer that this is about; all of it if empty

    def __str__(self) -> str:
        return self.about("prompt")

    def about(self, kind: str) -> str:
        """The assertion in words, about a prompt of this kind; see :class:`Prompt`."""
        if self.kind == "grounded":
            about = f" of {_quoted(self.of)}" if self.of else ""
            every = f"every sentence{about} has"
            some = f"at least {self.limit:.0%} of the sentences{about} have"
            return f"{every if self.limit == 1 else some} a source in the {_place(kind)}"
        if self.kind == _ACTIONS:
            return "no tool call was caused by a tool's output"
        about = f"{_quoted(self.of)} " if self.of else ""
        verb = "rests on" if self.kind == "rests_on" else "does not rest on"
        return f"{about}{verb} {self.selected}"

    @property
    def selected(self) -> str:
        """The part of the prompt, by its name."""
        return f"{self.part} {_quoted(self.value)}"


@dataclass(frozen=True)
class Verdict:
    """Whether an assertion holds, and by how much."""

    holds: bool
    # Normalised, of the part, from -1 to 1, negative if it opposes the answer; the share of the
    # sentences that are grounded; or the largest chance that a tool's output caused a call.
    weight: float
    threshold: float  # what it is compared with
    why: str  # the comparison in words


def read(data: Any) -> Assertion:
    """Parse an assertion such as ``{"rests_on": {"document": 3}, "at_least": 0.5}``."""
    if not isinstance(data, Mapping):
        raise InputError(f"An assertion is a mapping such as {{'rests_on': {{...}}}}, not {data!r}.")
    known = (*_LIMITS, *_GROUNDED, _ACTIONS)
    kinds = [kind for kind in known if kind in data]
    others = [*_LIMITS.values(), "factor", "of"]
    if not kinds and (strange := [name for name in data if name not in others]):
        raise unknown("key of an assertion", strange[0], known)
    if len(kinds) != 1:
        raise InputError(f"An assertion has exactly one of {', '.join(known)}; got {list(data)}.")
    kind = kinds[0]
    limits: tuple[str, ...] = (_LIMITS[kind], "factor") if kind in _LIMITS else ()
    more = (*(("at_most",) if kind == _ACTIONS else limits), "of")
    for name in data:
        if name not in (kind, *more):
            raise unknown("key of an assertion", name, [*known, *more])
    if not isinstance(data.get("of", ""), str):
        raise InputError(f"of must be a text from the answer, not {data['of']!r}.")
    of = data.get("of", "")
    if kind == _ACTIONS:
        if data[kind] != "tool":
            raise InputError(f"{kind} must be 'tool', not {data[kind]!r}.")
        return Assertion(kind, "role", "tool", _number(data, "at_most", 1.0), of=of)
    if kind in _GROUNDED:
        return Assertion("grounded", limit=_least_grounded(kind, data[kind]), of=of)
    part, value = _selector(kind, data[kind])
    limit = _number(data, _LIMITS[kind], 1.0)
    factor = _number(data, "factor", math.inf)
    return Assertion(kind, part, value, limit, FACTOR if factor is None else factor, of)


def _selector(kind: str, selector: Any) -> tuple[str, int | str]:
    """How a part of the prompt is selected, and which one."""
    if not isinstance(selector, Mapping) or len(selector) != 1:
        raise InputError(f"{kind} takes one of {', '.join(PARTS)}, as in {{'document': 3}}.")
    ((part, value),) = selector.items()
    if part not in PARTS:
        raise unknown("part of a prompt", part, PARTS)
    expected = int if part in ("document", "message") else str
    if isinstance(value, bool) or not isinstance(value, expected) or value == "":
        needs = "a number, counted from 1," if expected is int else "a text"
        raise InputError(f"{kind}: {part} must be {needs}, not {value!r}.")
    return part, value


def _least_grounded(kind: str, value: Any) -> float:
    """The least share of sentences that must come from the prompt."""
    if kind == "every_sentence_grounded":
        if value is not True:
            raise InputError(f"{kind} must be true, not {value!r}; leave it out to assert nothing.")
        return 1.0
    least = _number(value, "at_least", 1.0) if isinstance(value, Mapping) and len(value) == 1 else None
    if least is None:
        raise InputError(f"{kind} takes {{'at_least': 0.9}}, a share of the sentences, not {value!r}.")
    return least


def check(
    e: ExplanationData, assertion: Assertion, *, tools: Mapping[int, str] | None = None
) -> Verdict:
    """Check an assertion against an explanation.

    Args:
        e: The explanation.
        assertion: What must hold.
        tools: The name of the tool whose output a message is, by the index of the message.
    """
    start = e.output.find(assertion.of)
    if start < 0:
        raise InputError(f"The answer does not contain {_quoted(assertion.of)}.")
    end = start + len(assertion.of)
    if assertion.kind == "grounded":
        return _check_grounded(e, assertion.limit or 0.0, *((start, end) if assertion.of else e.span))
    if assertion.kind == _ACTIONS:
        return _check_actions(e, assertion, (start, end) if assertion.of else e.span, tools)
    if assertion.of:
        e = for_output(e, start, end)
    selected, limit, rests_on = assertion.selected, assertion.limit, assertion.kind == "rests_on"
    inside = _features(e, assertion)
    equal = float(inside.mean())
    if equal == 1.0 and limit is None:
        raise InputError(f"All features are in {selected}, so no other part can be compared with it.")
    weight = float((np.sign(e.weights) * e.normalized_weights)[inside].sum())
    threshold = min(assertion.factor * equal, (1 + equal) / 2) if limit is None else limit
    carries = weight > threshold or (weight == limit and rests_on)
    rests = next((each.probability for each in e.verdicts if each.name == "rests"), 1.0)
    if limit is None and _was_seen(e, inside):
        carries, why = True, ", and a verifying call without some of it gave another answer"
    elif largest_change(e, 0, len(e.output_spans)) < MIN_CHANGE:
        carries, why = False, ", but no masked prompt changed the answer: it rests on nothing here"
    elif rests_on and rests < RESTS:
        said = "this part of the answer" if assertion.of else "the answer"
        carries, why = False, f", but {said} hardly rests on the prompt at all ({rests:.0%})"
    elif limit is None:
        why = f"; the threshold is {threshold:.0%}, and {equal:.0%} if all features were equal"
    else:
        why = f"; {_LIMITS[assertion.kind].replace('_', ' ')} {limit:.0%} was required"
    has = f"{selected} has {round(weight, 2) + 0.0:.0%} of all weight"  # and never -0%
    return Verdict(carries == rests_on, weight, threshold, has + why)


def _was_seen(e: ExplanationData, inside: Masks) -> bool:
    """Whether the model answered otherwise without one of these features, and not by chance."""
    seen = e.verified
    return seen is not None and seen.stable is not False and bool(inside[list(seen.changed)].any())


def _check_grounded(e: ExplanationData, least: float, start: int, end: int) -> Verdict:
    """Whether enough of the sentences in a span of the answer are grounded; each counts once."""
    sentences = [each for each in ground(e) if each.span[0] < end and each.span[1] > start]
    if not sentences:
        raise InputError("There is no sentence in this part of the answer.")
    without = [each for each in sentences if not each.grounded]
    share = 1 - len(without) / len(sentences)
    many = f"{len(sentences)} sentence{'s' if len(sentences) > 1 else ''}"
    found = f"no source for {len(without)} of" if without else "a source for"
    place = _place(e.prompt.kind)
    why = f"the {place} {'has' if place == 'prompt' else 'have'} {found} {many}"
    quoted = [f"{shorten(each.text, _SENTENCE)!r} (chance {each.probability:.0%})" for each in without]
    if quoted:
        why += f": {'; '.join(quoted)}"
    return Verdict(share >= least - _ROUNDING, share, least, why)


def _check_actions(
    e: ExplanationData, assertion: Assertion, span: tuple[int, int], tools: Mapping[int, str] | None
) -> Verdict:
    """Whether no tool call in a span of the answer was caused by a tool's output."""
    threshold = SURE if assertion.limit is None else assertion.limit
    calls = [(a, b) for a, b in call_spans(e.output) if span[0] <= a and b <= span[1]]
    if not calls:
        return Verdict(True, 0.0, threshold, "there is no tool call")
    made = [decide(e if (a, b) == e.span else for_output(e, a, b), tools=tools) for a, b in calls]
    worst = max(made, key=lambda each: each.probability)
    least = worst.probability
    holds = least < threshold or (least == assertion.limit)
    why = f"{shorten(worst.action, _SENTENCE)!r} (chance {least:.0%}): {worst.text}"
    return Verdict(holds, least, threshold, why)


def _features(e: ExplanationData, assertion: Assertion) -> Masks:
    """(n,) which features are in the selected part; at least one is."""
    part, value, prompt = assertion.part, assertion.value, e.prompt
    if part == "text":
        spans = [match.span() for match in re.finditer(re.escape(str(value)), prompt.text)]
        if not spans:
            raise InputError(f"The prompt does not contain {_quoted(value)}.")
        inside = [any(f.start < end and f.end > start for start, end in spans) for f in e.features]
    else:
        needs = "context" if part in ("document", "source") else "messages"
        if prompt.kind != needs:
            raise InputError(f"{part!r} needs {needs}=[...]; this is a {prompt.kind}.")
        count = len(prompt.parts if needs == "context" else prompt.messages)
        if isinstance(value, int) and not 1 <= value <= count:
            raise InputError(f"There is no {part} {value}; they are counted from 1 to {count}.")
        if part == "role":
            inside = [prompt.messages[f.part].role == value for f in e.features]
        elif part == "source":
            inside = [f"/{prompt.origin(f.part).source}".endswith(f"/{value}") for f in e.features]
        else:
            inside = [f.part + 1 == value for f in e.features]
    if not any(inside):
        raise InputError(f"No feature is in {assertion.selected}.")
    return np.array(inside)


def _number(data: Mapping[str, Any], name: str, high: float) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= high:
        raise InputError(f"{name} must be a number from 0 to {high:g}, not {value!r}.")
    return float(value)


def _place(kind: str) -> str:
    """Where sources are, in the words of :func:`ropelime.results.citations.cite`."""
    return "documents" if kind == "context" else "prompt"


def _quoted(value: int | str) -> str:
    return repr(shorten(value, 60) if isinstance(value, str) else value)
