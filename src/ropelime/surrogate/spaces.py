"""Distances in rotary space, measured while the model runs: spans are reduced on its device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ropelime.method import rope
from ropelime.method.rope import RopeSpace
from ropelime.surrogate.rotary import Rotation
from ropelime.surrogate.sequences import Row, Sequences
from ropelime.typing import Floats, Ints, Masks

_DISTANCES_AT_ONCE = 1 << 24


class Space:
    """Distances in one rotary space, row by row; the first row is the unmasked prompt."""

    def __init__(
        self, settings: RopeSpace, rotation: Rotation, sequences: Sequences, shape: tuple[int, ...]
    ) -> None:
        """Start with no distances.

        Args:
            settings: The space.
            rotation: The planes of its layer.
            sequences: The tokens of the prompt.
            shape: (N, n), how many masks and features there are.
        """
        self.settings = settings
        self.rotation = rotation
        count, features = shape
        self.distance: Floats = np.full(count, np.nan)
        self._features = features
        mass = np.ones(features)
        if settings.mass == "tokens":
            mass = np.bincount(sequences.owner[sequences.owner >= 0], minlength=features).astype(float)
        self._mass = mass
        self._base: tuple[torch.Tensor, torch.Tensor] | None = None  # r, theta: (n, D)
        self._within: Floats | None = None  # (n, n) between the features of the full prompt

    def measure(self, rows: list[Row], a: torch.Tensor, b: torch.Tensor) -> None:
        """Mover's distances of whole rows.

        Args:
            rows: The rows; the unmasked prompt must be the first of the first call.
            a: (tokens, heads, P) first coordinate in each plane, all rows' tokens one behind the other.
            b: The second coordinate.
        """
        at = 0
        for group in self._groups(rows):
            tokens = sum(row.length for row in group)
            self._measure(group, a[at : at + tokens], b[at : at + tokens])
            at += tokens

    def _groups(self, rows: list[Row]) -> Iterator[list[Row]]:
        """As many rows at a time as bound the matrix of distances."""
        group: list[Row] = []
        slots = 0
        for row in rows:
            # No fewer than the features that are left of it: one whose tokens lie apart counts again.
            more = 1 + int(np.count_nonzero(np.diff(row.owner)))
            if group and (slots + more) * self._features > _DISTANCES_AT_ONCE:
                yield group
                group, slots = [], 0
            group.append(row)
            slots += more
        yield group

    def _measure(self, rows: list[Row], a: torch.Tensor, b: torch.Tensor) -> None:
        which, owner, r, theta = self._spans(rows, a, b)
        if self._base is None:
            whole = torch.as_tensor(which == 0, device=r.device)
            self._base = (r[whole], theta[whole])
        between = self._distances(r, theta)
        edges = np.searchsorted(which, np.arange(len(rows) + 1))
        for row, (start, stop) in zip(rows, pairwise(edges), strict=True):
            mine = slice(start, stop)
            self.distance[row.index] = rope.rwmd(
                between[:, mine], self._mass, self._mass[owner[mine]], tight=self.settings.tight
            )

    def look_back(self, row: Row, mask: Masks) -> None:
        """Mover's distance of a row that sees what a mask keeps as it is in the full prompt.

        What is kept has not moved, in either direction; what is gone goes to the nearest that is kept.
        """
        if self._within is None:
            assert self._base is not None
            self._within = self._distances(*self._base)
        if not mask.any():
            return
        gone = np.flatnonzero(~mask)
        nearest = self._within[np.ix_(gone, np.flatnonzero(mask))].min(1)
        self.distance[row.index] = float(nearest @ self._mass[gone]) / float(self._mass.sum())

    def _distances(self, r: torch.Tensor, theta: torch.Tensor) -> Floats:
        assert self._base is not None
        between = rope.polar_distances(*self._base, r, theta, self.settings.beta)
        return np.asarray(between.double().cpu().numpy())

    def _spans(
        self, rows: list[Row], a: torch.Tensor, b: torch.Tensor
    ) -> tuple[Ints, Ints, torch.Tensor, torch.Tensor]:
        """Mean magnitude and phase of every feature that is left in every row.

        Returns:
            (s,) the number of the row, (s,) the feature, (s, D) magnitudes and (s, D) phases.
        """
        inside = [np.flatnonzero(row.owner >= 0) for row in rows]
        starts = np.cumsum([0, *(row.length for row in rows)])
        token = np.concatenate([i + at for i, at in zip(inside, starts, strict=False)])
        which = np.repeat(np.arange(len(rows)), [len(i) for i in inside])
        owner = np.concatenate([row.owner[i] for row, i in zip(rows, inside, strict=True)])
        found, first, slot = np.unique(
            which * self._features + owner, return_index=True, return_inverse=True
        )
        at = torch.as_tensor(token, device=a.device)
        a, b = a[at], b[at]
        if self.settings.phase == "relative":
            position = np.concatenate([row.positions[i] for row, i in zip(rows, inside, strict=True)])
            back = torch.as_tensor(position[first[slot]], dtype=torch.float32, device=a.device)
            a, b = rope.turn(a, b, -(back[:, None, None] * self.rotation.frequencies.to(a.device)))
        a, b = a.flatten(1), b.flatten(1)
        size = torch.hypot(a, b)
        safe = torch.where(size > 0, size, 1.0)
        into = torch.as_tensor(slot.reshape(-1), device=a.device)
        zeros = torch.zeros(len(found), a.shape[1], device=a.device)
        tokens = torch.as_tensor(np.bincount(slot.reshape(-1)), dtype=torch.float32, device=a.device)
        r = zeros.index_add(0, into, size) / tokens[:, None]
        y, x = zeros.index_add(0, into, b / safe), zeros.index_add(0, into, a / safe)
        return found // self._features, found % self._features, r, torch.arctan2(y, x)


def hidden_planes(
    hidden: torch.Tensor, rotation: Rotation, positions: np.ndarray[Any, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states (tokens, H), cut into heads and turned as keys are: two of (tokens, heads, P)."""
    width = 2 * len(rotation.frequencies)
    heads = hidden.shape[-1] // width
    cut = hidden[..., : heads * width].float().reshape(*hidden.shape[:-1], heads, width)
    a, b = rope.planes(cut, rotation.pairing)
    places = torch.as_tensor(positions, dtype=torch.float32, device=hidden.device)
    # What goes into a layer may still be on the device of the one before it.
    return rope.turn(a, b, places[:, None, None] * rotation.frequencies.to(hidden.device))
