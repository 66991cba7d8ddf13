"""Every ranking of the parts of a step's prompt that is compared, on the same parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.names import EVIDENCE, FAITHFUL, INSTANT
from ropelime.results.decisions import LIKELY, causes, chance_of
from ropelime.results.explanation import ExplanationData
from ropelime.results.measures import Action, measures
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.features import Feature
from ropelime.text.lexical import bm25, shared_words
from ropelime.text.prompt import Prompt
from ropelime.typing import Floats, Masks

RANDOM, LONGEST, WORDS = "random", "longest", "words"
OTHERS, SHARED = "words of others", "shared words"  # they come with WORDS
ATTENTION, REVEALING, USER_OR_TOOL = "attention", "revealing", "user-or-tool"
GUARD = "guard"
PRESETS = (EVIDENCE, INSTANT, FAITHFUL)
BY_DEFAULT = (RANDOM, LONGEST, WORDS, ATTENTION, REVEALING, USER_OR_TOOL, EVIDENCE, INSTANT, GUARD)
KNOWN = (*BY_DEFAULT, FAITHFUL)
ORDER = (RANDOM, LONGEST, WORDS, OTHERS, SHARED, *KNOWN[KNOWN.index(WORDS) + 1 :])  # of the tables
NAMES = {
    RANDOM: "random",
    LONGEST: "longest message",
    WORDS: "BM25",
    OTHERS: "BM25, without the agent's own words",
    SHARED: "shared words, as the presets count them",
    ATTENTION: "attention, as in AgentWatcher",
    REVEALING: "gains by revealing, as in AgenticXAI",
    USER_OR_TOOL: "user against tool, as in CausalArmor",
}
_MESSAGES = 3  # whose sentences are looked at, after revealing


@dataclass(frozen=True)
class Ranking:
    """One ranking of the parts.

    Attributes:
        weights: (n,) by which they are ranked.
        by_message: Whether a weight is that of the whole message, which its parts share.
        score: How sure it is that a tool's result decided, if that is not the share of all of them.
        spread: (n,) the share of each part, if it is not the weight.
        names: Whether the weights say which part is first.
        signals: What the weights were made of, or else was measured: (n,) by name.
        known: What else was measured.
    """

    weights: Floats
    by_message: bool = False
    score: float | None = None
    spread: Floats | None = None
    names: bool = True
    signals: Mapping[str, Floats] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)

    def shares(self, messages: Sequence[int]) -> Floats:
        """(n,) the share of each part; weights of messages are spread over their parts."""
        if not self.by_message:
            return self.weights if self.spread is None else self.spread
        counts = np.bincount(messages)
        return np.asarray(self.weights / counts[np.asarray(messages)])


@dataclass(frozen=True)
class Step:
    """A chat as a prompt, cut into parts, and one text that is explained."""

    prompt: Prompt
    features: tuple[Feature, ...]
    output: str

    @property
    def messages(self) -> list[int]:
        """The number of each part's message."""
        return [feature.part for feature in self.features]

    @property
    def texts(self) -> list[str]:
        """The texts of the parts."""
        return [feature.text for feature in self.features]

    def role(self, message: int) -> str:
        """Who wrote a message."""
        return self.prompt.messages[message].role


def without_model(step: Step, only: Collection[str]) -> dict[str, Ranking]:
    """The rankings that need no surrogate."""
    n = len(step.features)
    found = {}
    if RANDOM in only:
        found[RANDOM] = Ranking(np.ones(n))
    if LONGEST in only:
        sizes = [m.end - m.start for m in step.prompt.messages]
        found[LONGEST] = Ranking(np.array([sizes[i] for i in step.messages], float), by_message=True)
    if WORDS in only:
        shared = shared_words(step.prompt, step.features, step.output)
        roles = [step.role(message) for message in step.messages]
        found |= by_words(bm25(step.output, step.texts), shared, [r == "assistant" for r in roles])
    return found


def by_words(matching: Floats, shared: Floats, own: Sequence[bool]) -> dict[str, Ranking]:
    """The rankings by words alone.

    Args:
        matching: (n,) BM25 of each part.
        shared: (n,) what the presets take for words.
        own: (n,) which parts are the agent's own; BM25 likes earlier calls for their form.
    """
    return {
        WORDS: Ranking(matching, signals={"shared": shared}),
        OTHERS: Ranking(np.where(own, 0.0, matching)),
        SHARED: Ranking(shared),
    }


def by_surrogate(step: Step, surrogate: LocalSurrogate, only: Collection[str]) -> dict[str, Ranking]:
    """The rankings of peers, which read a surrogate's attention or its log-probabilities."""
    found: dict[str, Ranking] = {}
    if not {ATTENTION, REVEALING, USER_OR_TOOL} & set(only):
        return found
    scorer = surrogate.prepare(step.prompt, step.features, step.output, ablation=Ablation())
    if ATTENTION in only:
        found |= _attention(surrogate, scorer)
    if REVEALING in only:
        found[REVEALING] = revealing(step, scorer)
    if USER_OR_TOOL in only:
        found[USER_OR_TOOL] = user_or_tool(step, scorer)
    return found


