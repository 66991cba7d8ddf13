"""What the regression explains: how far an ablation moves the answer, relative to the full prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.learnt import EVIDENCE, INSTANT
from ropelime.method.scores import QuestionScores, Scores
from ropelime.registry import is_number, resolve
from ropelime.typing import Floats

SHARE = "share of the prompt's effect on the answer"
_LEAST = 0.1  # nats: what a token counts for at least, however little the prompt does for it
_LEAST_LIKELY = 0.2  # added to the probability that a token of the question counts for


class Target(ABC):
    """Turns scores into regression targets.

    Attributes:
        name: What it is called in options and explanations.
        unit: The unit of its values.
        support: Sign that turns a coefficient into a weight: -1 where keeping a supporting feature
            lowers the value.
        needs_kl: Whether the surrogate must give KL divergences.
        per_token: Whether :meth:`values` is a mean over the output tokens, or their sum.
        needs_attention: Whether the surrogate must give attention.
        needs_masks: Whether it needs ablations; otherwise the full prompt is enough.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    support: ClassVar[int] = -1
    needs_kl: ClassVar[bool] = False
    per_token: ClassVar[bool] = False
    needs_attention: ClassVar[bool] = False
    needs_masks: ClassVar[bool] = True

    @property
    def question_weight(self) -> float:
        """How much the question counts beside the answer; 0 if its scores are not used."""
        return 0.0

    @property
    def signals(self) -> Mapping[str, float]:
        """How much each signal counts, where weights are made of several; empty where of a fit."""
        return {}

    @abstractmethod
    def token_values(self, scores: Scores) -> Floats:
        """(N, T) a value of each output token for each mask; those of the full prompt are zero."""

    def values(self, scores: Scores) -> Floats:
        """(N,) the same for the whole output: by default the mean or the sum over its tokens."""
        tokens = self.token_values(scores)
        return np.asarray(tokens.mean(1) if self.per_token else tokens.sum(1))


@dataclass(frozen=True)
class KL(Target):
    """KL divergence from the prediction under the full prompt, mean over tokens: the paper's target."""

    name: ClassVar[str] = "kl"
    needs_kl: ClassVar[bool] = True
    unit: ClassVar[str] = "nats per output token"
    per_token: ClassVar[bool] = True

    def token_values(self, scores: Scores) -> Floats:
        """The divergence at each position."""
        return _kl(scores)


@dataclass(frozen=True)
class SqrtKL(KL):
    """Square root of the KL divergence: a distance, less dominated by a few large values."""

    name: ClassVar[str] = "sqrt-kl"
    unit: ClassVar[str] = "square root of nats per output token"

    def values(self, scores: Scores) -> Floats:
        """Root of the mean over tokens."""
        return np.asarray(np.sqrt(_kl(scores).mean(1)))

    def token_values(self, scores: Scores) -> Floats:
        """Root of the divergence at each position."""
        return np.sqrt(_kl(scores))


@dataclass(frozen=True)
class Shift(Target):
    """Root of the KL divergence plus the drop in log-probability, weighted towards likely tokens.

    At each output position the two are added, a rise in log-probability counting as zero. The mean over
    the positions is weighted by the probability of the token under the full prompt: a token that the
    surrogate finds unlikely carries little information about its source.

    Attributes:
        floor: Added to every probability, so that every token has some weight.
    """

    name: ClassVar[str] = "shift"
    needs_kl: ClassVar[bool] = True
    unit: ClassVar[str] = "shift (square root of nats, and nats) per output token"
    per_token: ClassVar[bool] = True
    floor: float = 0.2

    def __post_init__(self) -> None:
        _check_numbers(self, "floor")

    def values(self, scores: Scores) -> Floats:
        """Weighted mean over tokens."""
        return _mean_shift(scores, self.floor)

    def token_values(self, scores: Scores) -> Floats:
        """The shift at each position."""
        return _shift(scores)


@dataclass(frozen=True)
class Evidence(Target):
    """What the prompt does for the answer, and the share of each feature in it, from three signals.

    Each signal gives every feature a share; the weight of a feature is the weighted mean of its shares.
    It estimates the part of the prompt's effect on the answer that is lost without the feature: the
    weights of the signals were learnt from what answering models did when parts of their prompts were
    removed (``python -m benchmarks learn``).

    Attributes:
        shift: How much the shift of the answer counts: how far its tokens move without the feature.
        words: How much the words count that a feature shares with the answer and the question.
        question: How much the shift of the question counts, such as by a multi-hop question's bridge.
    """

    name: ClassVar[str] = "evidence"
    needs_kl: ClassVar[bool] = True
    unit: ClassVar[str] = SHARE
    shift: float = EVIDENCE["shift"]
    words: float = EVIDENCE["words"]
    question: float = EVIDENCE["question"]

    def __post_init__(self) -> None:
        _check_signals(self, "shift", "words", "question")

    @property
    def question_weight(self) -> float:
        """As chosen."""
        return self.question

    @property
    def signals(self) -> Mapping[str, float]:
        """As chosen."""
        return {"shift": self.shift, "words": self.words, "question": self.question}

    def values(self, scores: Scores) -> Floats:
        """Root mean square of the shift over the tokens, weighted by what the prompt does for each."""
        return np.asarray(np.sqrt(_shift(scores) ** 2 @ dependence(scores)))

    def token_values(self, scores: Scores) -> Floats:
        """The shift of each output token."""
        return _shift(scores)

    def question_values(self, scores: Scores) -> Floats | None:
        """(N,) mean shift of the question's tokens; None where they were not scored."""
        if scores.question is None or not self.question:
            return None
        # A mask that removes a part of the question says nothing about it.
        return np.nan_to_num(_mean_shift(scores.question, _LEAST_LIKELY))


