"""What is known about the quality of an explanation without labels: diagnostics, and trust."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ropelime.method.attribution import Attribution
from ropelime.method.scores import Scores

_SURPRISED = -4.0  # nats a token: below this the surrogate would hardly have said it itself
_INDEPENDENT = 0.1  # nats a token: features that move the answer by less do not matter to it
_POOR_FIT = 0.3
_FEW = 5.0
_EXACT = 1 - 1e-6  # R²: what is left over is rounding
# Fitted on HotpotQA with the embedded model: whether the first part is one that a person cited, against
# the logarithm of its normalised weight and how much less likely the answer is without it
# (docs/reading.md).
_FIRST, _WEIGHT, _DROP = 2.92, 1.30, 1.15
# The same where weights are made of signals (docs/truth.md): the first share is enough.
_SIGNALS_FIRST, _SIGNALS_WEIGHT = 2.28, 1.37
# Fitted there too: the rank correlation with held-out scores, against that with left-out ones.
_BASE, _LOG_WEIGHT, _CV = 0.55, 0.12, 0.40
_BLIND = 0.1  # trust where there is nothing to go by
_STILL = 1e-3  # nats: less is rounding
_FIRST_IS_EVIDENCE = "the first part is evidence for the answer"


@dataclass(frozen=True)
class Diagnostics:
    """What is known about the quality of an explanation without any labels.

    Attributes:
        r2: Weighted R² of the fit; NaN where the target does not vary.
        effective_samples: Effective number of scored masks under the kernel's weights.
        logprob_full: Log-probability of the output with all features, nats per token.
        logprob_empty: The same with none of them.
        masks_requested: Masks that the sampler was to draw.
        masks_scored: Masks that it drew; one that was scored both cached and exactly counts twice.
        notes: How the scoring differs from the request, and why.
        warnings: When not to trust it, in plain words.
    """

    r2: float
    effective_samples: float
    logprob_full: float
    logprob_empty: float
    masks_requested: int
    masks_scored: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def diagnose(
    scores: Scores, fitted: Attribution, *, requested: int, notes: tuple[str, ...]
) -> Diagnostics:
    """Examine a fit and its scores: the full prompt, the prompt with no feature, then the masks."""
    exact = len(scores.masks) == scores.masks.shape[1] + 2 and not fitted.r2 < _EXACT  # or undefined
    note = "The fit has as many scores as unknowns: it is exact, and its R² says nothing."
    return Diagnostics(
        r2=fitted.r2,
        effective_samples=fitted.effective_samples,
        logprob_full=float(scores.full.logprob.mean()),
        logprob_empty=float(scores.empty.logprob.mean()),
        masks_requested=requested,
        masks_scored=len(scores.masks) - 2,
        notes=tuple(dict.fromkeys((*notes, note) if exact and fitted.from_masks else notes)),
        warnings=tuple(_warnings(scores, fitted)),
    )


def _warnings(scores: Scores, fitted: Attribution) -> Iterator[str]:
    full, none = float(scores.full.logprob.mean()), float(scores.empty.logprob.mean())
    rows, features = len(scores.masks) - 1, scores.masks.shape[1]
    if full < _SURPRISED:
        yield (
            f"The surrogate finds this output very unlikely even with the whole prompt ({full:.1f} "
            "nats per token): it may not follow the reasoning behind it. Try a larger surrogate."
        )
    moved = float(np.abs(scores.logprob - scores.logprob[0]).mean(1).max())
    if moved < _INDEPENDENT:
        yield (
            "The output hardly depends on these features: no masked prompt moved it by more than "
            f"{moved:.2f} nats per token. The ranking may be noise."
        )
    elif none >= full:
        yield (
            "The surrogate finds the output no less likely without any feature: it may know the answer "
            "by itself, or be misled by the prompt."
        )
    if not np.any(fitted.weights):
        yield (
            "Every weight is zero: the features cannot be told apart, and their ranking means nothing."
        )
    if not fitted.from_masks:
        return
    if rows <= features:
        yield (
            f"{rows} scores for {features} features leave the fit underdetermined; the solution of "
            "minimum norm was taken. Raise the budget for firmer weights."
        )
    elif fitted.r2 < _POOR_FIT:
        yield (
            f"The linear fit accounts for only {max(fitted.r2, 0):.0%} of the variance over the masks: "
            "features may interact, or the scores are noisy."
        )
    if fitted.effective_samples < min(_FEW, 0.3 * rows):
        yield (
            f"With the kernel's weights about {fitted.effective_samples:.1f} of {rows} scores count: a"
            " few masks decide the fit. Try kernel='uniform'."
        )


@dataclass(frozen=True)
class Trust:
    """How far to trust an explanation.

    Attributes:
        value: 0 to 1. Where every feature was removed once, or none was, the chance that the first one
            is evidence; where many masks were fitted, how well the weights predict other ablations.
        text: The same in words.
    """

    value: float
    text: str


def judge(scores: Scores, fitted: Attribution) -> Trust:
    """Judge a fit by the scores that it was made from, that of the full prompt first."""
    if not fitted.from_masks:
        return _judge_signals(fitted)
    n = scores.masks.shape[1]
    if never := int(scores.masks.all(0).sum()):
        text = f"{never} of {n} parts were never removed: the ranking is a guess about them."
        return Trust(_BLIND, text)
    logprob = scores.output_logprob
    if np.abs(logprob - logprob[0]).max() < _STILL or not fitted.weights.any():
        return Trust(_BLIND, "No ablation moved the answer: the ranking means nothing.")
    if fitted.signals:
        value = share_trust(float(fitted.normalized_weights.max()))
        return Trust(value, _words(value, _FIRST_IS_EVIDENCE))
    claim = "the weights predict what removing parts does"
    leave_one_out = bool((scores.masks.sum(1) >= n - 1).all())
    if leave_one_out:
        against = fitted.weights[np.argmax(fitted.normalized_weights)] < 0
        claim = f"the first part {'speaks against' if against else 'is evidence for'} the answer"
    value = estimate(indicators(scores, fitted), leave_one_out=leave_one_out)
    return Trust(value, _words(value, claim))


def _judge_signals(fitted: Attribution) -> Trust:
    """Judge weights that no ablation has tested, by the share of the first part alone."""
    if not fitted.weights.any():
        return Trust(_BLIND, "Nothing tells the parts apart: the ranking means nothing.")
    value = share_trust(float(fitted.normalized_weights.max()))
    words = _words(value, _FIRST_IS_EVIDENCE)
    return Trust(value, f"{words} No part was removed to test it.")


def share_trust(first: float) -> float:
    """The chance that the first part is evidence, given its share, where weights are shares."""
    return 1 / (1 + math.exp(-(_SIGNALS_FIRST + _SIGNALS_WEIGHT * math.log(max(first, 1e-9)))))


def indicators(scores: Scores, fitted: Attribution) -> dict[str, float]:
    """What tells good explanations from bad ones without labels.

    Returns:
        ``share``: logarithm of the largest normalised weight. ``drop``: how much less likely the answer
        is without that feature, from -1 to 1; how much more, where the feature speaks against it.
        ``cv_correlation``: rank correlation with leave-one-out predictions; 0 where undefined.
    """
    top = int(np.argmax(fitted.normalized_weights))
    without = ~scores.masks[:, top]
    sign = -1 if fitted.weights[top] < 0 else 1
    lost = sign * (scores.output_logprob[0] - scores.output_logprob[without])
    return {
        "share": math.log(max(float(fitted.normalized_weights[top]), 1e-9)),
        "drop": float(np.tanh(lost.mean())) if without.any() else 0.0,
        "cv_correlation": 0.0 if math.isnan(fitted.cv_correlation) else fitted.cv_correlation,
    }


def estimate(known: Mapping[str, float], *, leave_one_out: bool) -> float:
    """The trust that :func:`indicators` give, with every feature removed once or with many masks."""
    if leave_one_out:
        return 1 / (1 + math.exp(-(_FIRST + _WEIGHT * known["share"] + _DROP * known["drop"])))
    value = _BASE + _LOG_WEIGHT * known["share"] + _CV * known["cv_correlation"]
    return min(1.0, max(0.0, value))


def _words(value: float, claim: str) -> str:
    if value >= 0.85:
        return f"Very likely {claim}."
    if value >= 0.65:
        return f"Probably {claim}."
    if value >= 0.45:
        return f"It is about even whether {claim}. Look at more than the first part."
    return f"It is doubtful whether {claim}. Treat the ranking as a hint only."
