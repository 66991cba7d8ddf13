"""Interactions: pairs of features whose effects do not add up."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ropelime.method.scores import Scores
from ropelime.typing import Floats, Masks

_TOP = 8  # features whose pairs are scored
# Nats. Fewer than one in a hundred pairs of unrelated features differ by so much.
_REAL = 1.0


@dataclass(frozen=True)
class Interaction:
    """Two features whose effects do not add up.

    Attributes:
        first: One of the features.
        second: The other.
        effect: Drop of the log-probability without both, minus the drops without each, in nats.
            Negative: they only work together, and without one the other has no effect. Positive: they
            are redundant, and the answer suffers only without both.
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
    """Masks that show interactions: a few features removed one by one, and in all pairs."""

    features: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    masks: Masks


def candidates(weights: Floats, most: int) -> Candidates:
    """The features that weigh most, and their pairs.

    Args:
        weights: (n,) of a fit.
        most: The most masks that may be scored.
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


def interactions(wanted: Candidates, scores: Scores) -> tuple[Interaction, ...]:
    """The interactions above the noise, the largest first.

    Args:
        wanted: The masks.
        scores: Their scores, that of the full prompt first.
    """
    logprob = scores.output_logprob
    drop = logprob[0] - logprob[1:]
    alone = dict(zip(wanted.features, drop, strict=False))
    effects = drop[len(wanted.features) :]
    real = [
        Interaction(a, b, float(both - alone[a] - alone[b]))
        for (a, b), both in zip(wanted.pairs, effects, strict=True)
    ]
    return tuple(sorted((i for i in real if abs(i.effect) >= _REAL), key=lambda i: -abs(i.effect)))
