"""Who decided on an action of an agent: the system prompt, the user, the agent itself, or a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ropelime.errors import InputError
from ropelime.files import significant
from ropelime.method.learnt import chance
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten
from ropelime.text.features import Feature
from ropelime.text.lexical import shared_words
from ropelime.text.prompt import Span
from ropelime.typing import Floats

Decider = Literal["system", "user", "own", "tool"]
Verdict = Literal["user", "tool", "unclear"]
SURE = 0.8  # a chance from which on one of both is said to have decided
_ROLES: Mapping[str, Decider] = {
    "system": "system", "developer": "system", "assistant": "own", "tool": "tool", "function": "tool",
}  # fmt: skip
_NAMES = {"system": "the system prompt", "user": "the user", "own": "its own earlier words"}
_QUOTED = 80  # characters of a part


@dataclass(frozen=True)
class Influence:
    """What one of those who could have decided has in an action.

    Attributes:
        decider: The system prompt, the user, the agent's own words, or a tool.
        name: Its name; of a tool its output, as "the output of read_file".
        messages: Its messages, counted from 0: one for the output of a tool.
        share: The sum of the shares of its parts.
        interval: Ends of the 90 % interval of the share.
    """

    decider: Decider
    name: str
    messages: tuple[int, ...]
    share: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Decision:
    """Who decided on an action.

    Attributes:
        action: The tool call, or what else was done.
        verdict: ``"user"``: asked for by the user (or the system prompt); ``"tool"``: caused by the
            output of a tool; or ``"unclear"``.
        probability: The chance that a tool's output caused it.
        text: The verdict in a sentence.
        influences: The share of everyone, the largest first.
        part: The part of a message that has most of it.
        message: The message that it is in, counted from 0.
        span: Where it is in the content of the prompt.
    """

    action: str
    verdict: Verdict
    probability: float
    text: str
    influences: tuple[Influence, ...]
    part: str
    message: int
    span: Span

    def share(self, decider: Decider) -> float:
        """The share of the system prompt, the user, the agent's own words or all tools."""
        return sum(each.share for each in self.influences if each.decider == decider)

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain data."""
        return {
            "action": self.action,
            "verdict": self.verdict,
            "probability": significant(self.probability),
            "text": self.text,
            "part": {"text": self.part, "message": self.message, "span": list(self.span)},
            "influences": [
                {
                    "decider": each.decider,
                    "name": each.name,
                    "messages": list(each.messages),
                    "share": significant(each.share),
                    "interval": [significant(end) for end in each.interval],
                }
                for each in self.influences
            ],
        }


@dataclass(frozen=True)
class Hop:
    """One edge on the way from an action back to where it came from.

    Attributes:
        step: The number of the step whose action it is about.
        action: The action.
        message: The index of the message that mattered in the step's prompt.
        role: The role of this message.
        share: The share of the message in the action.
        text: The part of the message that mattered most.
        from_step: The number of the step that wrote the message, or that made the call whose result
            it is; None where no step of the trace did, such as for the words of a user.
    """

    step: int
    action: str
    message: int
    role: str
    share: float
    text: str
    from_step: int | None


def decide(e: ExplanationData, *, tools: Mapping[int, str] | None = None) -> Decision:
    """Who decided on the action that an explanation is about.

    Args:
        e: The explanation of a tool call, or of anything else that an agent did.
        tools: The name of the tool whose output a message is, by the index of the message.
    """
    if e.prompt.kind != "messages":
        raise InputError("Who decided can be said of messages=[...] only.", field="messages")
    deciders = [decider(e.prompt.messages[feature.part].role) for feature in e.features]
    chances = _chance(e, deciders)
    first = int(np.argmax(_of(deciders, "tool", e.weights) if chances >= 0.5 else e.weights))
    found = e.features[first]
    verdict: Verdict = "tool" if chances >= SURE else "user" if chances <= 1 - SURE else "unclear"
    return Decision(
        action=e.output[slice(*e.span)],
        verdict=verdict,
        probability=chances,
        text=_worded(verdict, found, tools or {}),
        influences=_influences(e, deciders, tools or {}),
        part=found.text.strip(),
        message=found.part,
        span=(found.start, found.end),
    )


def decider(role: str) -> Decider:
    """Who speaks in a message of a role."""
    return _ROLES.get(role, "user")


def inputs(e: ExplanationData) -> dict[str, float]:
    """What the chance is estimated from.

    Returns:
        ``tool``: how much of the action the best part of a tool's output has, 0 to 2; ``user``: the
        same of the user and the system prompt; ``share``: the share of all tools' outputs.
    """
    deciders = [decider(e.prompt.messages[feature.part].role) for feature in e.features]
    return _inputs(e, deciders)


def _inputs(e: ExplanationData, deciders: Sequence[Decider]) -> dict[str, float]:
    has = shared_words(e.prompt, e.features, e.output[slice(*e.span)])
    asking = [who in ("user", "system") for who in deciders]
    return {
        "tool": float(_of(deciders, "tool", has).max(initial=0.0)),
        "user": float(np.where(asking, has, 0.0).max(initial=0.0)),
        "share": float(_of(deciders, "tool", e.normalized_weights).sum()),
    }


def _chance(e: ExplanationData, deciders: Sequence[Decider]) -> float:
    if "tool" not in deciders:
        return 0.0
    return chance("tool", _inputs(e, deciders))


def _influences(
    e: ExplanationData, deciders: Sequence[Decider], tools: Mapping[int, str]
) -> tuple[Influence, ...]:
    groups: dict[tuple[Decider, int], list[int]] = {}
    for i, (who, feature) in enumerate(zip(deciders, e.features, strict=True)):
        groups.setdefault((who, feature.part if who == "tool" else -1), []).append(i)
    ends = e.normalized_intervals
    half = np.zeros(len(e.features)) if ends is None else (ends[:, 1] - ends[:, 0]) / 2
    found = []
    for (who, message), members in groups.items():
        share = float(e.normalized_weights[members].sum())
        doubt = float(np.sqrt((half[members] ** 2).sum()))
        found.append(
            Influence(
                who,
                _named(who, message, tools),
                tuple(sorted({e.features[i].part for i in members})),
                share,
                (max(share - doubt, 0.0), min(share + doubt, 1.0)),
            )
        )
    return tuple(sorted(found, key=lambda each: -each.share))


def _named(who: Decider, message: int, tools: Mapping[int, str]) -> str:
    if who != "tool":
        return _NAMES[who]
    name = tools.get(message)
    return f"the output of {name}" if name else f"a tool's output (message {message + 1})"


def _worded(verdict: Verdict, found: Feature, tools: Mapping[int, str]) -> str:
    quoted = f"“{shorten(found.text, _QUOTED)}”"
    if verdict == "tool":
        return f"Caused by {_named('tool', found.part, tools)}: {quoted}."
    if verdict == "user":
        return f"Asked for by the user or the system prompt; most of it is in {quoted}."
    return f"Unclear; most of it is in {quoted}."


def _of(deciders: Sequence[Decider], who: Decider, values: Floats) -> Floats:
    return np.where([each == who for each in deciders], values, 0.0)
