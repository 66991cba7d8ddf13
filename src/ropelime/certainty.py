"""How sure a fit is: an interval for every weight, and how well it foretells unseen readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropelime.passes import Floats, Masks
from ropelime.regression import centred

LEVEL = 0.90
_Z = 1.645  # of a normal distribution, for that level
_SAME = 1e-24  # targets with less than this in squares do not vary: only rounding is left of them
# With as many readings as unknowns nothing is left over to judge by. Single removals were compared with
# fits on many more masks: a weight is off by about half of itself, and by twice the median.
_OWN_PART, _MEDIANS = 0.5, 2.0
_RIDGE = 1e-3  # of the mean variance of a column, so that features that always go together have a width


@dataclass(frozen=True)
class Certainty:
    """How sure a fit is.

    Attributes:
        half: (n,) half the width of the 90 % interval of each weight, in its unit.
        foretold: Rank correlation of each reading with what the fit says about it when it is left out;
            NaN where too few readings are left over, or where they do not vary.
    """

    half: Floats
    foretold: float


def certainty(masks: Masks, targets: Floats, weights: Floats, coef: Floats) -> Certainty:
    """Judge a fit.

    Args:
        masks: (N, n) what was fitted.
        targets: (N,) the values.
        weights: (N,) how much each reading counts.
        coef: (n,) what came out.
    """
    size = np.abs(coef)
    rule = _Z * np.hypot(_MEDIANS * np.median(size), _OWN_PART * size)
    used = weights > 0  # a reading that weighs nothing tells nothing
    masks, targets, weights = masks[used], targets[used], weights[used]
    count, n = masks.shape
    if count <= n + 2:
        return Certainty(rule, float("nan"))
    from scipy.special import stdtrit

    x, y = centred(masks, targets, weights)
    gram = x.T @ x
    inverse = np.linalg.inv(gram + (_RIDGE * np.trace(gram) / n + 1e-12) * np.eye(n))
    seen = np.sum(x @ inverse * x, axis=1) + weights / weights.sum()  # leverage, with the intercept's
    left = y - x @ coef
    freedom = max(1.0, count - 1 - float(np.sum(gram * inverse)))  # the trace of their product
    noise = float(left @ left) / freedom
    # Student's quantile and not the normal one: often few readings are left over to judge by.
    width = float(stdtrit(freedom, (1 + LEVEL) / 2))
    half = width * np.sqrt(noise * np.diag(inverse).clip(0))
    return Certainty(half, _ranks(y, y - left / np.maximum(1 - seen, 0.05)))


def _ranks(values: Floats, foretold: Floats) -> float:
    from scipy.stats import spearmanr

    if values @ values <= _SAME or np.ptp(foretold) == 0:
        return float("nan")
    return float(spearmanr(values, foretold).statistic)
