"""The KV cache of shared prefixes: keys and values that later chunks attend to."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from ropelime.surrogate.packing import Chunk


class PrefixCache:
    """Keys, values and hidden states by layer, with one slot for each token of the current prefix."""

    def __init__(self, capacity: int) -> None:
        """Take the number of slots; memory is allocated when something is stored."""
        self._capacity = capacity
        self._stored: dict[Hashable, torch.Tensor] = {}
        self._pending: dict[Hashable, torch.Tensor] = {}

    def pool(self, name: Hashable, chunk: Chunk, new: torch.Tensor) -> torch.Tensor:
        """(slots, ...) what is cached with the (N, ...) of a chunk behind it."""
        if len(chunk.store_from):
            self._pending[name] = new[torch.as_tensor(chunk.store_from, device=new.device)]
        return torch.cat([self._stored[name][: chunk.n_cached], new]) if chunk.n_cached else new

    def commit(self, chunk: Chunk) -> None:
        """Store what later chunks need, once the forward pass of a chunk has succeeded."""
        for name, pending in self._pending.items():
            if name not in self._stored:
                self._stored[name] = pending.new_empty(self._capacity, *pending.shape[1:])
            self._stored[name][torch.as_tensor(chunk.store_to, device=pending.device)] = pending
        self.discard()

    def discard(self) -> None:
        """Forget what a chunk would have stored."""
        self._pending.clear()
