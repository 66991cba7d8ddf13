"""A key-value cache that shares one prompt over many rows and can hand out the keys of a layer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from transformers import DynamicCache

Layers = dict[int, tuple[torch.Tensor, torch.Tensor]]  # layer -> keys, values: (1, heads, L, d)


class SharedCache(DynamicCache):  # type: ignore[misc]
    """Puts shared keys in front of each row's own, and keeps nothing that nobody asked for.

    Attributes:
        captured: (b, heads, q, d) rotated keys of each captured layer, once the model has run.
        kept: Keys and values of all layers, where ``keep`` was set.
    """

    def __init__(
        self,
        *,
        shared: Layers | None = None,
        length: int = 0,
        capture: Collection[int] = (),
        keep: bool = False,
    ) -> None:
        """Make a cache for one forward pass.

        Args:
            shared: Keys and values of a prompt that every row may look back at.
            length: How many of its positions to use.
            capture: The layers whose keys are wanted.
            keep: Keep the keys and values of all layers.
        """
        super().__init__()
        self._shared = shared or {}
        self._length = length if shared else 0
        self._capture = capture
        self._keep = keep
        self.captured: dict[int, torch.Tensor] = {}
        self.kept: Layers = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by every attention layer with the keys that it has just rotated."""
        if layer_idx in self._capture:
            self.captured[layer_idx] = key_states
        if self._keep:
            self.kept[layer_idx] = (key_states, value_states)
        if not self._length:
            return key_states, value_states
        rows = key_states.shape[0]
        keys, values = (
            t[:, :, : self._length].expand(rows, -1, -1, -1) for t in self._shared[layer_idx]
        )
        return torch.cat([keys, key_states], 2), torch.cat([values, value_states], 2)

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """How many positions lie before the rows' own."""
        return self._length

    def get_query_offset(self, *_: Any, **__: Any) -> int:
        """The same, as newer releases ask for it."""
        return self._length

    def get_mask_sizes(self, query: Any, *_: Any, **__: Any) -> tuple[int, int]:
        """Keys in all, and where they start; ``query`` is a count or the positions themselves."""
        count = query if isinstance(query, int) else int(query.shape[0])
        return self._length + count, 0
