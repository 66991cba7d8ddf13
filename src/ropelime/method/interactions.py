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


def candidates(weights: Floats, most: int) -> Masks:
    """At most ``most`` masks: the features that weigh most removed one by one, then in all pairs."""
    n = len(weights)
    top = min(_TOP, n)
    while top > 2 and top + top * (top - 1) // 2 > most:
        top -= 1
    features = np.argsort(-np.abs(weights), kind="stable")[:top].tolist()
    removed = [*((i,) for i in features), *combinations(features, 2)]
    masks = np.ones((len(removed), n), dtype=bool)
    for mask, some in zip(masks, removed, strict=True):
        mask[list(some)] = False
    return masks


def interactions(scores: Scores) -> tuple[Interaction, ...]:
    """The interactions above the noise, the largest first.

    They are those of the :func:`candidates` that were scored after the full prompt.
    """
    drop = scores.output_logprob[0] - scores.output_logprob
    removed = ~scores.masks
    alone = {int(row.argmax()): lost for row, lost in zip(removed, drop, strict=True) if row.sum() == 1}
    real = [
        Interaction(a, b, float(both - alone[a] - alone[b]))
        for (a, b), both in zip(combinations(alone, 2), drop[1 + len(alone) :], strict=True)
    ]
    return tuple(sorted((i for i in real if abs(i.effect) >= _REAL), key=lambda i: -abs(i.effect)))
