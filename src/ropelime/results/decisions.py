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
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats

Verdict = Literal["user", "tool", "unclear"]
SURE = 0.8  # a chance from which on one of both is said to have decided
LIKELY = 0.5  # from here on the part that is named is one of a tool's output
# Shares at which it is not said that the user or the system prompt asked: outputs have almost all of
# the action, and both together have next to nothing (docs/how-to/agents.md).
ALMOST_ALL = 0.97
NEXT_TO_NOTHING = 0.02
_SHARPER = 3  # power of what a part has of an action, for its part of the chance
_CAUSES, _LEAST = 5, 0.01  # so many parts at most, of such a chance at least
_NAMES = {"system": "the system prompt", "user": "the user", "own": "its own earlier words"}
_QUOTED = 80  # characters of a part
_SAYS: Mapping[Verdict, str] = {
    "tool": "Caused by {where}: {quoted}.",
    "user": "Asked for by the user or the system prompt; most of it is from {where}: {quoted}.",
    "unclear": "Unclear; most of it is from {where}: {quoted}.",
}
_UNASKED = (
    "Unclear: tools' outputs have almost all of it, most from {where}: {quoted}; the user and the "
    "system prompt have next to none."
)
_UNSAID = "Unclear: there is nothing but {where}, and it has no word of the action: {quoted}."
_FILLED = "Probably not caused by a tool's output, though most of it is from {where}: {quoted}."
_OWN = "Probably not caused by a tool's output; most of it is from {where}: {quoted}."


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
        verdict: ``"tool"``: caused by the output of a tool; ``"user"``: not so, as a rule because the
            user or the system prompt asked for it, and the text says where it does not come from them;
            or ``"unclear"``, also where tools' outputs have almost all of the action and the user
            and the system prompt next to none of it.
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
    ends = e.normalized_intervals
    half = np.zeros(len(e.features)) if ends is None else (ends[:, 1] - ends[:, 0]) / 2
    return _decided(action, e.weights, e.normalized_weights, half, tools or {})


def decide_alone(
    prompt: Prompt, feature: Feature, action: str, *, tools: Mapping[int, str] | None = None
) -> Decision:
    """Who decided on an action where the prompt has one part only, which has all of the share.

    Its share says nothing then, so it is not said to ask for an action of which it has no word.

    Args:
        prompt: The prompt, of messages.
        feature: Its one part.
        action: The tool call, or what else was done.
        tools: As in :func:`decide`.
    """
    one = np.ones(1)
    return _decided(Action(prompt, (feature,), action), one, one, np.zeros(1), tools or {})


def _decided(
    action: Action, weights: Floats, shares: Floats, half: Floats, tools: Mapping[int, str]
) -> Decision:
    """The decision from the weight of each part, its share, and half the width of its interval."""
    chance, who = chance_of(action), action.deciders
    verdict: Verdict = "tool" if chance >= SURE else "user" if chance <= 1 - SURE else "unclear"
    influences = _influences(action, shares, half, tools)
    each = causes(action, chance)
    first = int(np.argmax(each if chance >= LIKELY else weights))
    asked = float(shares[action.asking].sum()) > NEXT_TO_NOTHING
    if verdict != "tool" and len(who) == 1 and not action.has.any():
        verdict, says = "unclear", _UNSAID
    elif verdict != "tool" and not asked and float(shares[action.tool].sum()) >= ALMOST_ALL:
        verdict, first = "unclear", int(np.argmax(np.where(action.tool, weights, -np.inf)))
        says = _UNASKED
    elif verdict == "user" and not asked:
        says = _FILLED if who[first] == "tool" else _OWN
    else:
        says = _SAYS[verdict]
    found = action.features[first]
    where = _named(who[first], found.part, tools)
    return Decision(
        action=action.text,
        verdict=verdict,
        probability=chance,
        text=says.format(where=where, quoted=f"“{shorten(found.text, _QUOTED)}”"),
        influences=influences,
        part=found.text.strip(),
        message=found.part,
        span=(found.start, found.end),
        causes=_likeliest(action.features, each),
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
    action: Action, shares: Floats, half: Floats, tools: Mapping[int, str]
) -> tuple[Influence, ...]:
    groups: dict[tuple[Decider, int], list[int]] = {}
    for i, (one, feature) in enumerate(zip(action.deciders, action.features, strict=True)):
        groups.setdefault((one, feature.part if one == "tool" else -1), []).append(i)
    found = []
    for (one, message), members in groups.items():
        share = float(shares[members].sum())
        doubt = float(np.sqrt((half[members] ** 2).sum()))
        found.append(
            Influence(
                one,
                _named(one, message, tools),
                tuple(sorted({action.features[i].part for i in members})),
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
