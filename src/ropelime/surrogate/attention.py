"""Attention over a packed chunk: every token attends to its own sequence and to nothing else.

Registered with transformers as one more attention implementation, so that any model that takes its
attention from there runs packed, with its own projections, rotations, norms and experts. The keys of
every segment are gathered from the chunk and from the KV cache of earlier chunks; no attention mask
over a whole chunk is made.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropelime.surrogate.packing import Chunk, Segment
from ropelime.surrogate.varlen import PARAMETERS, VarlenPlan
from ropelime.typing import Masks

NAME = "ropelime"
HALF = (torch.bfloat16, torch.float16)  # the dtypes that the fused kernel takes
_PRODUCTS = (torch.bfloat16, torch.float32)  # the dtypes that a CPU multiplies fast
_QUERIES = 128  # of a block on a CPU, so that few of the products are masked
UNUSUAL = ("softcap", "s_aux", "position_bias")  # what only the model's own attention supports


def has_varlen(device: torch.device) -> bool:
    """Whether a fused kernel takes sequences of many lengths: since torch 2.11, on Ampere and later."""
    if device.type != "cuda" or "window_size" not in PARAMETERS:
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def has_cascade(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether groups of sequences can gather the keys that they have in common only once.

    Not on AMD's cards, whose kernel lays its sums of exponentials out in another way.
    """
    able = "return_aux" in PARAMETERS and torch.version.hip is None
    return able and dtype in HALF and has_varlen(device)


class NotPackableError(Exception):
    """The model does something with its attention that a packed chunk does not support."""


class PrefixCache:
    """The KV cache of shared prefixes, with one slot for each token of the current prefix."""

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


class WatchedAttention:
    """The attention that the output of one full prompt pays to the features, by some of the heads.

    Attributes:
        masses: (heads, T, n) how much of its attention each output token pays to each feature.
        complete: Whether every head has been seen at every output token.
    """

    def __init__(self, heads: Sequence[tuple[int, int]], owner: Sequence[int], tokens: int) -> None:
        """Watch an output.

        Args:
            heads: The layer and the number of each head.
            owner: The feature of each token of the prompt, -1 for pinned ones.
            tokens: How many tokens the output has.
        """
        self._rows: dict[int, list[int]] = {}
        for row, (layer, _) in enumerate(heads):
            self._rows.setdefault(layer, []).append(row)
        self._heads, self._owner = heads, torch.as_tensor(owner)
        features = int(self._owner.max()) + 1
        self.masses = torch.full((len(heads), tokens, features), torch.nan)

    @property
    def complete(self) -> bool:
        """As above."""
        return not bool(self.masses.isnan().any())

    def take(
        self, layer: int, tokens: Sequence[int], query: torch.Tensor, keys: torch.Tensor, window: Any
    ) -> None:
        """Look at one layer.

        Args:
            layer: Its number.
            tokens: The output tokens that are predicted, counted from the end.
            query: (heads, q, d) queries of those that predict them, scaled.
            keys: (heads, k, d) keys of the sequence, in its order.
            window: (q, k) additive mask.
        """
        rows = self._rows.get(layer)
        if rows is None:
            return
        heads = torch.as_tensor([self._heads[row][1] for row in rows], device=query.device)
        shared = heads // (query.shape[0] // keys.shape[0])  # heads that share their keys
        scores = query[heads].float() @ keys[shared].float().transpose(1, 2) + window
        paid = scores.softmax(-1)[:, :, : len(self._owner)]
        owner = self._owner.to(paid.device) + 1
        masses = paid.new_zeros(*paid.shape[:2], self.masses.shape[2] + 1)
        masses.index_add_(2, owner[: paid.shape[2]], paid)
        at = self.masses.shape[1] + torch.as_tensor(tokens)
        self.masses[torch.as_tensor(rows)[:, None], at] = masses[:, :, 1:].cpu()


