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

    PARAMETERS = set(inspect.signature(varlen_attn).parameters)
except ImportError:  # before torch 2.11
    PARAMETERS = set()


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
    def of(cls, chunk: Chunk, device: torch.device, *, cascade: bool) -> VarlenPlan:
        """Plan a chunk, with or without a joint call for the keys that groups have in common."""
        counts = [segment.stop - segment.start for segment in chunk.segments]
        keys = [segment.keys for segment in chunk.segments]
        common: list[tuple[int, Ints]] = []
        grouped: list[Ints] = []
        for group in chunk.groups if cascade else ():
            numbers = range(group.first, group.first + group.count)
            first, last = chunk.segments[numbers[0]], chunk.segments[numbers[-1]]
            grouped.append(np.arange(first.start, last.stop))
            common.append((last.stop - first.start, first.prefix_keys(group.common)))
            for number in numbers:
                keys[number] = chunk.segments[number].other_keys(group.common)
        each = Ragged.of(counts, keys, device)
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
    if "enable_gqa" in PARAMETERS:
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
