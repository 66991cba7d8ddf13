"""Uncertainty of a fit: an interval for every weight, and how well it predicts held-out scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ropelime.method.regression import centred
from ropelime.typing import Floats, Masks

LEVEL = 0.90
_Z = 1.645  # of a normal distribution, for that level
_SAME = 1e-24  # targets with less than this in squares do not vary: only rounding is left
# With as many scores as unknowns there are no residuals. Leave-one-out weights were compared with fits
# on many more masks: a weight is off by about a quarter of itself, and by the median where there are
# so many features that most do nothing. Of few, the one in the middle matters itself: there it is off
# by a fifth of the root mean square.
_OWN_PART, _MEDIANS, _OF_FEW, _MANY = 0.25, 0.9, 0.2, 20
# A weight from cached scores differs from that of exact ones by about so many times the root mean
# square of all weights, and by CACHED nats however small they are. With cached scores as a control
# variate, so many standard deviations cover the level.
_PRIOR, _CONTROLLED = 0.4, 2.0
CACHED = 0.2
# Masks that remove one or two features say little about those that remove more. Of few features, what
# holds without residuals is added in part, until there are so many scores for each unknown.
_ENOUGH, _REMOVED = 5, 2
_TOO_FEW = 4  # exact scores, that of the full prompt among them
_OWN = 1e-9  # one minus the leverage of a score that determines its own prediction
_RIDGE = 1e-3  # of the mean variance of a column, so that features that always go together have a width


@dataclass(frozen=True)
class Uncertainty:
    """How certain a fit is."""

    half_width: Floats  # (n,) half the width of the 90 % interval of each weight, in its unit
    # Rank correlation of the scores with leave-one-out predictions of the fit; NaN where too few scores
    # are left over, or where they do not vary.
    cv_correlation: float


def estimate_uncertainty(
    masks: Masks,
    targets: Floats,
    weights: Floats,
    coef: Floats,
    exact: Masks | None = None,
    *,
    control_variate: bool = False,
    shrinks: bool = False,
    least: float = 0.0,
) -> Uncertainty:
    """Estimate how certain a fit of (N,) targets on (N, n) masks is, from its (n,) coefficients.

    ``exact`` (N,) says which scores are exact, all of them by default, and ``control_variate`` whether
    the others served as a control variate for them. A fit that ``shrinks`` coefficients to zero leaves
    residuals however few scores there are. ``least`` is the standard deviation, in the unit of the
    targets, of what cached scores are off by at least.
    """
    size, n = np.abs(coef), len(coef)
    typical = float(np.sqrt((coef**2).mean()))
    prior = float(np.hypot(_PRIOR * typical, least))
    exact = np.ones(len(masks), dtype=bool) if exact is None else exact
    used = weights > 0  # a score of weight zero carries no information
    if control_variate:
        some = used & exact
        if some.sum() < _TOO_FEW:  # no residuals: only the prior is known
            return Uncertainty(np.full(n, _CONTROLLED * prior), float("nan"))
        return _spread(masks[some], targets[some], weights[some], coef, prior)
    masks, targets, weights = masks[used], targets[used], weights[used]
    few = len(masks) <= n + 2
    many = min(1.0, n / _MANY)
    noise = np.hypot(many * _MEDIANS * np.median(size), (1 - many) * _OF_FEW * typical)
    without_residuals = _Z * np.hypot(noise, _OWN_PART * size)
    if few and (not shrinks or not typical or (masks.sum(1) >= n - 1).all()):
        return Uncertainty(without_residuals, float("nan"))
    sure = _spread(masks, targets, weights, coef, typical if few else 0.0)
    if exact.all():
        if (masks.sum(1) < max(n - _REMOVED, 1)).any():
            return sure
        lacking = np.clip((_ENOUGH * n - len(masks)) / ((_ENOUGH - 1) * n), 0.0, 1.0) * (1 - many)
        half_width = np.hypot(sure.half_width, lacking * without_residuals)
        return Uncertainty(half_width, sure.cv_correlation)
    return Uncertainty(np.hypot(sure.half_width, _Z * prior), sure.cv_correlation)


def _spread(
    masks: Masks, targets: Floats, weights: Floats, coef: Floats, doubt: float = 0.0
) -> Uncertainty:
    """From the residuals; ``doubt`` is the standard deviation of a normal prior, if there is one."""
    from scipy.special import stdtrit

    count, n = masks.shape
    x, y = centred(masks, targets, weights)
    residuals = y - x @ coef
    gram = x.T @ x
    noise = float(residuals @ residuals) / max(1, count - 1)
    known = noise / doubt**2 if doubt else _RIDGE * float(np.trace(gram)) / n
    inverse = np.linalg.inv(gram + (known + 1e-12) * np.eye(n))
    leverage = np.sum(x @ inverse * x, axis=1) + weights / weights.sum()  # with the intercept's
    freedom = max(1.0, count - 1 - float(np.sum(gram * inverse)))  # the trace of their product
    root = np.sqrt(weights)
    values, left_out = y / root, (y - residuals / np.maximum(1 - leverage, 0.05)) / root
    varies = values @ values > _SAME
    cv_correlation = rank_correlation(values, left_out) if varies else float("nan")
    if doubt:
        noise = float(residuals @ residuals) / freedom
        return Uncertainty(_CONTROLLED * np.sqrt(noise * np.diag(inverse).clip(0)), cv_correlation)
    # A kernel's weights express locality, not precision: all scores are taken to be equally noisy, and
    # that noise is propagated through the weighted fit (a sandwich estimate).
    even = weights / weights.mean()
    spread = inverse @ ((x * even[:, None]).T @ x + known * np.eye(n)) @ inverse * weights.mean()
    # The noise is estimated without the ridge: scores of leverage near one determine their own
    # prediction, and with the ridge their residuals would be too large.
    sharp = np.linalg.inv(gram + 1e-10 * float(np.trace(gram)) / n * np.eye(n))
    own = np.sum(x @ sharp * x, axis=1) + weights / weights.sum()
    even = np.where(1 - own > _OWN, even, 0.0)
    expected = float(even @ (1 - own))  # of the squared residuals, for unit noise
    if expected > 0:
        noise = float(residuals[even > 0] @ residuals[even > 0]) / weights.mean() / expected
        product = sharp @ ((x * even[:, None]).T @ x)
        one = x.T @ (even * root) / np.sqrt(weights.sum())
        alike = float(even**2 @ (1 - 2 * own) + np.sum(product * product.T) + 2 * one @ sharp @ one)
        alike += float(even @ weights / weights.sum()) ** 2
        freedom = max(1.0, expected**2 / alike) if alike > 0 else freedom
    # Student's t and not the normal quantile: often there are few degrees of freedom.
    width = float(stdtrit(freedom, (1 + LEVEL) / 2))
    return Uncertainty(width * np.sqrt(noise * np.diag(spread).clip(0)), cv_correlation)


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation; NaN for fewer than two pairs or a constant series."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    from scipy.stats import spearmanr  # a slow import that most commands do not need

    return float(spearmanr(x, y).statistic)