def _attention(surrogate: LocalSurrogate, scorer: LocalScorer) -> dict[str, Ranking]:
    """The mean attention that the output pays to the tokens of each part, over all heads and layers.

    AgentWatcher slides windows over the context and takes those with the largest mean; here the windows
    are the parts. Left out where the attention of the model cannot be read.
    """
    from benchmarks.closed import attention

    n = scorer.tokenized.n_features
    sequence = scorer.tokenized.sequence(0, np.ones(n, dtype=bool))
    if not attention.readable(surrogate, len(sequence.ids)):
        return {}
    paid = attention.of_tokens(surrogate, sequence)
    own = sequence.owner >= 0
    total = np.bincount(sequence.owner[own], paid[own], minlength=n)
    count = np.bincount(sequence.owner[own], minlength=n)
    mean = total / np.maximum(count, 1)
    return {ATTENTION: Ranking(mean / mean.sum())}


def revealing(step: Step, scorer: LocalScorer) -> Ranking:
    """Messages by what the output gains when they are revealed in order, then their sentences.

    As in AgenticXAI: the gain of a message is the rise of the output's log-probability when it is added
    to those before it. In the three messages that gain most, a part has what is lost without it and
    what it gains alone. Settled here: messages that are not revealed yet are empty, but their roles
    stand in the chat; three messages; both numbers count the same.
    """
    n = len(step.features)
    of = np.array(step.messages)
    shown = sorted(set(step.messages))
    logprob = _logprob(scorer, np.array([np.zeros(n, bool), *(of <= message for message in shown)]))
    gains = np.diff(logprob)
    best = [shown[i] for i in np.argsort(-gains, kind="stable")[:_MESSAGES]]
    parts = np.flatnonzero(np.isin(of, best))
    one = np.eye(n, dtype=bool)[parts]
    scores = _logprob(scorer, np.concatenate([~one, one]))
    drop, hold = logprob[-1] - scores[: len(parts)], scores[len(parts) :] - logprob[0]
    weights = np.zeros(n)
    weights[parts] = np.maximum(drop + hold, 0.0)
    known = {"gains": {str(m): round(float(g), 3) for m, g in zip(shown, gains, strict=True)}}
    return Ranking(weights, known=known)


def user_or_tool(step: Step, scorer: LocalScorer) -> Ranking:
    """What is lost without the user's messages, and without each result of a tool.

    As in CausalArmor: the drop of the action's log-probability for each of its tokens. A tool's result
    is suspected by how far its drop exceeds that of the user.
    """
    of = np.array(step.messages)
    tools = [m for m in sorted(set(step.messages)) if step.role(m) == "tool"]
    user = np.isin(of, [m for m in set(step.messages) if step.role(m) == "user"])
    masks = np.array([np.ones(len(of), bool), ~user, *(of != message for message in tools)])
    logprob = _logprob(scorer, masks) / len(scorer.output_spans)
    drops = logprob[0] - logprob[1:]
    weights = np.where(user, drops[0], 0.0)
    for message, drop in zip(tools, drops[1:], strict=True):
        weights[of == message] = drop
    names = ["user", *map(str, tools)]
    known = {"drops": {m: round(float(d), 4) for m, d in zip(names, drops, strict=True)}}
    score = float(drops[1:].max(initial=-np.inf) - drops[0]) if tools else None
    return Ranking(weights, by_message=True, score=score, known=known)


def _logprob(scorer: LocalScorer, masks: Masks) -> Floats:
    """(N,) log-probability of the output under each mask, scored exactly."""
    full = np.ones((1, masks.shape[1]), dtype=bool)
    return scorer.score(np.concatenate([full, masks]), kl=False).output_logprob[1:]


def of_guard(step: Step, instant: ExplanationData | None) -> Ranking:
    """The verdict of ``ropelime.guard``: the part that it names, and its chance that a tool decided.

    The chance, and its share in each part of a result, need no surrogate; what is left of it is shared
    out among the other messages. Where no tool has probably decided, the first part of ``instant`` is
    named: it is left out if that was not computed.
    """
    action = Action(step.prompt, step.features, step.output)
    chance = chance_of(action)
    each = causes(action, chance)
    others = ~action.tool
    spread = each + (1 - chance) * others / max(others.sum(), 1)
    known = {"measures": {name: round(v, 3) for name, v in measures(action).items()}}
    names = chance >= LIKELY or instant is not None
    weights = each if chance >= LIKELY or instant is None else np.asarray(instant.weights)
    return Ranking(weights, spread=spread, names=names, known=known)


def of_preset(name: str, e: ExplanationData) -> Ranking:
    """The ranking of a preset, with the signals that its weights were made of.

    ``moved`` and ``drop`` are what the shift is a share of: how far the output moves without each part,
    and how much log-probability it loses, where each part was removed by itself.
    """
    signals = {signal: np.asarray(share) for signal, share in e.signals.items()}
    scores = e.surrogate_scores
    alone = np.flatnonzero((~scores.masks).sum(1) == 1)
    if name == EVIDENCE and len(alone):
        values = e.strategies().target.values(scores.fitted())
        rows = np.delete(np.arange(len(scores.masks)), 1)
        moved, drop = np.zeros(len(e.features)), np.zeros(len(e.features))
        for place, row in enumerate(rows):
            if (removed := np.flatnonzero(~scores.masks[row])).size == 1:
                moved[removed[0]] = values[place]
                drop[removed[0]] = scores.output_logprob[0] - scores.output_logprob[row]
        signals |= {"moved": moved, "drop": drop}
    known = {
        "full": round(float(scores.output_logprob[0]), 3),
        "none": round(float(scores.empty.output_logprob[0]), 3),
        "output_tokens": len(e.output_spans),
        "tokens": e.cost.tokens,
    }
    return Ranking(np.asarray(e.weights), signals=signals, known=known)
