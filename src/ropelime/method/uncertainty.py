"""How sure a fit is: an interval for every weight, and how well it foretells unseen readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropelime.method.regression import centred
from ropelime.method.scores import Floats, Masks

LEVEL = 0.90
_Z = 1.645  # of a normal distribution, for that level
_SAME = 1e-24  # targets with less than this in squares do not vary: only rounding is left of them
# With as many readings as unknowns nothing is left over to judge by. Single removals were compared with
# fits on many more masks: a weight is off by about half of itself, and by twice the median.
_OWN_PART, _MEDIANS = 0.5, 2.0
# A weight from cheap readings differs from that of exact ones by about so many times the root mean
# square of all weights. Where few exact ones lean on them, so many standard deviations cover 90 %.
_DOUBT, _LEANING = 0.5, 2.0
_TOO_FEW = 4  # exact readings, that of the unmasked prompt among them
_OWN = 1e-9  # of its own value a reading leaves less than this to the others
_RIDGE = 1e-3  # of the mean variance of a column, so that features that always go together have a width


@dataclass(frozen=True)
class Uncertainty:
    """How sure a fit is.

    Attributes:
        half: (n,) half the width of the 90 % interval of each weight, in its unit.
        cv_correlation: Rank correlation of the scores with leave-one-out predictions of the fit; NaN
            where too few scores are left over, or where they do not vary.
    """

    half: Floats
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
) -> Uncertainty:
    """Judge a fit.

    Args:
        masks: (N, n) what was fitted.
        targets: (N,) the values.
        weights: (N,) how much each reading counts.
        coef: (n,) what came out.
        exact: (N,) which readings are exact; all of them if not given.
        control_variate: Whether the exact ones were fitted leaning on the others.
        shrinks: Whether the fit draws weights to zero, so that it leaves something over however few
            readings there are.
    """
    size, n = np.abs(coef), len(coef)
    typical = float(np.sqrt((coef**2).mean()))
    exact = np.ones(len(masks), dtype=bool) if exact is None else exact
    used = weights > 0  # a reading that weighs nothing tells nothing
    if control_variate:
        some = used & exact
        if some.sum() < _TOO_FEW:  # they leave nothing over: only what was known before them is known
            return Uncertainty(np.full(n, _LEANING * _DOUBT * typical), float("nan"))
        return _spread(masks[some], targets[some], weights[some], coef, _DOUBT * typical)
    masks, targets, weights = masks[used], targets[used], weights[used]
    if len(masks) <= n + 2:
        if not shrinks or not typical or (masks.sum(1) >= n - 1).all():
            rule = _Z * np.hypot(_MEDIANS * np.median(size), _OWN_PART * size)
            return Uncertainty(rule, float("nan"))
        return _spread(masks, targets, weights, coef, typical)
    sure = _spread(masks, targets, weights, coef)
    if exact.all():
        return sure
    return Uncertainty(np.hypot(sure.half, _Z * _DOUBT * typical), sure.cv_correlation)


def _spread(
    masks: Masks, targets: Floats, weights: Floats, coef: Floats, doubt: float = 0.0
) -> Uncertainty:
    """By what the fit leaves over, and by what was known before it: weights to within ``doubt``."""
    from scipy.special import stdtrit

    count, n = masks.shape
    x, y = centred(masks, targets, weights)
    left = y - x @ coef
    gram = x.T @ x
    noise = float(left @ left) / max(1, count - 1)
    known = noise / doubt**2 if doubt else _RIDGE * float(np.trace(gram)) / n
    inverse = np.linalg.inv(gram + (known + 1e-12) * np.eye(n))
    seen = np.sum(x @ inverse * x, axis=1) + weights / weights.sum()  # leverage, with the intercept's
    freedom = max(1.0, count - 1 - float(np.sum(gram * inverse)))  # the trace of their product
    root = np.sqrt(weights)
    cv_correlation = _ranks(y / root, (y - left / np.maximum(1 - seen, 0.05)) / root)
    if doubt:
        noise = float(left @ left) / freedom
        return Uncertainty(_LEANING * np.sqrt(noise * np.diag(inverse).clip(0)), cv_correlation)
    # A kernel's weights say which readings matter and not how exact they are: all are taken to be
    # equally noisy, and what the weights make of that noise goes through the whole fit.
    even = weights / weights.mean()
    spread = inverse @ ((x * even[:, None]).T @ x + known * np.eye(n)) @ inverse * weights.mean()
    # What is left over is judged by the fit without the ridge: where single readings decide their own
    # value nearly by themselves, that leaves less than the ridge would.
    sharp = np.linalg.inv(gram + 1e-10 * float(np.trace(gram)) / n * np.eye(n))
    own = np.sum(x @ sharp * x, axis=1) + weights / weights.sum()
    even = np.where(1 - own > _OWN, even, 0.0)
    expected = float(even @ (1 - own))  # of the squares left over, for a noise of one
    if expected > 0:
        noise = float(left[even > 0] @ left[even > 0]) / weights.mean() / expected
        product = sharp @ ((x * even[:, None]).T @ x)
        one = x.T @ (even * root) / np.sqrt(weights.sum())
        alike = float(even**2 @ (1 - 2 * own) + np.sum(product * product.T) + 2 * one @ sharp @ one)
        alike += float(even @ weights / weights.sum()) ** 2
        freedom = max(1.0, expected**2 / alike) if alike > 0 else freedom
    # Student's quantile and not the normal one: often few readings are left over to judge by.
    width = float(stdtrit(freedom, (1 + LEVEL) / 2))
    return Uncertainty(width * np.sqrt(noise * np.diag(spread).clip(0)), cv_correlation)


def _ranks(values: Floats, cv_correlation: Floats) -> float:
    from scipy.stats import spearmanr

    if values @ values <= _SAME or np.ptp(cv_correlation) == 0:
        return float("nan")
    return float(spearmanr(values, cv_correlation).statistic)
