"""Causal attention of one sequence on a CPU, as plain matrix products."""

from __future__ import annotations

import torch

_QUERIES = 128  # of a block, so that few of the products are masked


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Attention of the last tokens of a sequence to all tokens up to themselves.

    On a CPU this is faster than torch's fused kernel, which needs a mask where there are more keys than
    queries, and then computes all masked products.

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
