"""Whether to believe an explanation: three verdicts, each with a chance, and their summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ropelime.method.attribution import Attribution
from ropelime.method.learnt import chance
from ropelime.method.scores import Scores
from ropelime.results.grounding import Measures
from ropelime.typing import Floats

Name = Literal["rests", "cause", "understood"]
VERDICTS: tuple[Name, ...] = get_args(Name)

_BLIND = 0.1  # trust where there is nothing to go by
_STILL = 1e-3  # nats: less is rounding
WARNED = 0.5  # a verdict that a warning is about has at most this chance
_SMALL = 1e-3  # shares below this are all alike
_UNTESTED = " No part was removed to test it."
# By the least chance that each sentence is said at.
_WORDS: Mapping[Name, tuple[tuple[float, str], ...]] = {
    "rests": (
        (0.85, "The answer rests on these parts: without them it would very likely be different."),
        (0.6, "The answer probably rests on these parts: without them it would be different."),
        (0.4, "It is unclear whether the answer rests on these parts or would be given without them."),
        (0.15, "The answer might have been given without these parts, too."),
        (
            0.0,
            "No sign was found that the answer rests on these parts: it may come from elsewhere, or "
            "say the same in other words.",
        ),
    ),
    "cause": (
        (0.85, "The first part is very likely a cause: without it the answer changes or weakens."),
        (0.6, "The first part is probably a cause: without it the answer changes or weakens."),
        (0.4, "The first part may be a cause or only evidence. Look at more than the first."),
        (0.15, "The first part may be evidence, but it is unlikely to be a cause by itself."),
        (0.0, "No single part was found to be a cause."),
    ),
    "understood": (
        (
            0.85,
            "The surrogate follows this answer: its weights very likely predict what happens when "
            "other parts are removed.",
        ),
        (
            0.6,
            "The surrogate probably follows this answer: its weights should predict what happens when "
            "other parts are removed.",
        ),
        (0.4, "The surrogate follows this answer in part. Treat the weights as rough."),
        (0.0, "The surrogate hardly follows this answer. Treat the ranking as a hint only."),
    ),
}

# What is said of a cause where the answer may well be given without the prompt: it only weakens.
_ADDS = (
    (0.85, "What the prompt adds to the answer very likely needs the first part."),
    (0.6, "What the prompt adds to the answer probably needs the first part."),
)
_DOUBTFUL, _HARDLY = 0.4, 0.15  # chances that an answer rests on its prompt


@dataclass(frozen=True)
class Verdict:
    """One question about an explanation, answered.

    Attributes:
        name: ``rests``: does the answer rest on the prompt, or would it be given anyway? ``cause``: is
            the first part a cause? ``understood``: does the surrogate follow this answer at all?
        probability: The chance that it is so.
        text: The same in a sentence.
    """

    name: Name
    probability: float
    text: str


@dataclass(frozen=True)
class Trust:
    """How far to trust an explanation.

    Attributes:
        value: 0 to 1: the least chance of the verdicts.
        text: The sentence of that verdict; where the answer hardly rests on the prompt, the one that
            says so.
        verdicts: All of them; empty in files of older releases.
    """

    value: float
    text: str
    verdicts: tuple[Verdict, ...] = ()


def judge(scores: Scores, fitted: Attribution, measured: Measures, warned: Mapping[Name, str]) -> Trust:
    """Judge a fit by the scores that it was made from, that of the full prompt first.

    Args:
        scores: What was fitted.
        fitted: The fit.
        measured: What the sentences of the answer owe to the prompt.
        warned: Verdicts that a warning is about. An interval that leaves everything open lowers
            ``cause`` as a warning does.
    """
    known = inputs(fitted, measured)
    chances: dict[Name, float] = {
        "rests": chance("rests", known),
        "cause": float(measured.grounded.max()) * chance("cause", known),
        "understood": chance("understood", known),
    }
    if leaves_open(fitted.weights, fitted.half_width):
        warned = {**warned, "cause": "an interval from nothing to everything"}
    chances = {name: min(p, WARNED) if name in warned else p for name, p in chances.items()}
    said = {name: _said(name, p, chances["rests"]) for name, p in chances.items()}
    if not fitted.from_masks:
        said["cause"] += _UNTESTED
    if blind := _blind(scores, fitted):
        chances["cause"], said["cause"] = min(chances["cause"], _BLIND), blind
    return _summed(Verdict(name, p, said[name]) for name, p in chances.items())


def judge_together(
    members: Sequence[Trust],
    shares: Sequence[tuple[float, float]],
    agreement: float,
    alike: str,
    *,
    nothing_known: bool,
) -> Trust:
    """Judge an explanation by several surrogates: the means of their chances.

    Each member judges its own first part; its chance that the first part of all is a cause is what it
    would be for a part of that share. Surrogates that rank the parts differently cannot all be right,
    so the chance that they follow the answer is halved where their rankings have nothing in common.

    Args:
        members: What was judged of each.
        shares: For each, the normalised weights of its own first part and of the first part of all.
        agreement: Mean rank correlation of their weights.
        alike: How far they agree, as a sentence.
        nothing_known: Whether an interval of the mean weights :func:`leaves_open` everything.
    """
    follow = 0.5 + 0.5 * max(agreement, 0.0)
    factors = [{"cause": _cause(of_all) / _cause(own), "understood": follow} for own, of_all in shares]
    verdicts: list[Verdict] = []
    for each in zip(*(trust.verdicts for trust in members), strict=True):
        name = each[0].name
        pairs = zip(each, factors, strict=True)
        probability = float(np.mean([v.probability * factor.get(name, 1.0) for v, factor in pairs]))
        if name == "cause" and nothing_known:
            probability = min(probability, WARNED)
        rests = verdicts[0].probability if verdicts else probability
        text = _said(name, probability, rests)
        if name == "understood":
            text = f"{alike} {text}"
        elif name == "cause" and probability <= _BLIND and len({v.text for v in each}) == 1:
            text = each[0].text  # it says why nothing is known
        elif name == "cause" and all(v.text.endswith(_UNTESTED) for v in each):
            text += _UNTESTED
        verdicts.append(Verdict(name, probability, text))
    return _summed(verdicts)


def _cause(share: float) -> float:
    """The chance that a part with this normalised weight is a cause, whatever the answer."""
    return chance("cause", {"first": float(np.log(max(share, _SMALL)))})


def _summed(verdicts: Iterable[Verdict]) -> Trust:
    """The least chance, with its sentence.

    Where the answer hardly rests on its prompt, that is the reason for any other low chance, so it is
    said instead, unless the sentence gives a reason of its own.
    """
    every = tuple(verdicts)
    rests, least = every[0], min(every, key=lambda verdict: verdict.probability)
    usual = _said(least.name, least.probability, rests.probability)
    reasoned = least.text.removesuffix(_UNTESTED) != usual
    said = least if reasoned or rests.probability >= _HARDLY else rests
    return Trust(least.probability, said.text, every)


def inputs(fitted: Attribution, measured: Measures) -> dict[str, float]:
    """What the chances are estimated from.

    Returns:
        ``gain``: logarithm of 1 + the mean rise of the tokens' log-probabilities by the features;
        ``gain_most``: the same of the sentence that rises most; ``gain_sum``: of the sum over all
        tokens; ``covered_most``: the part of a sentence's words that one feature has, of the sentence
        that is covered best; ``first``: logarithm of the largest normalised weight.
    """
    mean = float(measured.share @ measured.gain)
    return {
        "gain": float(np.log1p(mean)),
        "gain_most": float(np.log1p(measured.gain.max())),
        "gain_sum": float(np.log1p(mean * measured.tokens.sum())),
        "covered_most": float(measured.covered.max()),
        "first": float(np.log(max(float(fitted.normalized_weights.max()), _SMALL))),
    }


def _blind(scores: Scores, fitted: Attribution) -> str:
    """Why nothing can be said about the first part, if so."""
    never, n = int(scores.masks.all(0).sum()), scores.masks.shape[1]
    if fitted.from_masks and never:
        return f"{never} of {n} parts were never removed: the ranking is a guess about them."
    logprob = scores.output_logprob
    if fitted.from_masks and np.abs(logprob - logprob[0]).max() < _STILL:
        return "No ablation moved the answer: the ranking means nothing."
    return "" if fitted.weights.any() else "Nothing tells the parts apart: the ranking means nothing."


def leaves_open(weights: Floats, half_width: Floats) -> bool:
    """Whether the interval of a share reaches from nothing to everything, so that nothing is known."""
    size = np.abs(weights)
    return bool(((size <= half_width) & (size + half_width >= size.sum())).any())


def _said(name: Name, probability: float, rests: float) -> str:
    """A chance in words, given the chance that the answer rests on its prompt."""
    words = _WORDS[name]
    if name == "cause" and rests < _DOUBTFUL and probability >= _ADDS[-1][0]:
        words = _ADDS
    return next(text for least, text in words if probability >= least)