@dataclass(frozen=True)
class Instant(Target):
    """Shares without any ablation, from one forward pass: learnt attention heads, and words.

    Attributes:
        attention: How much the attention counts that the answer's tokens pay to a feature, by heads
            that were learnt as the weights of :class:`Evidence` were.
        words: As in :class:`Evidence`.
    """

    name: ClassVar[str] = "instant"
    unit: ClassVar[str] = SHARE
    needs_attention: ClassVar[bool] = True
    needs_masks: ClassVar[bool] = False
    attention: float = INSTANT["attention"]
    words: float = INSTANT["words"]

    def __post_init__(self) -> None:
        _check_signals(self, "attention", "words")

    @property
    def signals(self) -> Mapping[str, float]:
        """As chosen."""
        return {"attention": self.attention, "words": self.words}

    def token_values(self, scores: Scores) -> Floats:
        """The drop of log-probability, which plays no part in the weights."""
        return scores.logprob[:1] - scores.logprob


@dataclass(frozen=True)
class NLL(Target):
    """Drop of the log-probability of the output, summed over its tokens."""

    name: ClassVar[str] = "nll"
    unit: ClassVar[str] = "nats"

    def token_values(self, scores: Scores) -> Floats:
        """The drop at each token."""
        return scores.logprob[:1] - scores.logprob


@dataclass(frozen=True)
class Logit(Target):
    """Log-odds of the output as a whole, relative to the full prompt: ContextCite's target."""

    name: ClassVar[str] = "logit"
    support: ClassVar[int] = 1
    unit: ClassVar[str] = "nats of log-odds"

    def values(self, scores: Scores) -> Floats:
        """Log-odds of the product of the token probabilities."""
        odds = _log_odds(scores.logprob.sum(1))
        return np.asarray(odds - odds[0])

    def token_values(self, scores: Scores) -> Floats:
        """Log-odds of each token."""
        odds = _log_odds(scores.logprob)
        return odds - odds[:1]


@dataclass(frozen=True)
class Contrast(Target):
    """Drop of the output's log-probability minus that of an alternative answer under the same masks."""

    name: ClassVar[str] = "contrast"
    unit: ClassVar[str] = "nats for this answer over the other"

    def token_values(self, scores: Scores) -> Floats:
        """The drop at each token; the alternative's drop is spread evenly over them."""
        if scores.alternative is None:
            raise InputError("target='contrast' needs an alternative answer: pass instead_of='...'.")
        drop, other = NLL().token_values(scores), scores.alternative.sum(1)
        return np.asarray(drop - (other[0] - other)[:, None] / drop.shape[1])


TARGETS: dict[str, type[Target]] = {
    cls.name: cls for cls in (KL, SqrtKL, Shift, Evidence, Instant, NLL, Logit, Contrast)
}
resolve_target = partial(resolve, "target", registry=TARGETS, base=Target)


def _check_numbers(target: Target, *names: str) -> None:
    for name in names:
        value = getattr(target, name)
        if not is_number(value) or value < 0:
            raise InputError(f"{name} of {target.name} must be a number from 0 on, not {value!r}.")


def _check_signals(target: Target, *names: str) -> None:
    _check_numbers(target, *names)
    if not any(target.signals.values()):
        raise InputError(f"{target.name} needs a signal that counts: {' or '.join(names)} above 0.")


def dependence(scores: Scores) -> Floats:
    """(T,) what the features do for each output token, in log-probability; sums to 1."""
    gain = np.zeros(scores.logprob.shape[1])
    if scores.without_features is not None:
        gain = np.maximum(scores.logprob[0] - scores.without_features, 0.0)
    return np.asarray((gain + _LEAST) / (gain + _LEAST).sum())


def _kl(scores: Scores | QuestionScores) -> Floats:
    if scores.kl is None:
        raise ModelError(
            "This surrogate gives the probabilities of the output only, and KL divergence needs those "
            "of the whole vocabulary. Use target='nll' or 'logit' with it."
        )
    return np.maximum(scores.kl, 0.0)  # rounding can leave a divergence just below zero


def _shift(scores: Scores | QuestionScores) -> Floats:
    """(N, T) root of the KL divergence plus the drop in log-probability, a rise counting as zero."""
    return np.asarray(np.sqrt(_kl(scores)) + np.maximum(scores.logprob[:1] - scores.logprob, 0.0))


def _mean_shift(scores: Scores | QuestionScores, least: float) -> Floats:
    """(N,) mean over the tokens, weighted by their probability under the full prompt."""
    likely = np.exp(scores.logprob[0]) + least
    return np.asarray(_shift(scores) @ (likely / likely.sum()))


def _log_odds(logprob: Floats) -> Floats:
    certain = np.minimum(logprob, -1e-9)  # a probability of exactly one has no finite odds
    return np.asarray(certain - np.log(-np.expm1(certain)))
