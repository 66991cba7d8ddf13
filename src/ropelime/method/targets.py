"""What the regression explains: how far an ablation moves the answer, relative to the full prompt."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.scores import QuestionScores, Scores
from ropelime.registry import resolve
from ropelime.typing import Floats


class Target(ABC):
    """Turns scores into regression targets.

    Attributes:
        name: What it is called in options and explanations.
        unit: The unit of its values.
        support: Sign that turns a coefficient into a weight: -1 where keeping a supporting feature
            lowers the value.
        needs_kl: Whether the surrogate must give KL divergences.
        per_token: Whether :meth:`values` is a mean over the output tokens, or their sum.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    support: ClassVar[int] = -1
    needs_kl: ClassVar[bool] = False
    per_token: ClassVar[bool] = False

    @property
    def question_weight(self) -> float:
        """How much the question counts beside the answer; 0 if its scores are not used."""
        return 0.0

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
    """The shift of the answer plus that of the question: what a person would cite.

    A part may matter because the answer follows from it, or because the question is about it, like the
    bridging fact of a multi-hop question. Each shift is divided by its mean over the masks.

    Attributes:
        question: How much the question counts beside the answer.
        floor: As in :class:`Shift`.
    """

    name: ClassVar[str] = "evidence"
    needs_kl: ClassVar[bool] = True
    unit: ClassVar[str] = "mean shifts per output token"
    per_token: ClassVar[bool] = True
    question: float = 1.0
    floor: float = 0.2

    def __post_init__(self) -> None:
        _check_numbers(self, "question", "floor")

    @property
    def question_weight(self) -> float:
        """As chosen."""
        return self.question

    def values(self, scores: Scores) -> Floats:
        """Both shifts, each in units of its mean over the masks."""
        shift = _mean_shift(scores, self.floor)
        answer = np.asarray(shift / _mean(shift))
        if scores.question is None or not self.question:
            return answer
        # A mask that removes a part of the question says nothing about it.
        moved = np.nan_to_num(_mean_shift(scores.question, self.floor))
        return np.asarray(answer + self.question * moved / _mean(moved))

    def token_values(self, scores: Scores) -> Floats:
        """The shift of each output token; the question has no part in it."""
        return _shift(scores) / _mean(_mean_shift(scores, self.floor))


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
    cls.name: cls for cls in (KL, SqrtKL, Shift, Evidence, NLL, Logit, Contrast)
}
resolve_target = partial(resolve, "target", registry=TARGETS, base=Target)


def _check_numbers(target: Target, *names: str) -> None:
    for name in names:
        value = getattr(target, name)
        if isinstance(value, str) or not 0 <= value < math.inf:
            raise InputError(f"{name} of {target.name} must be a number from 0 on, not {value!r}.")


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


def _mean(values: Floats) -> float:
    """Mean over the ablations; one where nothing moved."""
    mean = float(values[1:].mean()) if len(values) > 1 else 0.0
    return mean if mean > 0 else 1.0


def _log_odds(logprob: Floats) -> Floats:
    certain = np.minimum(logprob, -1e-9)  # a probability of exactly one has no finite odds
    return np.asarray(certain - np.log(-np.expm1(certain)))