class PackedChunk:
    """One chunk on its way through the layers.

    Attributes:
        layers: The layers that have computed attention.
        captured: The keys of each captured layer, (slots, heads, d).
        one_by_one: Whether some layer could not run all segments in one call.
        windowed: Whether some layer has asked for a window.
    """

    def __init__(
        self,
        chunk: Chunk,
        cache: PrefixCache,
        capture: Collection[int],
        watched: Mapping[int, WatchedAttention],
    ) -> None:
        """Take a chunk.

        Args:
            chunk: The chunk.
            cache: The keys and values of earlier ones.
            capture: The layers whose keys are wanted.
            watched: The masks whose attention is watched; nothing may be removed in them.
        """
        self.chunk = chunk
        self.layers: set[int] = set()
        self.captured: dict[int, torch.Tensor] = {}
        self.one_by_one = self.windowed = False
        self._cache, self._capture = cache, capture
        self._made: dict[Hashable, Any] = {}  # indices, masks and plans, the same in all layers
        self._watched = [
            (watch, number, chunk.outputs[of], chunk.scored[of, 1])
            for mask, watch in watched.items()
            for number, segment in enumerate(chunk.segments)
            if (of := _outputs_in(chunk, segment, mask, watch.masses.shape[1])).any()
        ]

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
        """(1, N, heads, e) from (1, heads, N, d) queries, (1, fewer heads, N, d) keys and e-values."""
        if options.get("position_bias") is not None:
            raise NotPackableError
        layer = int(module.layer_idx)
        self.layers.add(layer)
        self.windowed |= window is not None
        keys, values = (  # (slots, heads, d)
            self._cache.pool((kind, layer), self.chunk, new[0].transpose(0, 1))
            for kind, new in (("keys", key), ("values", value))
        )
        if layer in self._capture:
            self.captured[layer] = keys
        usual = all(options.get(name) is None for name in UNUSUAL)
        if usual:
            self._watch(layer, query, keys, scaling, window)
        same_width = query.shape[-1] == value.shape[-1] <= 256
        if usual and same_width and query.dtype in HALF and has_varlen(query.device):
            plan = self._varlen_plan(window, query.device)
            return plan.run(query[0].transpose(0, 1), keys, values, scaling, window)[None]
        self.one_by_one = True
        # Heads first and in order, or every segment's gathering would walk all over them.
        pools = [pool.transpose(0, 1).contiguous() for pool in (keys, values)]
        out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])
        for number, segment in enumerate(self.chunk.segments):
            q = query[:, :, segment.start : segment.stop]
            index = self._index(number, key.device)
            k, v = (pool.index_select(1, index)[None] for pool in pools)
            near = window if window is not None and window < k.shape[2] else None
            if usual and near is None and q.dtype in _PRODUCTS and q.device.type == "cpu":
                found = causal_attention(q, k, v, scaling)
            else:
                mask = self._mask(number, near, q)
                attention = ALL_ATTENTION_FUNCTIONS["sdpa"] if usual else eager(module)
                found, _ = attention(module, q, k, v, mask, scaling=scaling, dropout=0.0, **options)
            out[:, segment.start : segment.stop] = found
        return out

    def _watch(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        scaling: float | None,
        window: int | None,
    ) -> None:
        """Look at the attention of the watched outputs in one layer."""
        for watch, number, rows, tokens in self._watched:
            segment = self.chunk.segments[number]
            own = keys[self._index(number, keys.device)].transpose(0, 1)
            near = window if window is not None and window < own.shape[1] else None
            mask = self._mask(number, near, query[:, :, segment.start : segment.stop])[0, 0]
            scale = query.shape[-1] ** -0.5 if scaling is None else scaling
            inside = torch.as_tensor(rows - segment.start, device=mask.device)
            mine = query[0][:, torch.as_tensor(rows, device=query.device)] * scale
            watch.take(layer, tokens.tolist(), mine, own, mask[inside].float())

    def _varlen_plan(self, window: int | None, device: torch.device) -> VarlenPlan:
        """The fused calls of this chunk: one for all segments, and one for what groups share."""
        # A window counts back from each token, and a group does not know where its tokens are.
        longest = max((group.longest for group in self.chunk.groups), default=0)
        cascade = window is None or window >= longest
        name = ("varlen", cascade, device)
        if name not in self._made:
            self._made[name] = VarlenPlan.of(self.chunk, device, cascade=cascade)
        plan: VarlenPlan = self._made[name]
        return plan

    def _index(self, number: int, device: torch.device) -> torch.Tensor:
        """The slots that a segment attends to."""
        name = ("index", number, device)
        if name not in self._made:
            self._made[name] = torch.as_tensor(self.chunk.segments[number].keys, device=device)
        index: torch.Tensor = self._made[name]
        return index

    def _mask(self, number: int, window: int | None, query: torch.Tensor) -> torch.Tensor:
        """(1, 1, q, keys) additive mask for the tokens of a segment."""
        name = ("mask", number, window, query.device)
        if name not in self._made:
            keys = len(self.chunk.segments[number].keys)
            self._made[name] = causal_mask(keys - query.shape[2], keys, keys, window, query)
        made: torch.Tensor = self._made[name]
        return made


