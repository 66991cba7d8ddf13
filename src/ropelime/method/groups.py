"""Long answers and many features: groups are removed before members, and share what they move.

Leave-one-out runs the answer once for every feature. Where that is too much, only the features whose
words promise most are removed one by one. The others lie in a grid: each is removed once with its
neighbours in the text, and once with features from all over it. Where a row and a column of the grid
both move the answer, the feature at their crossing is the likely cause. :func:`divided` finds the
contributions that add up to what every group moved, as near as possible to those that attention has.
"""

from __future__ import annotations

import math

import numpy as np

from ropelime.typing import Floats, Ints, Masks

_ROUNDS = 20  # of scaling all groups in turn
_EVEN = 0.1  # part of the prior that is the same for all features


def grid(order: Ints, count: int) -> Masks:
    """At most ``count`` masks (if there are so many) that remove features one by one or in groups.

    Args:
        order: (n,) the features, those that promise most first.
        count: How many masks there may be.
    """
    n = len(order)
    if count >= n:
        return ~np.eye(n, dtype=bool)
    # As many alone as leave room for a grid of the others; a third if there is none.
    alone = next((a for a in range(count, -1, -1) if a + _sides(n - a) <= count), count // 3)
    rest = np.sort(order[alone:])
    left = count - alone
    rows = math.isqrt(len(rest)) + 1 if _sides(len(rest)) <= left else left
    columns = left - rows
    number = np.arange(len(rest))
    row = number * rows // len(rest)
    groups = [order[i : i + 1] for i in range(alone)]
    groups += [rest[row == r] for r in range(rows)]
    groups += [rest[number % columns == c] for c in range(columns)]
    masks = np.ones((len(groups), n), dtype=bool)
    for mask, group in zip(masks, groups, strict=True):
        mask[group] = False
    return np.unique(masks[[len(g) > 0 for g in groups]], axis=0)[::-1]


def _sides(members: int) -> int:
    """Rows and columns of the smallest grid of so many features."""
    rows = math.isqrt(members) + 1
    return rows + math.ceil(members / rows)


def has_groups(masks: Masks) -> bool:
    """Whether some feature is never removed by itself."""
    alone = ~masks[masks.sum(1) == masks.shape[1] - 1]
    return not bool(alone.any(0).all())


def divided(masks: Masks, values: Floats, prior: Floats) -> Floats:
    """(n,) or (n, T) contributions, at least 0, whose sums over removed features come near the values.

    Every group is scaled to its value in turn, many times (iterative proportional fitting): of all
    contributions with these sums that gives those nearest to the prior. A feature that was removed by
    itself has its own value.

    Args:
        masks: (N, n) which features were kept.
        values: (N,) or (N, T) at least 0.
        prior: (n,) shares of the features, for what the sums leave open.
    """
    n = masks.shape[1]
    columns = values.reshape(len(masks), -1)
    start = (1 - _EVEN) * prior / max(float(prior.sum()), 1e-300) + _EVEN / n
    found = np.repeat(start[:, None], columns.shape[1], axis=1)
    removed = [np.flatnonzero(~mask) for mask in masks]
    alone = [(int(i[0]), row) for row, i in enumerate(removed) if len(i) == 1]
    single = np.array([i for i, _ in alone], dtype=np.int64)
    groups = [(i, row) for row, i in enumerate(removed) if 1 < len(i) < n]
    for _ in range(_ROUNDS):
        for group, row in groups:
            found[group] *= columns[row] / np.maximum(found[group].sum(0), 1e-300)
        found[single] = columns[[row for _, row in alone]]
    found[masks.all(0)] = 0.0  # never removed: nothing is known
    return np.asarray(found.reshape(n, *values.shape[1:]))
