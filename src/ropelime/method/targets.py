"""What the regression explains: how far a masked prompt moves the answer, relative to the full one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.scores import Floats, Scores
from ropelime.registry import resolve


class Target(Protocol):
    """Turns readings into regression targets."""

    needs_kl: ClassVar[bool]
    support: ClassVar[int]
    unit: ClassVar[str]
    per_token: ClassVar[bool]  # whether values() is a mean over the output tokens; else it is their sum

    @property
    def reads_question(self) -> bool:
        """Whether readings of the question are used, where there is one."""
        ...

    def values(self, scores: Scores) -> Floats:
        """(N,) one value for each mask; the unmasked prompt (row 0) has zero."""
        ...

    def token_values(self, scores: Scores) -> Floats:
        """(N, T) the same for each output token by itself."""
        ...


@dataclass(frozen=True)
class KL:
    """Divergence from the unmasked prediction, mean over the output positions: the paper's target."""

    name: ClassVar[str] = "kl"
    needs_kl: ClassVar[bool] = True
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1  # keeping a supporting feature lowers the value
    unit: ClassVar[str] = "nats per output token"
    per_token: ClassVar[bool] = True

    def values(self, scores: Scores) -> Floats:
        """Mean over tokens."""
        return np.asarray(_kl(scores).mean(1))

    def token_values(self, scores: Scores) -> Floats:
        """The divergence at each position."""
        return _kl(scores)


@dataclass(frozen=True)
class SqrtKL:
    """Square root of the divergence: a distance, less ruled by the few largest readings."""

    name: ClassVar[str] = "sqrt-kl"
    needs_kl: ClassVar[bool] = True
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "square root of nats per output token"
    per_token: ClassVar[bool] = True

    def values(self, scores: Scores) -> Floats:
        """Root of the mean over tokens."""
        return np.asarray(np.sqrt(_kl(scores).mean(1)))

    def token_values(self, scores: Scores) -> Floats:
        """Root of the divergence at each position."""
        return np.sqrt(_kl(scores))


@dataclass(frozen=True)
class Shift:
    """How far the prediction moves and how much the output loses by it, most at tokens it was sure of.

    At each output position the root of the divergence plus the drop of the log-probability where it is
    a drop; over the positions a mean that is weighted by the probability of the token under the full
    prompt. A token that the surrogate would not have said says little about where it came from.

    Attributes:
        floor: Added to every probability, so that no token is without weight.
    """

    name: ClassVar[str] = "shift"
    needs_kl: ClassVar[bool] = True
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "shift (square root of nats, and nats) per output token"
    per_token: ClassVar[bool] = True

    floor: float = 0.2

    def values(self, scores: Scores) -> Floats:
        """Weighted mean over tokens."""
        sure = np.exp(scores.logprob[0]) + self.floor
        return np.asarray(self.token_values(scores) @ (sure / sure.sum()))

    def token_values(self, scores: Scores) -> Floats:
        """The shift at each position."""
        return _shift(scores.logprob, _kl(scores))


@dataclass(frozen=True)
class Evidence:
    """The shift of the answer, and that of the question before it: what a person would cite.

    A part may matter because the answer follows from it, or because the question is about it, as the
    bridge of an answer in two steps is. Both shifts are taken as shares of all that the masks did.

    Attributes:
        question: How much the question counts beside the answer.
        floor: As in :class:`Shift`.
    """

    name: ClassVar[str] = "evidence"
    needs_kl: ClassVar[bool] = True
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "mean shifts per output token"
    per_token: ClassVar[bool] = True

    question: float = 1.0
    floor: float = 0.2

    def __post_init__(self) -> None:
        for name in ("question", "floor"):
            value = getattr(self, name)
            if isinstance(value, str) or not 0 <= value < math.inf:
                raise InputError(f"{name} of evidence must be a number from 0 on, not {value!r}.")

    @property
    def reads_question(self) -> bool:
        """Not where it counts for nothing."""
        return self.question > 0

    def values(self, scores: Scores) -> Floats:
        """Both shifts, each in units of its mean over the masks."""
        shift = Shift(self.floor).values(scores)
        found = shift / _mean(shift)
        question = scores.question
        if question is None or not self.reads_question:
            return np.asarray(found)
        sure = np.exp(question.logprob[0]) + self.floor
        moved = _shift(question.logprob, np.maximum(question.kl, 0.0)) @ (sure / sure.sum())
        moved = np.nan_to_num(moved)  # a mask that cut into the question says nothing about it
        return np.asarray(found + self.question * moved / _mean(moved))

    def token_values(self, scores: Scores) -> Floats:
        """The shift of each output token; the question has no part in it."""
        return Shift(self.floor).token_values(scores) / _mean(Shift(self.floor).values(scores))


