"""Masks become rows of tokens, and rows become batches. Pure arithmetic on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ropelime.passes import Ints, Masks
from ropelime.surrogate.base import Removal


@dataclass(frozen=True)
class Row:
    """One masked prompt with the output behind it, less what it shares with the full prompt.

    Attributes:
        index: Which mask it is.
        ids: (q,) tokens still to be run.
        positions: (q,) where they stand.
        owner: (q,) the feature of each token, -1 for pinned and output tokens.
        shared: How many tokens of the full prompt come before them, unchanged.
        hidden: (shared,) which of these the row must not look at; None where it may see them all.
    """

    index: int
    ids: Ints
    positions: Ints
    owner: Ints
    shared: int
    hidden: Masks | None = None

    @property
    def length(self) -> int:
        """Tokens to be run."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return int(self.positions[-1]) + 1


@dataclass(frozen=True)
class Sequences:
    """The tokens of one prompt and output, from which the row of any mask is made."""

    ids: Ints  # (L,) the prompt
    owner: Ints  # (L,)
    output_ids: Ints  # (T,)
    removal: Removal
    placeholder: Ints  # (p,)
    beginning: Ints  # (1,) what is read where nothing is left of the prompt

    def row(self, index: int, mask: Masks, *, share: bool) -> Row:
        """The row of one mask; with ``share`` only what follows the first removed token."""
        kept = (self.owner < 0) | mask[self.owner]
        if self.removal.how == "placeholder" and not kept.all():
            ids, owner, positions = self._replaced(kept)
        else:
            places = np.flatnonzero(kept)
            ids, owner = self.ids[places], self.owner[places]
            positions = places if self.removal.how == "in-place" else np.arange(len(places))
        if not len(ids):  # something must predict the first token of the output
            ids, owner, positions = self.beginning, np.array([-1]), np.array([0])
        shared = 0
        if share:  # one token of the prompt stays, because it predicts the first of the output
            first_removed = len(ids) if kept.all() else int(np.argmin(kept))
            shared = min(first_removed, len(ids) - 1)
        after = len(self.ids) if self.removal.how == "in-place" else len(ids)
        return Row(
            index,
            np.concatenate([ids[shared:], self.output_ids]),
            np.concatenate([positions[shared:], after + np.arange(len(self.output_ids))]),
            np.concatenate([owner[shared:], np.full(len(self.output_ids), -1)]),
            shared,
        )

    @property
    def tail(self) -> int:
        """Where the pinned end of the prompt begins; at least one token is left to it."""
        last = int(np.flatnonzero(self.owner >= 0)[-1])
        return min(last + 1, len(self.ids) - 1)

    def cheap_row(self, index: int, mask: Masks) -> Row | None:
        """The tail and the output alone, looking back at the full prompt less the removed features.

        None where the tail itself holds a token of a removed feature: such a mask is read exactly.
        """
        kept = (self.owner < 0) | mask[self.owner]
        start, output = self.tail, len(self.output_ids)
        if not kept[start:].all():
            return None
        return Row(
            index,
            np.concatenate([self.ids[start:], self.output_ids]),
            np.arange(start, len(self.ids) + output),
            np.full(len(self.ids) - start + output, -1),
            start,
            ~kept[:start],
        )

    def _replaced(self, kept: Masks) -> tuple[Ints, Ints, Ints]:
        """Every removed feature as one placeholder, where its first token was."""
        ids: list[Ints] = []
        owner: list[Ints] = []
        edges = np.flatnonzero(np.diff(self.owner)) + 1
        edges_all = [0, *edges.tolist(), len(self.ids)]
        seen: set[int] = set()
        for a, b in pairwise(edges_all):
            if kept[a]:
                ids.append(self.ids[a:b])
                owner.append(self.owner[a:b])
            elif int(self.owner[a]) not in seen:
                seen.add(int(self.owner[a]))
                ids.append(self.placeholder)
                owner.append(np.full(len(self.placeholder), -1))
        joined = np.concatenate(ids)
        return joined, np.concatenate(owner), np.arange(len(joined))


def batches(rows: Sequence[Row], *, tokens: int, most: int) -> Iterator[list[Row]]:
    """Group rows of like length, so that padding costs little.

    Args:
        rows: The rows.
        tokens: Tokens of a batch, with padding and with the shared part that each row looks back at.
        most: Rows of a batch.
    """
    batch: list[Row] = []
    width = 0
    for row in sorted(rows, key=lambda r: (-r.length, r.index)):
        wider = max(width, row.length)
        if batch and ((len(batch) + 1) * wider > tokens or len(batch) >= most):
            yield batch
            batch, wider = [], row.length
        batch.append(row)
        width = wider
    if batch:
        yield batch
