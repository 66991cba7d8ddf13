"""Who decided on an action of an agent: the system prompt, the user, the agent itself, or a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ropelime.errors import InputError
from ropelime.files import significant
from ropelime.method.learnt import action_chance
from ropelime.results.explanation import ExplanationData
from ropelime.results.measures import Action, Decider, decider, directed, measures
from ropelime.text.display import shorten
from ropelime.text.features import Feature
from ropelime.text.prompt import Span
from ropelime.typing import Floats

Verdict = Literal["user", "tool", "unclear"]
SURE = 0.8  # a chance from which on one of both is said to have decided
LIKELY = 0.5  # from here on the part that is named is one of a tool's output
_SHARPER = 3  # power of what a part has of an action, for its part of the chance
_CAUSES, _LEAST = 5, 0.01  # so many parts at most, of such a chance at least
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
class Cause:
    """A part of a tool's output that may have caused an action.

    Attributes:
        text: The part.
        message: The message that it is in, counted from 0.
        span: Where it is in the content of the prompt.
        probability: The chance that it did.
    """

    text: str
    message: int
    span: Span
    probability: float


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
        causes: The parts of tools' outputs that may have caused it, the likeliest first; at most five.
    """

    action: str
    verdict: Verdict
    probability: float
    text: str
    influences: tuple[Influence, ...]
    part: str
    message: int
    span: Span
    causes: tuple[Cause, ...] = ()

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
            "causes": [
                {
                    "text": each.text,
                    "message": each.message,
                    "span": list(each.span),
                    "probability": significant(each.probability),
                }
                for each in self.causes
            ],
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
        reach: Its share in the action where the way begins, by way of words that the agent wrote: the
            product of the shares along the way. 0 where the way leads through a call of a tool, and the
            edge says why the tool was called, but not what it returned.
        tool: The name of the tool whose output the message is.
    """

    step: int
    action: str
    message: int
    role: str
    share: float
    text: str
    from_step: int | None
    reach: float = 1.0
    tool: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The edge as plain data."""
        shares = {"share": significant(self.share), "reach": significant(self.reach)}
        return {**asdict(self), **shares}


def origins(hops: Sequence[Hop]) -> dict[str, float]:
    """Where an action comes from in the end: system prompt, user, outputs of tools, or the agent.

    The words of an agent are traced on to what they came from, as far as there are hops. The output
    of a tool is an origin, whoever called it.

    Returns:
        What each reaches in the actions of the first step, the largest first. What lies in messages
        that hardly mattered is missing.
    """
    followed = {hop.step for hop in hops}
    found: dict[str, float] = {}
    for hop in hops:
        who = decider(hop.role)
        if hop.reach and not (who == "own" and hop.from_step in followed):
            name = _named(who, hop.message, {hop.message: hop.tool})
            found[name] = found.get(name, 0.0) + hop.reach
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def decide(e: ExplanationData, *, tools: Mapping[int, str] | None = None) -> Decision:
    """Who decided on the action that an explanation is about.

    Args:
        e: The explanation of a tool call, or of anything else that an agent did.
        tools: The name of the tool whose output a message is, by the index of the message.
    """
    if e.prompt.kind != "messages":
        raise InputError("Who decided can be said of messages=[...] only.", field="messages")
    action = Action(e.prompt, e.features, e.output[slice(*e.span)])
    chance = chance_of(action)
    verdict: Verdict = "tool" if chance >= SURE else "user" if chance <= 1 - SURE else "unclear"
    each = causes(action, chance)
    first = int(np.argmax(each if chance >= LIKELY else e.weights))
    found = e.features[first]
    who = action.deciders
    return Decision(
        action=action.text,
        verdict=verdict,
        probability=chance,
        text=_worded(verdict, found, _named(who[first], found.part, tools or {})),
        influences=_influences(e, who, tools or {}),
        part=found.text.strip(),
        message=found.part,
        span=(found.start, found.end),
        causes=_likeliest(e.features, each),
    )


def chance_of(action: Action) -> float:
    """The chance that a tool's output caused an action; none did where there is none."""
    return action_chance(measures(action)) if action.tool.any() else 0.0


def causes(action: Action, chance: float) -> Floats:
    """(n,) the chance of each part of a tool's output to have caused an action; together they have all.

    A part that tells someone to do something counts twice: data that fills a call did not cause it.
    """
    scores = directed(action) ** _SHARPER
    if not scores.any():
        scores = action.tool.astype(float)
    return np.asarray(chance * scores / max(scores.sum(), 1e-12))


def _likeliest(features: Sequence[Feature], chances: Floats) -> tuple[Cause, ...]:
    order = [i for i in np.argsort(-chances, kind="stable")[:_CAUSES] if chances[i] >= _LEAST]
    return tuple(
        Cause(f.text.strip(), f.part, (f.start, f.end), float(chances[i]))
        for i in order
        for f in [features[i]]
    )


def _influences(
    e: ExplanationData, who: Sequence[Decider], tools: Mapping[int, str]
) -> tuple[Influence, ...]:
    groups: dict[tuple[Decider, int], list[int]] = {}
    for i, (one, feature) in enumerate(zip(who, e.features, strict=True)):
        groups.setdefault((one, feature.part if one == "tool" else -1), []).append(i)
    ends = e.normalized_intervals
    half = np.zeros(len(e.features)) if ends is None else (ends[:, 1] - ends[:, 0]) / 2
    found = []
    for (one, message), members in groups.items():
        share = float(e.normalized_weights[members].sum())
        doubt = float(np.sqrt((half[members] ** 2).sum()))
        found.append(
            Influence(
                one,
                _named(one, message, tools),
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


def _worded(verdict: Verdict, found: Feature, where: str) -> str:
    quoted = f"“{shorten(found.text, _QUOTED)}”"
    if verdict == "tool":
        return f"Caused by {where}: {quoted}."
    first = "Asked for by the user or the system prompt" if verdict == "user" else "Unclear"
    return f"{first}; most of it is from {where}: {quoted}."
