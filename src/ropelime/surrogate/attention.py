"""Attention over a packed chunk: every token sees the path of its own row and nothing else.

Registered with transformers as one more implementation of attention, so that any model that takes its
attention from there runs packed, with its own projections, rotations, norms and experts. Every row's
keys are gathered from the chunk and from the stack of earlier chunks; no mask of a whole chunk is made.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropelime.surrogate.packing import Chunk
from ropelime.surrogate.tiles import has_tiles

try:
    from torch.nn.attention.varlen import varlen_attn

    _VARLEN = set(inspect.signature(varlen_attn).parameters)
except ImportError:
    _VARLEN = set()

NAME = "ropelime"
_BLOCK = 128  # queries at once on the CPU, so that the masked half of the products is hardly computed
_BLOCK_BYTES = 1 << 23  # of products at once: larger pieces of memory are not kept when they are freed
_FUSED_BLOCK = 256  # the same for the fused kernel
_FEWEST = 16  # queries of a block, however many keys there are
_PRODUCTS = (torch.bfloat16, torch.float32)  # multiplied as well by themselves as inside a fused kernel
_UNUSUAL = ("softcap", "s_aux", "position_bias")  # what only the model's own attention knows how to do


class NotPackableError(Exception):
    """The model does something with its attention that a packed chunk cannot give it."""


class Stack:
    """What later chunks look back at, by layer and kind: one place for each token of the path."""

    def __init__(self, capacity: int) -> None:
        """Take the number of places."""
        self._capacity = capacity
        self._held: dict[Hashable, torch.Tensor] = {}
        self._fresh: dict[Hashable, torch.Tensor] = {}

    def pool(self, name: Hashable, chunk: Chunk, new: torch.Tensor) -> torch.Tensor:
        """(places, ...) what is held with the (N, ...) of a chunk behind it."""
        if len(chunk.source):
            self._fresh[name] = new[torch.as_tensor(chunk.source, device=new.device)]
        return torch.cat([self._held[name][: chunk.stacked], new]) if chunk.stacked else new

    def commit(self, chunk: Chunk) -> None:
        """Hold what later chunks need: only now, or a failed run would spoil it."""
        for name, fresh in self._fresh.items():
            if name not in self._held:
                self._held[name] = fresh.new_empty(self._capacity, *fresh.shape[1:])
            self._held[name][torch.as_tensor(chunk.target, device=fresh.device)] = fresh
        self.drop()

    def drop(self) -> None:
        """Forget what a chunk has brought."""
        self._fresh.clear()


class Packed:
    """One chunk on its way through the layers.

    Attributes:
        layers: The layers that have asked for attention.
        pools: The keys of each captured layer, (places, heads, d).
    """

    def __init__(self, chunk: Chunk, stack: Stack, capture: Collection[int], last: int) -> None:
        """Prepare a chunk.

        Args:
            chunk: The chunk.
            stack: Keys and values of earlier chunks.
            capture: The layers whose keys are wanted.
            last: The last layer; behind it only the tokens that predict the output are looked at.
        """
        self.chunk = chunk
        self.layers: set[int] = set()
        self.pools: dict[int, torch.Tensor] = {}
        self._stack, self._capture, self._last = stack, capture, last
        self._made: dict[Any, Any] = {}

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

        In the last layer it is zero where nobody looks at it.
        """
        if options.get("position_bias") is not None:
            raise NotPackableError
        layer = int(module.layer_idx)
        self.layers.add(layer)
        pool_k, pool_v = (  # (places, heads, d)
            self._stack.pool((kind, layer), self.chunk, new[0].transpose(0, 1))
            for kind, new in (("keys", key), ("values", value))
        )
        if layer in self._capture:
            self.pools[layer] = pool_k
        short = layer == self._last
        usual = all(options.get(name) is None for name in _UNUSUAL)
        same_width = query.shape[-1] == value.shape[-1]
        half = query.dtype in (torch.bfloat16, torch.float16)
        if usual and same_width and half and query.shape[-1] <= 256 and _has_varlen(query.device):
            return self._varlen(query, pool_k, pool_v, scaling, window, short=short)
        # Heads first and in order, or every row's gathering would walk all over them.
        pools = [pool.transpose(0, 1).contiguous() for pool in (pool_k, pool_v)]
        out = query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1])
        for number, segment in enumerate(self.chunk.segments):
            first = segment.outputs if short else segment.start
            if first == segment.stop:
                continue
            q = query[:, :, first : segment.stop]
            index = self._index(number, key.device)
            k, v = (pool.index_select(1, index)[None] for pool in pools)
            near = window if window is not None and window < k.shape[2] else None
            if usual and near is None and query.dtype in _PRODUCTS and query.device.type == "cpu":
                if same_width and half and has_tiles():
                    made = _fused(q, k, v, scaling, self._slope(q.shape[2], k.shape[2], q.dtype))
                else:
                    made = _blocks(q, k, v, scaling)
                out[:, first : segment.stop] = made
                continue
            mask = self._mask(number, q.shape[2], near, q.dtype, q.device)
            attention = ALL_ATTENTION_FUNCTIONS["sdpa"] if usual else _eager(module)
            made = attention(module, q, k, v, mask, scaling=scaling, dropout=0.0, **options)[0]
            out[:, first : segment.stop] = made
        return out

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

    def _slope(self, queries: int, keys: int, dtype: torch.dtype) -> torch.Tensor:
        if ("slope", queries, keys) not in self._made:
            self._made["slope", queries, keys] = slope(queries, keys, dtype)
        made: torch.Tensor = self._made["slope", queries, keys]
        return made

    def _varlen(
        self,
        query: torch.Tensor,
        pool_k: torch.Tensor,
        pool_v: torch.Tensor,
        scaling: float | None,
        window: int | None,
        *,
        short: bool,
    ) -> torch.Tensor:
        """One fused call for all segments."""
        queries = query[0].transpose(0, 1)
        out = torch.zeros_like(queries) if short else queries
        if short and not len(self.chunk.outputs):
            return out[None]
        name = ("varlen", short, query.device)
        if name not in self._made:
            self._made[name] = _cumulative(self.chunk, query.device, short=short)
        index, starts_q, starts_k, most_q, most_k = self._made[name]
        wanted = torch.as_tensor(self.chunk.outputs, device=query.device) if short else slice(None)
        # Newer releases want to be told that there are fewer heads of keys, older ones find out.
        fewer: dict[str, Any] = (
            {"enable_gqa": query.shape[1] != pool_k.shape[1]} if "enable_gqa" in _VARLEN else {}
        )
        made = varlen_attn(
            queries[wanted],
            pool_k[index],
            pool_v[index],
            starts_q,
            starts_k,
            most_q,
            most_k,
            scale=scaling,
            window_size=(-1 if window is None else window - 1, 0),
            **fewer,
        )
        if not short:
            return torch.as_tensor(made)[None]
        out[wanted] = torch.as_tensor(made)
        return out[None]