def _outputs_in(chunk: Chunk, segment: Segment, mask: int, tokens: int) -> Masks:
    """(K,) which of the scored positions of a chunk are of a segment, of a mask, and of its output."""
    inside = (chunk.outputs >= segment.start) & (chunk.outputs < segment.stop)
    output = chunk.scored[:, 1] >= -tokens  # and not of the question
    return np.asarray(inside & output & (chunk.scored[:, 0] == mask))


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Attention of the last tokens of a sequence on a CPU, as plain matrix products.

    Faster there than torch's fused kernel, which needs a mask where there are more keys than queries,
    and then computes all masked products.

    Args:
        query: (1, heads, q, d), of the last q of the keys' tokens.
        key: (1, fewer heads, keys, d).
        value: (1, fewer heads, keys, e).
        scaling: What the products are multiplied by; 1 / √d if None.

    Returns:
        (1, q, heads, e).
    """
    heads, count, width = query.shape[1:]
    groups, past = key.shape[1], key.shape[2] - count
    scale = width**-0.5 if scaling is None else scaling
    q = (query[0] * scale).view(groups, -1, count, width)  # heads that share their keys are neighbours
    k, v = key[0].transpose(1, 2), value[0]
    future = q.new_full((_QUERIES, _QUERIES), -torch.inf).triu_(1)
    blocks = []
    for start in range(0, count, _QUERIES):
        part = q[:, :, start : start + _QUERIES]
        rows = part.shape[2]
        seen = past + start + rows
        scores = part.flatten(1, 2) @ k[:, :, :seen]  # (groups, heads of a group x rows, seen)
        own = scores.view(groups, -1, rows, seen)[..., seen - rows :]
        own += future[:rows, :rows]
        blocks.append((scores.softmax(-1) @ v[:, :seen]).view(heads, rows, -1))
    return torch.cat(blocks, 1).transpose(0, 1)[None]


def causal_mask(
    start: int, stop: int, keys: int, window: int | None, query: torch.Tensor
) -> torch.Tensor:
    """(1, 1, stop - start, keys) additive mask: no token sees a later one, or beyond the window."""
    at = torch.arange(start, stop, device=query.device)[:, None]
    to = torch.arange(keys, device=query.device)
    visible = to <= at
    if window is not None:
        visible &= to > at - window
    mask = torch.zeros(visible.shape, dtype=query.dtype, device=query.device)
    return mask.masked_fill_(~visible, torch.finfo(mask.dtype).min)[None, None]


def eager(module: Any) -> Callable[..., Any]:
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
def running(packed: PackedChunk) -> Iterator[None]:
    """Make a chunk the one that the layers work on."""
    _local.packed = packed
    try:
        yield
    finally:
        del _local.packed
