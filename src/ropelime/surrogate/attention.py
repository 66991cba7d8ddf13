"""Attention over a packed chunk: every token attends to its own sequence and to nothing else.

Registered with transformers as one more attention implementation, so that any model that takes its
attention from there runs packed, with its own projections, rotations, norms and experts. The keys of
every segment are gathered from the chunk and from the KV cache of earlier chunks; no attention mask
over a whole chunk is made.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropelime.surrogate import cpu_attention, varlen
from ropelime.surrogate.kv_cache import PrefixCache
from ropelime.surrogate.packing import Chunk
from ropelime.surrogate.tiles import has_tiles
from ropelime.surrogate.varlen import VarlenPlan

NAME = "ropelime"
_PRODUCTS = (torch.bfloat16, torch.float32)  # multiplied as well by themselves as inside a fused kernel
_UNUSUAL = ("softcap", "s_aux", "position_bias")  # what only the model's own attention supports


class NotPackableError(Exception):
    """The model does something with its attention that a packed chunk does not support."""


class PackedChunk:
    """One chunk on its way through the layers.

    Attributes:
        layers: The layers that have computed attention.
        captured: The keys of each captured layer, (slots, heads, d).
        one_by_one: Whether some layer could not run all segments in one call.
    """

    def __init__(self, chunk: Chunk, cache: PrefixCache, capture: Collection[int], last: int) -> None:
        """Prepare a chunk.

        Args:
            chunk: The chunk.
            cache: Keys and values of earlier chunks.
            capture: The layers whose keys are wanted.
            last: The last layer; behind it only the tokens that predict the output are needed.
        """
        self.chunk = chunk
        self.layers: set[int] = set()
        self.captured: dict[int, torch.Tensor] = {}
        self.one_by_one = False
        self._cache, self._capture, self._last = cache, capture, last
        self._made: dict[Hashable, Any] = {}  # indices and masks, the same in all layers

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,
        options: dict[str, Any],
    ) -> torch.Tensor:
        """(1, N, heads, e) from (1, heads, N, d) queries, (1, fewer heads, N, d) keys and e-values.

        In the last layer it is zero for tokens that predict no output.
        """
        if options.get("position_bias") is not None:
            raise NotPackableError
        layer = int(module.layer_idx)
        self.layers.add(layer)
        keys, values = (  # (slots, heads, d)
            self._cache.pool((kind, layer), self.chunk, new[0].transpose(0, 1))
            for kind, new in (("keys", key), ("values", value))
        )
        if layer in self._capture:
            self.captured[layer] = keys
        outputs_only = layer == self._last
        if _suits_varlen(query, value, options) and varlen.has_varlen(query.device):
            return self._all_at_once(query, keys, values, scaling, window, outputs_only=outputs_only)
        self.one_by_one = True
        # Heads first and in order, or every segment's gathering would walk all over them.
        pools = [pool.transpose(0, 1).contiguous() for pool in (keys, values)]
        out = query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1])
        for number, segment in enumerate(self.chunk.segments):
            first = segment.outputs if outputs_only else segment.start
            if first < segment.stop:
                q = query[:, :, first : segment.stop]
                index = self._index(number, key.device)
                k, v = (pool.index_select(1, index)[None] for pool in pools)
                out[:, first : segment.stop] = self._segment(
                    module, number, q, k, v, scaling=scaling, window=window, options=options
                )
        return out

    def _segment(
        self,
        module: Any,
        number: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,
        options: dict[str, Any],
    ) -> torch.Tensor:
        """(1, q, heads, e) of one segment."""
        usual = all(options.get(name) is None for name in _UNUSUAL)
        near = window if window is not None and window < k.shape[2] else None
        if usual and near is None and q.dtype in _PRODUCTS and q.device.type == "cpu":
            if q.shape[-1] == v.shape[-1] and q.dtype in varlen.HALF and has_tiles():
                return cpu_attention.fused(q, k, v, scaling, self._slope(q, k))
            return cpu_attention.blocks(q, k, v, scaling)
        mask = self._mask(number, q.shape[2], near, q.dtype, q.device)
        attention = ALL_ATTENTION_FUNCTIONS["sdpa"] if usual else _eager(module)
        made: torch.Tensor
        made, _ = attention(module, q, k, v, mask, scaling=scaling, dropout=0.0, **options)
        return made

    def _all_at_once(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float | None,
        window: int | None,
        *,
        outputs_only: bool,
    ) -> torch.Tensor:
        """One fused call for all segments, and one more for what groups of them have in common."""
        queries = query[0].transpose(0, 1)
        if outputs_only and not len(self.chunk.outputs):
            return torch.zeros_like(queries)[None]
        # A window counts back from each token, and a group does not know where its tokens are.
        longest = max((group.longest for group in self.chunk.groups), default=0)
        cascade = window is None or window >= longest
        name = ("varlen", outputs_only, cascade, query.device)
        if name not in self._made:
            self._made[name] = VarlenPlan.of(
                self.chunk, query.device, outputs_only=outputs_only, cascade=cascade
            )
        plan: VarlenPlan = self._made[name]
        if not outputs_only:
            return plan.run(queries, keys, values, scaling, window)[None]
        wanted = torch.as_tensor(self.chunk.outputs, device=query.device)
        out = torch.zeros_like(queries)
        out[wanted] = plan.run(queries[wanted], keys, values, scaling, window)
        return out[None]

    def _index(self, number: int, device: torch.device) -> torch.Tensor:
        if ("index", number, device) not in self._made:
            keys = self.chunk.segments[number].keys
            self._made["index", number, device] = torch.as_tensor(keys, device=device)
        index: torch.Tensor = self._made["index", number, device]
        return index

    def _mask(
        self, number: int, queries: int, window: int | None, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """(1, 1, q, keys) additive mask for the last so many tokens of a segment."""
        keys = len(self.chunk.segments[number].keys)
        name = ("mask", number, queries, window, device)
        if name not in self._made:
            at = torch.arange(keys - queries, keys, device=device)[:, None]
            to = torch.arange(keys, device=device)
            visible = to <= at
            if window is not None:
                visible &= to > at - window
            mask = torch.zeros(visible.shape, dtype=dtype, device=device)
            self._made[name] = mask.masked_fill_(~visible, torch.finfo(dtype).min)[None, None]
        made: torch.Tensor = self._made[name]
        return made

    def _slope(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
        queries, keys = query.shape[2], key.shape[2]
        if queries == keys:  # there is no prefix
            return None
        if ("slope", queries, keys) not in self._made:
            self._made["slope", queries, keys] = cpu_attention.slope(queries, keys, query.dtype)
        made: torch.Tensor = self._made["slope", queries, keys]
        return made


def _suits_varlen(query: torch.Tensor, value: torch.Tensor, options: dict[str, Any]) -> bool:
    """Whether the fused kernel supports this attention."""
    usual = all(options.get(name) is None for name in _UNUSUAL)
    same_width = query.shape[-1] == value.shape[-1] <= 256
    return usual and same_width and query.dtype in varlen.HALF


def _eager(module: Any) -> Callable[..., Any]:
    """The model's own eager attention, which supports everything unusual about it."""
    own: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward
    return own


_local = threading.local()  # .packed is the chunk that the layers of this thread work on


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The function that layers call: attention over the chunk that this thread works on."""
    packed: PackedChunk = _local.packed
    out = packed.attend(
        module, query, key, value, scaling=scaling, window=sliding_window, options=options
    )
    return out, None


AttentionInterface.register(NAME, attend)


def configs_of(model: Any) -> list[Any]:
    """The configs that say which attention implementation a model uses."""
    return list({id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values())


@contextmanager
def packed_attention(configs: Sequence[Any]) -> Iterator[None]:
    """Let the model of these configs use packed attention."""
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation = own


@contextmanager
def running(packed: PackedChunk) -> Iterator[PackedChunk]:
    """Make a chunk the one that the layers work on."""
    _local.packed = packed
    try:
        yield packed
    finally:
        del _local.packed
