"""Distances in rotary space, measured while the model runs: spans are reduced on its device."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ropelime import rope
from ropelime.errors import ModelError
from ropelime.passes import Floats, Masks
from ropelime.rope import RopeSpace
from ropelime.surrogate.rotary import Rotation
from ropelime.surrogate.rows import Row, Sequences


class Space:
    """Distances in one rotary space, row by row; the first row is the unmasked prompt."""

    def __init__(
        self, settings: RopeSpace, rotation: Rotation, sequences: Sequences, features: int
    ) -> None:
        """Start with no distances.

        Args:
            settings: The space.
            rotation: The planes of its layer.
            sequences: The tokens of the prompt.
            features: How many features it has.
        """
        self.settings = settings
        self.rotation = rotation
        self.distance: Floats = np.empty(0)
        self._owner = sequences.owner
        self._features = features
        mass = np.ones(features)
        if settings.mass == "tokens":
            mass = np.bincount(self._owner[self._owner >= 0], minlength=features).astype(float)
        self._mass = mass
        self._base: tuple[torch.Tensor, torch.Tensor] | None = None  # r, theta: (n, D)

    def measure(self, batch: list[Row], a: torch.Tensor, b: torch.Tensor) -> None:
        """Mover's distances of the rows, from the planes (b, q, heads, P) of their tokens."""
        n = self._features
        r, theta, kept = self._spans(batch, a, b)
        if self._base is None:
            self._base = (r[:n], theta[:n])
        for i, row in enumerate(batch):  # what a row looks back at is as it is in the full prompt
            seen = self._owner[: row.shared]
            before = np.unique(seen if row.hidden is None else seen[~row.hidden])
            before = before[before >= 0]
            if len(before):
                kept[i, before] = True
                source = torch.as_tensor(before, device=r.device)
                r[i * n + source] = self._base[0][source]
                theta[i * n + source] = self._base[1][source]
        distances = rope.polar_distances(*self._base, r, theta, self.settings.beta)
        between = distances.view(n, len(batch), n).double().cpu().numpy()
        for i, row in enumerate(batch):
            self.distance[row.index] = rope.rwmd(
                between[:, i, kept[i]], self._mass, self._mass[kept[i]], tight=self.settings.tight
            )

    def _spans(
        self, batch: list[Row], a: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Masks]:
        """Mean magnitude and phase of every feature of every row.

        Returns:
            (rows * n, D) magnitudes, (rows * n, D) phases, and (rows, n) which features have tokens.
        """
        slots = len(batch) * self._features
        inside = [np.flatnonzero(row.owner >= 0) for row in batch]
        which = np.repeat(np.arange(len(batch)), [len(i) for i in inside])
        place = np.concatenate(inside)
        owner = np.concatenate([row.owner[i] for row, i in zip(batch, inside, strict=True)])
        slot = which * self._features + owner
        a, b = a[which, place], b[which, place]  # (tokens, heads, P)
        if self.settings.phase == "relative":
            position = np.concatenate([row.positions[i] for row, i in zip(batch, inside, strict=True)])
            first = np.zeros(slots, dtype=np.int64)
            first[slot[::-1]] = position[::-1]
            back = torch.as_tensor(first[slot], dtype=torch.float32, device=a.device)
            a, b = rope.turn(a, b, -(back[:, None, None] * self.rotation.frequencies))
        a, b = a.flatten(1), b.flatten(1)
        size = torch.hypot(a, b)
        safe = torch.where(size > 0, size, 1.0)
        into = torch.as_tensor(slot, device=a.device)
        zeros = torch.zeros(slots, a.shape[1], device=a.device)
        count = np.bincount(slot, minlength=slots)
        tokens = torch.as_tensor(np.maximum(count, 1), dtype=torch.float32, device=a.device)
        r = zeros.index_add(0, into, size) / tokens[:, None]
        y, x = zeros.index_add(0, into, b / safe), zeros.index_add(0, into, a / safe)
        return r, torch.arctan2(y, x), count.reshape(len(batch), self._features) > 0


@contextmanager
def hidden_states(model: Any, layers: Collection[int]) -> Iterator[dict[int, torch.Tensor]]:
    """Collect what goes into some layers while the model runs."""
    states: dict[int, torch.Tensor] = {}
    if not layers:
        yield states
        return
    count = model.config.get_text_config().num_hidden_layers
    stack = next(
        (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count), None
    )
    if stack is None:
        raise ModelError("The layers of this model were not found. Use embedding='key'.")

    def collector(layer: int) -> Any:
        def take(_: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            states[layer] = arguments[0] if arguments else keywords["hidden_states"]

        return take

    handles = [
        stack[layer].register_forward_pre_hook(collector(layer), with_kwargs=True) for layer in layers
    ]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def hidden_planes(
    hidden: torch.Tensor, rotation: Rotation, positions: np.ndarray[Any, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states (b, q, H), cut into heads and turned as keys are: two of (b, q, heads, P)."""
    width = 2 * len(rotation.frequencies)
    heads = hidden.shape[-1] // width
    cut = hidden[..., : heads * width].float().reshape(*hidden.shape[:-1], heads, width)
    a, b = rope.planes(cut, rotation.pairing)
    places = torch.as_tensor(positions, dtype=torch.float32, device=hidden.device)
    return rope.turn(a, b, places[:, :, None, None] * rotation.frequencies)
