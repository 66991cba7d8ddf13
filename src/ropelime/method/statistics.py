"""Statistics that several stages share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def rank_correlation(a: ArrayLike, b: ArrayLike, *, least: int = 2) -> float:
    """Spearman's rank correlation of two series.

    Args:
        a: (N,) values.
        b: (N,) values in the same order.
        least: The smallest N for which the correlation is computed.

    Returns:
        From -1 to 1; NaN where it is undefined: fewer than ``least`` pairs, or a constant series.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(x) < max(least, 2) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    from scipy.stats import spearmanr  # a slow import that most commands do not need

    return float(spearmanr(x, y).statistic)