def _has_varlen(device: torch.device) -> bool:
    """Whether a fused kernel takes rows of many lengths: since torch 2.11, on Ampere and later."""
    if device.type != "cuda" or "window_size" not in _VARLEN:
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def _cumulative(
    chunk: Chunk, device: torch.device, *, short: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int]:
    """Where the keys lie and where each segment begins, perhaps of the tokens that predict only."""
    counts = [(s.stop - (s.outputs if short else s.start), s.keys) for s in chunk.segments]
    used = [(count, keys) for count, keys in counts if count]
    queries = torch.tensor([0, *(count for count, _ in used)])
    keys = torch.tensor([0, *(len(keys) for _, keys in used)])
    return (
        torch.cat([torch.as_tensor(keys) for _, keys in used]).to(device),
        queries.cumsum(0).to(device, torch.int32),
        keys.cumsum(0).to(device, torch.int32),
        int(queries.max()),
        int(keys.max()),
    )


def slope(queries: int, keys: int, dtype: torch.dtype) -> torch.Tensor:
    """(block, keys + block) what :func:`_fused` adds to the products of a block of queries.

    Nothing, and at the end minus infinity above the diagonal; a block takes its own part of it.
    """
    step = min(queries, _FUSED_BLOCK)
    made = torch.zeros(step, keys + step, dtype=dtype)
    made[:, keys:].masked_fill_(torch.ones(step, step, dtype=torch.bool).triu_(1), float("-inf"))
    return made


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    hidden: torch.Tensor,
) -> torch.Tensor:
    """Causal attention by torch's fused kernel.

    Args:
        query: (1, heads, q, d), the last q of the keys' tokens.
        key: (1, fewer heads, keys, d).
        value: (1, fewer heads, keys, e).
        scaling: What the products are multiplied by.
        hidden: What is added to them, see :func:`slope`.

    Returns:
        (1, q, heads, e).
    """
    groups, keys = key.shape[1:3]
    heads, count = query.shape[1:3]
    past = keys - count
    # Heads that share their keys as rows of one batch: the keys are repeated without being copied.
    q = query[0].view(groups, -1, *query.shape[2:])
    k, v = (each[0][:, None].expand(-1, heads // groups, -1, -1) for each in (key, value))
    attention = partial(functional.scaled_dot_product_attention, scale=scaling)
    if not past:
        return attention(q, k, v, is_causal=True).flatten(0, 1).transpose(0, 1)[None]
    out = query.new_empty(1, count, heads, value.shape[-1])
    for start in range(0, count, len(hidden)):
        stop = min(count, start + len(hidden))
        rows, seen = stop - start, past + stop
        end = hidden.shape[1] - len(hidden) + rows
        mask = hidden[:rows, end - seen : end]
        made = attention(q[:, :, start:stop], k[:, :, :seen], v[:, :, :seen], mask)
        out[0, start:stop] = made.flatten(0, 1).transpose(0, 1)
    return out


def _blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Causal attention as plain matrix products: on a CPU faster than the fused kernel.

    Args:
        query: (1, heads, q, d), the last q of the keys' tokens.
        key: (1, fewer heads, keys, d).
        value: (1, fewer heads, keys, e).
        scaling: What the products are multiplied by.

    Returns:
        (1, q, heads, e).
    """
    heads, count, width = query.shape[1:]
    groups = key.shape[1]
    past = key.shape[2] - count
    # Heads that share their keys lie side by side, so that they are one product.
    q = query[0].reshape(groups, -1, count, width).transpose(1, 2).contiguous()
    q *= width**-0.5 if scaling is None else scaling
    k, v = key[0].transpose(1, 2), value[0]
    fits = _BLOCK_BYTES // (heads * key.shape[2] * query.dtype.itemsize)
    step = min(count, _BLOCK, max(_FEWEST, fits))
    future = torch.ones(step, step, dtype=torch.bool).triu_(1)[:, None]
    # Two pieces of memory for all blocks: blocks grow, and one would not fit where the last one was.
    pieces = q.new_empty(2, step * heads * key.shape[2])
    out = q.new_empty(count, groups, heads // groups, value.shape[-1])
    for start in range(0, count, step):
        stop = min(count, start + step)
        rows, seen = stop - start, past + stop
        shape = groups, rows * heads // groups, seen
        scores, shares = (piece[: rows * heads * seen].view(shape) for piece in pieces)
        torch.bmm(q[:, start:stop].view(groups, -1, width), k[:, :, :seen], out=scores)
        near = scores.view(groups, rows, -1, seen)[..., past + start :]
        near.masked_fill_(future[:rows, :, :rows], float("-inf"))
        torch.softmax(scores, -1, out=shares)
        made = torch.bmm(shares, v[:, :seen]).view(groups, rows, -1, v.shape[-1])
        out[start:stop] = made.transpose(0, 1)
    return out.view(1, count, heads, -1)


def _eager(module: Any) -> Callable[..., Any]:
    """The model's own attention, written out: the one that knows all that is unusual about it."""
    own: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward
    return own


_local = threading.local()  # .packed is the chunk that the layers of this thread are working on


def _forward(
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
    packed: Packed = _local.packed
    out = packed.attend(
        module, query, key, value, scaling=scaling, window=sliding_window, options=options
    )
    return out, None


AttentionInterface.register(NAME, _forward)


def configs_of(model: Any) -> list[Any]:
    """All that say where a model takes its attention from."""
    return list({id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values())


@contextmanager
def packed_attention(configs: Sequence[Any]) -> Iterator[None]:
    """Let the model of these take its attention from here."""
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation = own


@contextmanager
def running(packed: Packed) -> Iterator[Packed]:
    """Make a chunk the one that the layers work on."""
    _local.packed = packed
    try:
        yield packed
    finally:
        del _local.packed
