"""What the regression explains: how far a masked prompt moves the answer, relative to the full one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.scores import Floats, Passes
from ropelime.registry import resolve


class Target(Protocol):
    """Turns readings into regression targets."""

    needs_kl: ClassVar[bool]
    support: ClassVar[int]
    unit: ClassVar[str]

    @property
    def reads_question(self) -> bool:
        """Whether readings of the question are used, where there is one."""
        ...

    def values(self, passes: Passes) -> Floats:
        """(N,) one value for each mask; the unmasked prompt (row 0) has zero."""
        ...

    def token_values(self, passes: Passes) -> Floats:
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

    def values(self, passes: Passes) -> Floats:
        """Mean over tokens."""
        return np.asarray(_kl(passes).mean(1))

    def token_values(self, passes: Passes) -> Floats:
        """The divergence at each position."""
        return _kl(passes)


@dataclass(frozen=True)
class SqrtKL:
    """Square root of the divergence: a distance, less ruled by the few largest readings."""

    name: ClassVar[str] = "sqrt-kl"
    needs_kl: ClassVar[bool] = True
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "square root of nats per output token"

    def values(self, passes: Passes) -> Floats:
        """Root of the mean over tokens."""
        return np.asarray(np.sqrt(_kl(passes).mean(1)))

    def token_values(self, passes: Passes) -> Floats:
        """Root of the divergence at each position."""
        return np.sqrt(_kl(passes))


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

    floor: float = 0.2

    def values(self, passes: Passes) -> Floats:
        """Weighted mean over tokens."""
        sure = np.exp(passes.logprob[0]) + self.floor
        return np.asarray(self.token_values(passes) @ (sure / sure.sum()))

    def token_values(self, passes: Passes) -> Floats:
        """The shift at each position."""
        return _shift(passes.logprob, _kl(passes))


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

    def values(self, passes: Passes) -> Floats:
        """Both shifts, each in units of its mean over the masks."""
        shift = Shift(self.floor).values(passes)
        found = shift / _mean(shift)
        asked = passes.asked
        if asked is None or not self.reads_question:
            return np.asarray(found)
        sure = np.exp(asked.logprob[0]) + self.floor
        moved = _shift(asked.logprob, np.maximum(asked.kl, 0.0)) @ (sure / sure.sum())
        moved = np.nan_to_num(moved)  # a mask that cut into the question says nothing about it
        return np.asarray(found + self.question * moved / _mean(moved))

    def token_values(self, passes: Passes) -> Floats:
        """The shift of each output token; the question has no part in it."""
        return Shift(self.floor).token_values(passes) / _mean(Shift(self.floor).values(passes))


@dataclass(frozen=True)
class NLL:
    """Drop of the log-probability of the output, summed over its tokens."""

    name: ClassVar[str] = "nll"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "nats"

    def values(self, passes: Passes) -> Floats:
        """Sum over tokens."""
        return np.asarray(self.token_values(passes).sum(1))

    def token_values(self, passes: Passes) -> Floats:
        """The drop at each token."""
        return passes.logprob[:1] - passes.logprob


@dataclass(frozen=True)
class Logit:
    """Log-odds of the output as a whole, relative to the unmasked prompt: ContextCite's target."""

    name: ClassVar[str] = "logit"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = 1
    unit: ClassVar[str] = "nats of log-odds"

    def values(self, passes: Passes) -> Floats:
        """Log-odds of the product of the token probabilities."""
        odds = _log_odds(passes.logprob.sum(1))
        return np.asarray(odds - odds[0])

    def token_values(self, passes: Passes) -> Floats:
        """Log-odds of each token."""
        odds = _log_odds(passes.logprob)
        return odds - odds[:1]


@dataclass(frozen=True)
class Contrast:
    """Drop of the log-probability of the output, less that of another answer under the same masks."""

    name: ClassVar[str] = "contrast"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = -1
    unit: ClassVar[str] = "nats for this answer over the other"

    def values(self, passes: Passes) -> Floats:
        """Sum over the tokens of either."""
        return np.asarray(NLL().values(passes) - self._other(passes))

    def token_values(self, passes: Passes) -> Floats:
        """The drop at each token, the other answer's drop spread evenly over them."""
        drop = NLL().token_values(passes)
        return np.asarray(drop - self._other(passes)[:, None] / drop.shape[1])

    @staticmethod
    def _other(passes: Passes) -> Floats:
        if passes.instead is None:
            raise InputError("target='contrast' needs another answer: pass instead_of='...'.")
        said = passes.instead.sum(1)
        return np.asarray(said[0] - said)


TARGETS: dict[str, type[Target]] = {
    cls.name: cls for cls in (KL, SqrtKL, Shift, Evidence, NLL, Logit, Contrast)
}


def resolve_target(spec: object) -> Target:
    """A target by name or as an object."""
    return resolve("target", spec, TARGETS, method="values")


def _kl(passes: Passes) -> Floats:
    if passes.kl is None:
        raise ModelError(
            "This surrogate gives the probabilities of the output only, and divergence needs those of "
            "the whole vocabulary. Use target='nll' or 'logit' with it."
        )
    return np.maximum(passes.kl, 0.0)  # rounding can leave a divergence a hair under zero


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
