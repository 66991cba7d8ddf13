"""What the surrogate read: one row for each masked prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropelime.rope import RopeSpace

Masks = npt.NDArray[np.bool_]  # (N, n), True = the feature is kept
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Passes:
    """The readings of N masks over n features and T output tokens.

    Attributes:
        masks: (N, n) which features were kept; the first row is the unmasked prompt.
        logprob: (N, T) log-probability of each output token, in nats.
        kl: (N, T) divergence from the unmasked prediction at each output position, in nats; None
            where the surrogate gives only the probabilities of the output.
        distances: (N,) mover's distance for each rotary space that was read; NaN where nothing is kept.
        tokens: (N,) length of each masked prompt with the output.
        scored: Tokens that the surrogate really ran, after shared work was done once.
        seconds: Time that this took.
        note: What the reader of the result should know about the reading; empty where nothing is.
    """

    masks: Masks
    logprob: Floats
    kl: Floats | None
    distances: Mapping[RopeSpace, Floats]
    tokens: Ints
    scored: int
    seconds: float
    note: str = ""

    def select(self, rows: Sequence[int] | Ints | Masks) -> Passes:
        """The same readings for some of the rows only."""
        return Passes(
            self.masks[rows],
            self.logprob[rows],
            None if self.kl is None else self.kl[rows],
            {space: distance[rows] for space, distance in self.distances.items()},
            self.tokens[rows],
            self.scored,
            self.seconds,
            self.note,
        )

    def columns(self, start: int, end: int) -> Passes:
        """The same readings for the output tokens ``start`` to ``end`` only."""
        return Passes(
            self.masks,
            self.logprob[:, start:end],
            None if self.kl is None else self.kl[:, start:end],
            self.distances,
            self.tokens,
            self.scored,
            self.seconds,
            self.note,
        )
