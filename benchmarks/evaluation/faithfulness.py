"""Faithfulness to the surrogate: does removing highly ranked features change the answer?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropelime.typing import Floats, Masks

HELD_OUT = 64
_DROPS = (1, 3, 5)
_SHARES = (0.1, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Plan:
    """The masks that one ranking is evaluated under.

    Attributes:
        order: (n,) features, by falling weight.
        counts: How many of them are removed (deletion) or kept (insertion).
        masks: (2 * len(counts), n) deletion masks, then insertion masks.
    """

    order: tuple[int, ...]
    counts: tuple[int, ...]
    masks: Masks


def held_out(n: int, rng: np.random.Generator, count: int = HELD_OUT) -> Masks:
    """Distinct masks that keep each feature with probability one half."""
    drawn = rng.random((4 * count, n)) < 0.5
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)][:count]


def plan(scores: Floats) -> Plan:
    """The masks that the top-k drops and both curves of a ranking need."""
    n = len(scores)
    order = np.argsort(-scores, kind="stable")
    counts = sorted({*(k for k in _DROPS if k < n), *(max(1, round(s * n)) for s in _SHARES), n})
    masks = np.ones((len(counts), n), dtype=bool)
    for row, count in enumerate(counts):
        masks[row, order[:count]] = False
    return Plan(tuple(order.tolist()), tuple(counts), np.concatenate([masks, ~masks]))


def follow(curve: Plan, logprob: Floats, full: float, tokens: int) -> dict[str, float | None]:
    """How the log-probability changes as the top features are removed, or inserted.

    Args:
        curve: The masks of the ranking.
        logprob: (2 * len(curve.counts),) log-probability of the output under them, in nats.
        full: The same under the whole prompt.
        tokens: Tokens of the output.

    Returns:
        ``drop1``, ``drop3``, ``drop5``: drop of the log-probability without the top features, None
        where there are no more features than these; ``deletion``: area under the log-probability per
        token as features are removed, lower is better; ``insertion``: the same as they are inserted,
        higher is better.
    """
    steps = len(curve.counts)
    deleted, inserted = logprob[:steps], logprob[steps:]
    fractions = np.array([0, *curve.counts]) / len(curve.order)
    figures: dict[str, float | None] = {
        f"drop{k}": float(full - deleted[curve.counts.index(k)]) if k < len(curve.order) else None
        for k in _DROPS
    }
    figures["deletion"] = float(np.trapezoid(np.append(full, deleted), fractions)) / tokens
    figures["insertion"] = float(np.trapezoid(np.append(deleted[-1], inserted), fractions)) / tokens
    return figures


def spearman(x: Floats, y: Floats) -> float | None:
    """Rank correlation; None where it is undefined."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(x, y).statistic)
