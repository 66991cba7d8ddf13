"""A prompt that is longer than the window: what was read closely, and the shares of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropelime.method.attribution import Attribution
from ropelime.method.interactions import Interaction
from ropelime.method.scores import Scores
from ropelime.typing import Floats, Ints

READ = "read"  # where the config of an explanation says what was read closely
_MOST = 0.99  # of all shares: something is left for what was read closely


@dataclass(frozen=True)
class CloseReading:
    """The features that were read closely, and what a first look says of the others.

    Attributes:
        features: (k,) which features were read closely, in their order.
        others: (n,) the shares of the others, zero for those that were read closely. Their sum is the
            estimated probability that something was overlooked.
        half_width: (n,) half the width of the 90 % interval of each of these shares.
    """

    features: Ints
    others: Floats
    half_width: Floats

    @classmethod
    def of(cls, features: Ints, shares: Floats, half_width: Floats) -> CloseReading:
        """Take the shares of all features in a first look."""
        others = shares.copy()
        others[features] = 0.0
        return cls(features, others * min(1.0, _MOST / max(others.sum(), _MOST)), half_width)

    @classmethod
    def recorded(
        cls, config: Mapping[str, Any], shares: Floats, intervals: Floats | None
    ) -> CloseReading:
        """That of an explanation, from its config, normalised weights and intervals."""
        total = float(shares.sum())
        half = np.zeros(len(shares)) if intervals is None else np.ptp(intervals, axis=1) / 2
        found = cls.of(np.array(config[READ]["features"], dtype=np.int64), shares, half)
        return found if total > 0 else replace(found, others=np.zeros(len(shares)))

    @property
    def overlooked(self) -> float:
        """The estimated probability that something was overlooked."""
        return float(self.others.sum())

    def spread(self, close: Floats, others: Floats | None = None) -> Floats:
        """(n, ...) out of (k, ...) values of what was read closely; zeros for the others by default."""
        found = np.zeros((len(self.others), *close.shape[1:])) if others is None else others.copy()
        found[self.features] = close
        return found

    def weights(self, close: Floats, *, shares: bool) -> Floats:
        """(n,) weights on one scale: shares sum to one, and others are compared by their magnitude."""
        left = 1.0 - self.overlooked
        if shares:
            return self.spread(close * left, self.others)
        return self.spread(close, self.others * float(np.abs(close).sum()) / left)

    def ends(self, close: Floats | None, weights: Floats, *, shares: bool) -> Floats | None:
        """(n, 2) intervals of those weights, out of the (k, 2) of what was read closely."""
        if close is None:
            return None
        half = self.half_width if shares else np.abs(weights)  # all that is known is its size
        others = np.stack([weights - half, weights + half], 1)
        near = close * (1.0 - self.overlooked) if shares else close
        return self.spread(near, np.clip(others, 0.0, 1.0) if shares else others)

    def attribution(self, close: Attribution) -> Attribution:
        """The attribution over all features."""
        shares, left = bool(close.signals), 1.0 - self.overlooked
        weights = self.weights(close.weights, shares=shares)
        half = self.half_width if shares else np.abs(weights)
        return replace(
            close,
            weights=weights,
            normalized_weights=self.weights(close.normalized_weights, shares=True),
            token_weights=self.spread(close.token_weights),
            half_width=self.spread(close.half_width * (left if shares else 1.0), half),
            signals={name: self.weights(each, shares=True) for name, each in close.signals.items()},
        )

    def scores(self, close: Scores) -> Scores:
        """Scores over all features; the others are in no masked prompt, and removed by no mask."""
        masks = np.ones((len(close.masks), len(self.others)), dtype=bool)
        masks[:, self.features] = close.masks
        attention = close.attention
        wide = None if attention is None else self.spread(attention.T).T
        return replace(close, masks=masks, attention=wide)

    def narrowed(self, scores: Scores) -> Scores:
        """The scores over what was read closely."""
        attention = scores.attention
        near = None if attention is None else attention[:, self.features]
        return replace(scores, masks=scores.masks[:, self.features], attention=near)

    def pairs(self, close: tuple[Interaction, ...]) -> tuple[Interaction, ...]:
        """Interactions with the numbers of features among all."""
        at = self.features.tolist()
        return tuple(replace(each, first=at[each.first], second=at[each.second]) for each in close)
