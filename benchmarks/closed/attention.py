"""The attention that the last tokens of a sequence pay to all tokens, layer by layer.

Registered with transformers as one more attention implementation: the model's own projections and
rotations, fused attention for the input of the next layer, and the model's own eager attention for the
rows that are asked for. Only those rows are ever in memory, so long prompts fit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropelime.errors import ModelError
from ropelime.surrogate.attention import UNUSUAL, causal_mask, configs_of, eager
from ropelime.surrogate.engine import logits_only_at
from ropelime.surrogate.local import LocalSurrogate
from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.typing import Floats, Ints

NAME = "ropelime-rows"
_ROWS = 512  # of eager attention at once

OnLayer = Callable[[int, torch.Tensor], None]


@dataclass(frozen=True)
class _Reading:
    """What a forward pass reads: this many of the last rows, handed on layer by layer."""

    rows: int
    take: OnLayer


_local = threading.local()  # .reading is that of the forward pass of this thread


def readable(surrogate: LocalSurrogate, length: int) -> bool:
    """Whether the attention of a model can be read over so many tokens."""
    return surrogate.engine.packs(length)


def read(surrogate: LocalSurrogate, ids: Ints, rows: int, take: OnLayer) -> None:
    """Run a sequence once and read its attention.

    Args:
        surrogate: The model.
        ids: (N,) the tokens.
        rows: How many of the last tokens are read.
        take: Called with the number of each layer and its (heads, rows, N) attention, which sums to one
            over the tokens.
    """
    model = surrogate.model
    if not readable(surrogate, len(ids)):
        raise ModelError(
            f"{surrogate.name} does not take its attention from transformers' AttentionInterface over "
            f"{len(ids):,} tokens, so its heads cannot be read. Choose another surrogate."
        )
    last = np.array([len(ids) - 1])
    with surrogate.lock, torch.inference_mode(), _implementation(model), logits_only_at(model, last):
        _local.reading = _Reading(rows, take)
        try:
            model(input_ids=torch.as_tensor(ids, device=surrogate.device)[None], use_cache=False)
        finally:
            del _local.reading


def of_parts(surrogate: LocalSurrogate, tokenized: TokenizedPrompt) -> Floats:
    """(layers, heads, n) attention from the answer to each part of the whole prompt.

    Summed over the tokens of the part, averaged over the tokens that predict the answer.
    """
    n = tokenized.n_features
    sequence = tokenized.sequence(0, np.ones(n, dtype=bool))
    owner = torch.as_tensor(sequence.owner + 1, device=surrogate.device)
    found: dict[int, torch.Tensor] = {}

    def take(layer: int, attention: torch.Tensor) -> None:
        mean = attention.float().mean(1)  # (heads, N)
        parts = mean.new_zeros(len(mean), n + 1).index_add_(1, owner.to(mean.device), mean)
        found[layer] = parts[:, 1:].cpu()

    read(surrogate, sequence.ids, sequence.n_outputs, take)
    return np.stack([found[layer].double().numpy() for layer in sorted(found)])


def of_tokens(surrogate: LocalSurrogate, sequence: TokenSequence) -> Floats:
    """(N,) attention from the tokens that predict the answer, averaged over them, layers and heads."""
    found: list[torch.Tensor] = []

    def take(layer: int, attention: torch.Tensor) -> None:
        found.append(attention.float().mean((0, 1)).cpu())

    read(surrogate, sequence.ids, sequence.n_outputs, take)
    return np.asarray(torch.stack(found).double().mean(0).numpy())


def _attend(
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
    """The function that layers call, with (1, heads, N, d) queries and (1, fewer heads, N, d) keys."""
    reading: _Reading = _local.reading
    count = key.shape[2]
    window = sliding_window if sliding_window is not None and sliding_window < count else None

    def attend(start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        mask = causal_mask(start, stop, count, window, query)
        found, attention = eager(module)(
            module, query[:, :, start:stop], key, value, mask, scaling=scaling, dropout=0.0, **options
        )
        return found, attention

    reading.take(int(module.layer_idx), attend(count - reading.rows, count)[1][0])
    if all(options.get(name) is None for name in UNUSUAL):
        mask = None if window is None else causal_mask(0, count, count, window, query)
        sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
        out, _ = sdpa(module, query, key, value, mask, scaling=scaling, dropout=0.0, **options)
        return out, None
    blocks = [attend(start, min(start + _ROWS, count))[0] for start in range(0, count, _ROWS)]
    return torch.cat(blocks, 1), None


AttentionInterface.register(NAME, _attend)


@contextmanager
def _implementation(model: Any) -> Iterator[None]:
    """Let a model use this attention."""
    configs = configs_of(model)
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation = own
