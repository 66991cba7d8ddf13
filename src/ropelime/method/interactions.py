"""Pairs of features that do together what neither does alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ropelime.method.scores import Floats, Masks, Scores

_TOP = 8  # features whose pairs are read
# Nats. Of pairs of unrelated features fewer than one in a hundred differs by so much.
_REAL = 1.0


@dataclass(frozen=True)
class Interaction:
    """Two features that do not simply add up.

    Attributes:
        first: One of the features.
        second: The other.
        effect: What removing both costs the answer beyond what removing each costs, in nats. Below
            zero they only work together: without one, the other is of no use. Above zero either does:
            only without both the answer suffers.
    """

    first: int
    second: int
    effect: float

    @property
    def kind(self) -> str:
        """``"together"`` or ``"either"``."""
        return "together" if self.effect < 0 else "either"


@dataclass(frozen=True)
class Candidates:
    """Masks that show interactions: single removals of a few features, and all pairs of them."""

    features: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    masks: Masks


def candidates(weights: Floats, most: int) -> Candidates:
    """The features that weigh most, and their pairs.

    Args:
        weights: (n,) of a fit.
        most: The most masks that may be read.
    """
    n = len(weights)
    top = min(_TOP, n)
    while top > 2 and top + top * (top - 1) // 2 > most:
        top -= 1
    features = tuple(int(i) for i in np.argsort(-np.abs(weights), kind="stable")[:top])
    pairs = tuple(combinations(features, 2))
    masks = np.ones((len(features) + len(pairs), n), dtype=bool)
    for row, removed in enumerate([*((i,) for i in features), *pairs]):
        masks[row, list(removed)] = False
    return Candidates(features, pairs, masks)


def found(wanted: Candidates, scores: Scores) -> tuple[Interaction, ...]:
    """The interactions that are real, the largest first.

    Args:
        wanted: The masks.
        scores: Their readings, the unmasked prompt first.
    """
    drop = scores.output_logprob[0] - scores.output_logprob[1:]
    alone = dict(zip(wanted.features, drop, strict=False))
    effects = drop[len(wanted.features) :]
    real = [
        Interaction(a, b, float(both - alone[a] - alone[b]))
        for (a, b), both in zip(wanted.pairs, effects, strict=True)
    ]
    return tuple(sorted((i for i in real if abs(i.effect) >= _REAL), key=lambda i: -abs(i.effect)))
