"""What the arena measures, as plain arithmetic: rows can be measured again without any model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.store import Row
from ropelime.typing import Floats

ORACLE = "leave-one-out of the answering model"
SIGNALS = ("shift", "words", "question")  # of preset="evidence"
_CLIP = (-0.5, 1.5)
NO_EFFECT = 1e-6  # nats


def lost(drop: Floats | float, effect: float) -> Floats:
    """The part of a prompt's effect that a drop of the log-probability is; 0 where it has no effect."""
    if abs(effect) <= NO_EFFECT:
        return np.zeros(np.shape(drop))
    return np.clip(np.asarray(drop) / effect, *_CLIP)


def lost_without(row: Row) -> Floats:
    """(n,) the part of the prompt's effect that was lost without each part."""
    return lost(np.array(row["rankings"][ORACLE]["weights"]), row["full"] - row["none"])


def ranked(weights: Floats, rng: np.random.Generator) -> Sequence[int]:
    """The parts by falling weight, ties in random order."""
    return [int(i) for i in np.lexsort((rng.random(len(weights)), -weights))]
