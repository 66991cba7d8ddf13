"""A long prompt in one window: how near scoring comes to the machine's own matrix rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.hardware import Hardware, Size, packed
from benchmarks.shapes import random_scorer
from benchmarks.store import Row
from ropelime.method.groups import grid
from ropelime.surrogate.local import LocalSurrogate

_FEATURE = 32  # tokens of a feature
_MASKS = 64


@dataclass(frozen=True)
class Filled:
    """A prompt of so many tokens."""

    size: int

    @property
    def id(self) -> str:
        """Its name."""
        return f"{self.size} tokens"


def scoring(surrogate: LocalSurrogate, seed: int) -> Callable[[Filled], Row]:
    """What scores a prompt under masks of groups, with its KV cache and attention.

    Args:
        surrogate: The model, of any weights.
        seed: Seed of the prompts.
    """
    hardware, size = Hardware(surrogate), Size.of(surrogate.model)

    def make(item: Filled) -> Row:
        features = max(2, item.size // _FEATURE)
        scorer = random_scorer(surrogate, features=features, tokens=_FEATURE, seed=seed)
        ends = np.repeat([[True], [False]], features, axis=1)
        masks = np.concatenate([ends, grid(np.arange(features), _MASKS)])

        def score() -> None:
            scorer.score(masks, kl=True, cached=True, attention=True)

        score()  # which imports and compiles what is needed
        rate, took = hardware.rate(), hardware.measure(score)
        packing = packed(scorer, masks, cached=True)
        outputs = len(scorer.tokenized.output_ids) * len(masks)
        work = size.work(packing.tokens, packing.pairs, outputs)
        return {
            "kind": "window",
            "size": item.size,
            "features": features,
            "masks": len(masks),
            "scored": packing.tokens,
            "operations": work,
            "rate": rate,
            "part": round(work / took.seconds / rate, 4),
            "seconds": round(took.seconds, 4),
            "memory": took.memory,
        }

    return make
