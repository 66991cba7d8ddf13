"""One number for how far to trust an explanation, and a sentence that says what it means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ropelime.method.attribution import Attribution
from ropelime.method.scores import Scores
from ropelime.method.uncertainty import rank_correlation

# Fitted on HotpotQA with the embedded model: whether the first part is one that a person cited, against
# the logarithm of its normalised weight and how much less likely the answer is without it
# (docs/reading.md).
_FIRST, _WEIGHT, _DROP = 2.92, 1.30, 1.15
# Fitted there too: the rank correlation with held-out scores, against that with left-out ones.
_BASE, _LOG_WEIGHT, _CV = 0.55, 0.12, 0.40
_BLIND = 0.1  # where there is nothing to go by
_STILL = 1e-3  # nats: less is rounding


@dataclass(frozen=True)
class Trust:
    """How far to trust an explanation.

    Attributes:
        value: 0 to 1. Where every feature was removed once, the chance that the first one is evidence;
            where many masks were fitted, how well the weights predict other ablations.
        text: The same in words.
    """

    value: float
    text: str


def judge(scores: Scores, fitted: Attribution) -> Trust:
    """Judge an explanation by what is known without labels.

    Args:
        scores: The scores that were fitted, that of the full prompt first.
        fitted: Their fit.
    """
    n = scores.masks.shape[1]
    never = int(scores.masks.all(0).sum())
    if never:
        text = f"{never} of {n} parts were never removed: the ranking is a guess about them."
        return Trust(_BLIND, text)
    logprob = scores.output_logprob
    if np.abs(logprob - logprob[0]).max() < _STILL or not fitted.weights.any():
        return Trust(_BLIND, "No ablation moved the answer: the ranking means nothing.")
    leave_one_out = bool((scores.masks.sum(1) >= n - 1).all())
    value = estimate(indicators(scores, fitted), leave_one_out=leave_one_out)
    against = float(fitted.weights[int(np.argmax(fitted.normalized_weights))]) < 0
    first = f"the first part {'speaks against' if against else 'is evidence for'} the answer"
    whole = "the weights predict what removing parts does"
    return Trust(value, _words(value, first if leave_one_out else whole))


def estimate(known: Mapping[str, float], *, leave_one_out: bool) -> float:
    """The number, out of the indicators.

    Args:
        known: What :func:`indicators` gives.
        leave_one_out: Whether every mask removes one feature.
    """
    if leave_one_out:
        return 1 / (1 + math.exp(-(_FIRST + _WEIGHT * known["share"] + _DROP * known["drop"])))
    value = _BASE + _LOG_WEIGHT * known["share"] + _CV * known["cv_correlation"]
    return min(1.0, max(0.0, value))


def indicators(scores: Scores, fitted: Attribution) -> dict[str, float]:
    """What tells good explanations from bad ones without labels.

    Args:
        scores: The scores that were fitted, that of the full prompt first.
        fitted: Their fit.

    Returns:
        ``share``: logarithm of the largest normalised weight. ``drop``: how much less likely the answer
        is without that feature, from -1 to 1; how much more, where the feature speaks against it.
        ``cv_correlation``: rank correlation with leave-one-out predictions; 0 where undefined.
        ``surprise``: mean log-probability of the answer's tokens. ``width``: mean width of the
        intervals against the largest weight. ``agreement``: rank correlation of exact and cached scores
        of the same masks; 0 where there are none.
    """
    top = int(np.argmax(fitted.normalized_weights))
    without = ~scores.masks[:, top]
    lost = (scores.output_logprob[0] - scores.output_logprob[without]) * (
        -1 if fitted.weights[top] < 0 else 1
    )
    largest = float(np.abs(fitted.weights).max())
    return {
        "share": math.log(max(float(fitted.normalized_weights[top]), 1e-9)),
        "drop": float(np.tanh(lost.mean())) if without.any() else 0.0,
        "cv_correlation": 0.0 if math.isnan(fitted.cv_correlation) else fitted.cv_correlation,
        "surprise": float(scores.logprob[0].mean()),
        "width": float(fitted.half_width.mean()) / largest if largest > 0 else 1.0,
        "agreement": _agreement(scores),
    }


def _agreement(scores: Scores) -> float:
    """Rank correlation of the answer's log-probability, scored both ways."""
    output_logprob = scores.logprob.sum(1)
    exact = {
        m.tobytes(): v for m, v, e in zip(scores.masks, output_logprob, scores.exact, strict=True) if e
    }
    both = [
        (v, exact[m.tobytes()])
        for m, v, e in zip(scores.masks, output_logprob, scores.exact, strict=True)
        if not e and m.tobytes() in exact
    ]
    if len(both) < 3:
        return 0.0
    return float(np.nan_to_num(rank_correlation(*zip(*both, strict=True))))


def _words(value: float, claim: str) -> str:
    if value >= 0.85:
        return f"Very likely {claim}."
    if value >= 0.65:
        return f"Probably {claim}."
    if value >= 0.45:
        return f"It is about even whether {claim}. Look at more than the first part."
    return f"It is doubtful whether {claim}. Treat the ranking as a hint only."