@dataclass(frozen=True)
class NLL:
    """Drop of the log-probability of the output, summed over its tokens."""

    name: ClassVar[str] = "nll"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "nats"
    per_token: ClassVar[bool] = False

    def values(self, scores: Scores) -> Floats:
        """Sum over tokens."""
        return np.asarray(self.token_values(scores).sum(1))

    def token_values(self, scores: Scores) -> Floats:
        """The drop at each token."""
        return scores.logprob[:1] - scores.logprob


@dataclass(frozen=True)
class Logit:
    """Log-odds of the output as a whole, relative to the unmasked prompt: ContextCite's target."""

    name: ClassVar[str] = "logit"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = 1
    unit: ClassVar[str] = "nats of log-odds"
    per_token: ClassVar[bool] = False

    def values(self, scores: Scores) -> Floats:
        """Log-odds of the product of the token probabilities."""
        odds = _log_odds(scores.logprob.sum(1))
        return np.asarray(odds - odds[0])

    def token_values(self, scores: Scores) -> Floats:
        """Log-odds of each token."""
        odds = _log_odds(scores.logprob)
        return odds - odds[:1]


@dataclass(frozen=True)
class Contrast:
    """Drop of the log-probability of the output, less that of another answer under the same masks."""

    name: ClassVar[str] = "contrast"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "nats for this answer over the other"
    per_token: ClassVar[bool] = False

    def values(self, scores: Scores) -> Floats:
        """Sum over the tokens of either."""
        return np.asarray(NLL().values(scores) - self._other(scores))

    def token_values(self, scores: Scores) -> Floats:
        """The drop at each token, the other answer's drop spread evenly over them."""
        drop = NLL().token_values(scores)
        return np.asarray(drop - self._other(scores)[:, None] / drop.shape[1])

    @staticmethod
    def _other(scores: Scores) -> Floats:
        if scores.alternative is None:
            raise InputError("target='contrast' needs another answer: pass instead_of='...'.")
        output_logprob = scores.alternative.sum(1)
        return np.asarray(output_logprob[0] - output_logprob)


TARGETS: dict[str, type[Target]] = {
    cls.name: cls for cls in (KL, SqrtKL, Shift, Evidence, NLL, Logit, Contrast)
}


def resolve_target(spec: object) -> Target:
    """A target by name or as an object."""
    return resolve("target", spec, TARGETS, method="values")


def _kl(scores: Scores) -> Floats:
    if scores.kl is None:
        raise ModelError(
            "This surrogate gives the probabilities of the output only, and divergence needs those of "
            "the whole vocabulary. Use target='nll' or 'logit' with it."
        )
    return np.maximum(scores.kl, 0.0)  # rounding can leave a divergence a hair under zero


def _shift(logprob: Floats, kl: Floats) -> Floats:
    """Root of the divergence, and the drop of the log-probability where it is one."""
    return np.asarray(np.sqrt(kl) + np.maximum(logprob[:1] - logprob, 0.0))


def _mean(values: Floats) -> float:
    """Mean over the masks, without the unmasked prompt; one where nothing moved."""
    mean = float(values[1:].mean()) if len(values) > 1 else 0.0
    return mean if mean > 0 else 1.0


def _log_odds(logprob: Floats) -> Floats:
    certain = np.minimum(logprob, -1e-9)  # a probability of exactly one has no finite odds
    return np.asarray(certain - np.log(-np.expm1(certain)))
