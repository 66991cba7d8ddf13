"""Variable-length attention: one fused call of FlashAttention for all segments of a packed chunk."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ropelime.surrogate.packing import Chunk
from ropelime.typing import Ints

try:
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    _PARAMETERS = set(inspect.signature(varlen_attn).parameters)
except ImportError:
    _PARAMETERS = set()

HALF = (torch.bfloat16, torch.float16)  # the dtypes that the fused kernel takes


def has_varlen(device: torch.device) -> bool:
    """Whether a fused kernel takes sequences of many lengths: since torch 2.11, on Ampere and later."""
    if device.type != "cuda" or "window_size" not in _PARAMETERS:
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def has_cascade(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether groups of sequences can gather the keys that they have in common only once.

    Not on AMD's cards, whose kernel lays its sums of exponentials out in another way.
    """
    able = "return_aux" in _PARAMETERS and torch.version.hip is None
    return able and dtype in HALF and has_varlen(device)


@dataclass(frozen=True)
class Ragged:
    """Sequences of many lengths, one behind the other.

    Attributes:
        index: The slots of their keys in the pool.
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
    def of(cls, queries: Sequence[int], keys: Sequence[Ints], device: torch.device) -> Ragged:
        """Lay out so many queries, and these slots of keys, for each sequence."""
        counts = [np.array([0, *queries]), np.array([0, *(len(k) for k in keys)])]
        starts_q, starts_k = (torch.as_tensor(c.cumsum()).to(device, torch.int32) for c in counts)
        index = torch.as_tensor(np.concatenate(keys)).to(device)
        return cls(index, starts_q, starts_k, int(counts[0].max()), int(counts[1].max()))


@dataclass(frozen=True)
class VarlenPlan:
    """The fused calls of one chunk.

    Attributes:
        each: Every segment with its keys, less those that its group has in common.
        common: Every group with the keys in common; None where there are no groups.
        grouped: The queries of the groups.
    """

    each: Ragged
    common: Ragged | None
    grouped: torch.Tensor

    @classmethod
    def of(cls, chunk: Chunk, device: torch.device, *, outputs_only: bool, cascade: bool) -> VarlenPlan:
        """Plan a chunk.

        Args:
            chunk: The chunk.
            device: Where the calls run.
            outputs_only: Whether only the tokens that predict the output are queries.
            cascade: Whether groups attend to the keys that they have in common jointly.
        """
        counts = np.array([s.stop - (s.outputs if outputs_only else s.start) for s in chunk.segments])
        starts = np.cumsum([0, *counts])
        keys = {n: chunk.segments[n].keys for n, count in enumerate(counts) if count}
        common: list[tuple[int, Ints]] = []
        grouped: list[Ints] = []
        for group in chunk.groups if cascade else ():
            numbers = range(group.first, group.first + group.count)
            first, last = int(starts[numbers.start]), int(starts[numbers.stop])
            if first == last:
                continue
            grouped.append(np.arange(first, last))
            common.append((last - first, chunk.segments[group.first].prefix_keys(group.common)))
            keys |= {n: chunk.segments[n].other_keys(group.common) for n in numbers if n in keys}
        each = Ragged.of([int(counts[n]) for n in keys], list(keys.values()), device)
        if not common:
            return cls(each, None, each.index[:0])
        jointly = Ragged.of([count for count, _ in common], [slots for _, slots in common], device)
        return cls(each, jointly, torch.as_tensor(np.concatenate(grouped)).to(device))

    def run(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float | None,
        window: int | None,
    ) -> torch.Tensor:
        """(q, heads, e) from (q, heads, d) queries and (slots, fewer heads, d) keys and e-values."""
        with_sums = self.common is not None
        found, sums = _fused(query, keys, values, self.each, scaling, window, with_sums=with_sums)
        if self.common is not None:
            joint, joint_sums = _fused(
                query[self.grouped], keys, values, self.common, scaling, causal=False, with_sums=True
            )
            found[self.grouped] = _merged(found[self.grouped], sums[:, self.grouped], joint, joint_sums)
        return found


def _fused(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    ragged: Ragged,
    scaling: float | None,
    window: int | None = None,
    *,
    causal: bool = True,
    with_sums: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, heads, e) and, where wanted, the (heads, q) log-sums of exponentials."""
    # Newer releases of torch need a flag for fewer key heads, older ones detect them.
    more: dict[str, Any] = {}
    if "enable_gqa" in _PARAMETERS:
        more["enable_gqa"] = query.shape[1] != keys.shape[1]
    if with_sums:
        more["return_aux"] = AuxRequest(lse=True)
    found: Any = varlen_attn(
        query,
        keys[ragged.index],
        values[ragged.index],
        ragged.starts_q,
        ragged.starts_k,
        ragged.most_q,
        ragged.most_k,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0 if causal else -1),
        **more,
    )
    return found if with_sums else (found, query.new_empty(0))


def _merged(
    one: torch.Tensor, sums: torch.Tensor, other: torch.Tensor, other_sums: torch.Tensor
) -> torch.Tensor:
    """Attention over two sets of keys, merged from that over each by their log-sums of exponentials."""
    part = torch.sigmoid(sums.float() - other_sums.float()).T[..., None]  # (q, heads, 1)
    return torch.lerp(other.float(), one.float(), part).to(one.dtype)
