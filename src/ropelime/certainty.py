"""How sure a fit is: an interval for every weight, and how well it foretells unseen readings."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from ropelime.passes import Floats, Masks
from ropelime.regression import centred

LEVEL = 0.90
_Z = 1.645  # of a normal distribution, for that level
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
            NaN where there are no more readings than unknowns.
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
    count, n = masks.shape
    if count <= n + 2:
        return Certainty(rule, float("nan"))
    x, y = centred(masks, targets, weights)
    gram = x.T @ x
    inverse = np.linalg.inv(gram + _RIDGE * np.trace(gram) / n * np.eye(n) + 1e-12 * np.eye(n))
    seen = np.einsum("ij,jk,ik->i", x, inverse, x)  # leverage
    left = y - x @ coef
    freedom = max(1.0, count - 1 - float(np.trace(gram @ inverse)))
    noise = float(left @ left) / freedom
    half = _Z * np.sqrt(noise * np.diag(inverse).clip(0))
    return Certainty(half, _ranks(y, y - left / np.maximum(1 - seen - 1 / count, 0.05)))


def _ranks(a: Floats, b: Floats) -> float:
    from scipy.stats import spearmanr

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(spearmanr(a, b).statistic)
