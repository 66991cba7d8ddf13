"""Causal attention of one row on a CPU, where its tokens are the last of those that they see."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch.nn import functional

_BLOCK = 128  # queries at once on the CPU, so that the masked half of the products is hardly computed
_BLOCK_BYTES = 1 << 23  # of products at once: larger pieces of memory are not kept when they are freed
_FUSED_BLOCK = 512  # the same for torch's fused kernel
_FEWEST = 16  # queries of a block, however many keys there are


def slope(queries: int, keys: int, dtype: torch.dtype) -> torch.Tensor:
    """(block, keys + block) what :func:`fused` adds to the products of a block of queries.

    Nothing, and at the end minus infinity above the diagonal; a block takes its own part of it.
    """
    step = min(queries, _FUSED_BLOCK)
    return functional.pad(_triangle(step, dtype), (keys, 0))


def fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    hidden: torch.Tensor | None,
) -> torch.Tensor:
    """Causal attention by torch's fused kernel: what :func:`blocks` gives.

    Args:
        query: As there.
        key: As there.
        value: As there.
        scaling: As there.
        hidden: What :func:`slope` gives; None where the tokens look back at none but themselves.
    """
    groups, keys = key.shape[1:3]
    heads, count = query.shape[1:3]
    past = keys - count
    # Heads that share their keys as rows of one batch: the keys are repeated without being copied.
    q = query[0].view(groups, -1, *query.shape[2:])
    k, v = (each[0][:, None].expand(-1, heads // groups, -1, -1) for each in (key, value))
    attention = partial(functional.scaled_dot_product_attention, scale=scaling)
    if hidden is None:
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


def blocks(
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
    future = _future(q.dtype)
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
        near += future[:rows, :, :rows]  # quicker than filling in
        torch.softmax(scores, -1, out=shares)
        made = torch.bmm(shares, v[:, :seen]).view(groups, rows, -1, v.shape[-1])
        out[start:stop] = made.transpose(0, 1)
    return out.view(1, count, heads, -1)


@cache
def _future(dtype: torch.dtype) -> torch.Tensor:
    """(block, 1, block) what a block adds to its last products: minus infinity above the diagonal."""
    return _triangle(_BLOCK, dtype)[:, None]


def _triangle(size: int, dtype: torch.dtype) -> torch.Tensor:
    """(size, size) minus infinity above the diagonal, nothing elsewhere."""
    return torch.full((size, size), -torch.inf, dtype=dtype, device="cpu").triu_(1)
