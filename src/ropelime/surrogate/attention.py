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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropelime.surrogate import cpu_attention
from ropelime.surrogate.packing import Chunk
from ropelime.surrogate.tiles import has_tiles
from ropelime.typing import Ints

try:
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    _VARLEN = set(inspect.signature(varlen_attn).parameters)
except ImportError:
    _VARLEN = set()

NAME = "ropelime"
_PRODUCTS = (torch.bfloat16, torch.float32)  # multiplied as well by themselves as inside a fused kernel
_HALF = (torch.bfloat16, torch.float16)  # what the fused kernel takes
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
        one_by_one: Whether some layer could not run all segments in one call.
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
        self.one_by_one = False
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
        half = query.dtype in _HALF
        if usual and same_width and half and query.shape[-1] <= 256 and _has_varlen(query.device):
            return self._varlen(query, pool_k, pool_v, scaling, window, short=short)
        self.one_by_one = True
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
                    made = cpu_attention.fused(q, k, v, scaling, self._slope(q, k))
                else:
                    made = cpu_attention.blocks(q, k, v, scaling)
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

    def _slope(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
        queries, keys = query.shape[2], key.shape[2]
        if queries == keys:  # nothing to look back at
            return None
        if ("slope", queries, keys) not in self._made:
            self._made["slope", queries, keys] = cpu_attention.slope(queries, keys, query.dtype)
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
        """One fused call for all segments, and one more for what groups of them have in common."""
        queries = query[0].transpose(0, 1)
        if short and not len(self.chunk.outputs):
            return torch.zeros_like(queries)[None]
        # A window counts from each token: what is nearer or farther is no longer known in a group.
        share = window is None or window >= max((g.longest for g in self.chunk.groups), default=0)
        name = ("varlen", short, share, query.device)
        if name not in self._made:
            self._made[name] = _cumulative(self.chunk, query.device, short=short, share=share)
        each, jointly, grouped = self._made[name]
        wanted = torch.as_tensor(self.chunk.outputs, device=query.device) if short else slice(None)
        picked = queries[wanted]
        found, sums = _fused(picked, pool_k, pool_v, each, scaling, window, sums=jointly is not None)
        if jointly is not None:
            common, over = _fused(
                picked[grouped], pool_k, pool_v, jointly, scaling, causal=False, sums=True
            )
            found[grouped] = _merged(found[grouped], sums[:, grouped], common, over)
        if not short:
            return found[None]
        out = torch.zeros_like(queries)
        out[wanted] = found
        return out[None]


def _has_varlen(device: torch.device) -> bool:
    """Whether a fused kernel takes rows of many lengths: since torch 2.11, on Ampere and later."""
    if device.type != "cuda" or "window_size" not in _VARLEN:
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def shares_keys(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether groups of rows gather the keys that they have in common only once.

    Not on AMD's cards, whose kernel lays its sums of exponentials out in another way.
    """
    able = "return_aux" in _VARLEN and torch.version.hip is None
    return able and dtype in _HALF and _has_varlen(device)


@dataclass(frozen=True)
class _Ragged:
    """Sequences of many lengths, one behind the other.

    Attributes:
        index: Where in the pool their keys are.
        starts_q: Where the queries of each begin, and where the last ones end.
        starts_k: The same for the keys.
        most_q: The most queries of a sequence.
        most_k: The most keys.
    """

    index: torch.Tensor
    starts_q: torch.Tensor
    starts_k: torch.Tensor
    most_q: int
    most_k: int

    @classmethod
    def of(cls, queries: Sequence[int], keys: Sequence[Ints], device: torch.device) -> _Ragged:
        counts = [np.array([0, *queries]), np.array([0, *(len(k) for k in keys)])]
        starts_q, starts_k = (torch.as_tensor(c.cumsum()).to(device, torch.int32) for c in counts)
        index = torch.as_tensor(np.concatenate(keys)).to(device)
        return cls(index, starts_q, starts_k, int(counts[0].max()), int(counts[1].max()))


def _cumulative(
    chunk: Chunk, device: torch.device, *, short: bool, share: bool
) -> tuple[_Ragged, _Ragged | None, torch.Tensor]:
    """What every segment looks at, perhaps from the tokens that predict only.

    Where groups share keys, what each segment looks at besides those, what each group looks at, and
    which queries are those of groups.
    """
    counts = np.array([s.stop - (s.outputs if short else s.start) for s in chunk.segments])
    starts = np.cumsum([0, *counts])
    besides: dict[int, Ints] = {}
    jointly: list[tuple[int, Ints]] = []
    grouped: list[Ints] = []
    for group in chunk.groups if share else ():
        numbers = range(group.first, group.first + group.count)
        first, last = int(starts[group.first]), int(starts[group.first + group.count])
        if first == last:
            continue
        grouped.append(np.arange(first, last))
        jointly.append((last - first, chunk.segments[group.first].before(group.common)))
        for number in numbers:
            besides[number] = chunk.segments[number].besides(group.common)
    used = [number for number, count in enumerate(counts) if count]
    keys = [besides[n] if n in besides else chunk.segments[n].keys for n in used]
    each = _Ragged.of([int(counts[n]) for n in used], keys, device)
    if not jointly:
        return each, None, each.index[:0]
    common = _Ragged.of([count for count, _ in jointly], [keys for _, keys in jointly], device)
    return each, common, torch.as_tensor(np.concatenate(grouped)).to(device)


def _fused(
    query: torch.Tensor,
    pool_k: torch.Tensor,
    pool_v: torch.Tensor,
    ragged: _Ragged,
    scaling: float | None,
    window: int | None = None,
    *,
    causal: bool = True,
    sums: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, heads, e) and, where asked for, the logarithms of the (heads, q) sums of exponentials."""
    # Newer releases want to be told that there are fewer heads of keys, older ones find out.
    more: dict[str, Any] = {}
    if "enable_gqa" in _VARLEN:
        more["enable_gqa"] = query.shape[1] != pool_k.shape[1]
    if sums:
        more["return_aux"] = AuxRequest(lse=True)
    found: Any = varlen_attn(
        query,
        pool_k[ragged.index],
        pool_v[ragged.index],
        ragged.starts_q,
        ragged.starts_k,
        ragged.most_q,
        ragged.most_k,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0 if causal else -1),
        **more,
    )
    return found if sums else (found, query.new_empty(0))


def _merged(
    one: torch.Tensor, sums: torch.Tensor, other: torch.Tensor, other_sums: torch.Tensor
) -> torch.Tensor:
    """Attention over two sets of keys out of that over each, by the sums of their exponentials."""
    part = torch.sigmoid(sums.float() - other_sums.float()).T[..., None]  # (q, heads, 1)
    return torch.lerp(other.float(), one.float(), part).to(one.dtype)


def _eager(module: Any) -> Callable[..., Any]:
    """The model's own attention, written out: the one that knows all that is unusual about it."""
    own: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward
    return own


_local = threading.local()  # .packed is the chunk that the layers of this thread are working on


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
    """What the layers of a model call: attention over the chunk that this thread is working on."""
    packed: Packed = _local.packed
    out = packed.attend(
        module, query, key, value, scaling=scaling, window=sliding_window, options=options
    )
    return out, None


AttentionInterface.register(NAME, attend)


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
