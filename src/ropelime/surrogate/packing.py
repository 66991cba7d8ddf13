"""Rows become chunks: one packed run of tokens each, in which common beginnings appear once.

Rows are taken in an order in which neighbours begin alike. A row then continues the *path*, the tokens
of the row before it, from where the two part, and only what is new is run. Keys that later chunks look
back at are kept on a *stack*, one place for each token of the path. Pure arithmetic on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ropelime.surrogate.sequences import Row
from ropelime.surrogate.sharing import Group, Groups
from ropelime.typing import Ints, Masks


@dataclass(frozen=True)
class Segment:
    """The part of a row that one chunk runs.

    Attributes:
        start: Where it begins in the chunk.
        stop: Where it ends.
        outputs: Where those of its tokens begin that predict the output, the end if there are none.
        own: Where its own tokens begin in the pool, which is the stack with the chunk behind it.
        path: Where in the pool those are that it may look back at,
        sees: (p,) and which of the first p of them it does look back at; all if None.
    """

    start: int
    stop: int
    outputs: int
    own: int
    path: Ints
    sees: Masks | None = None

    @cached_property
    def keys(self) -> Ints:
        """What its tokens look at: places in the pool.

        Its own tokens are the last of them, each sees those up to itself.
        """
        before = self.path if self.sees is None else self.before(self.sees)
        return np.concatenate([before, self.own + np.arange(self.stop - self.start)])

    def before(self, which: Masks) -> Ints:
        """Where in the pool some of the first tokens of the path are."""
        return self.path[: len(which)][which]

    def besides(self, common: Masks) -> Ints:
        """What its tokens look at besides what is common to its group."""
        assert self.sees is not None
        own = self.own + np.arange(self.stop - self.start)
        return np.concatenate([self.before(self.sees & ~common), own])


@dataclass(frozen=True)
class Chunk:
    """Tokens to be run at once.

    Attributes:
        ids: (N,) tokens.
        positions: (N,) where they stand.
        segments: Whose they are and what they see.
        stacked: How many places of the stack the pool begins with.
        source: (m,) tokens of the chunk to be put on the stack,
        target: (m,) and their places there.
        outputs: (K,) tokens that predict the output,
        scoring: (K, 2) and the mask and the token that each is for, counted from the end: -1 is the
            last one of the output.
        finished: The rows that end here,
        pools: and where in the pool the tokens are of each of them that is whole.
        groups: Segments that look back at nearly the same tokens, where those may be gathered jointly.
    """

    ids: Ints
    positions: Ints
    segments: tuple[Segment, ...]
    stacked: int
    source: Ints
    target: Ints
    outputs: Ints
    scoring: Ints
    finished: tuple[Row, ...]
    pools: tuple[Ints, ...]
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True)
class Place:
    """How far packing has come: the row, its tokens that are done, and the stack's height."""

    row: int = 0
    done: int = 0
    stacked: int = 0


class Packer:
    """Cuts rows into chunks of any size, the next one only when it is asked for."""

    def __init__(self, rows: Sequence[Row], *, share: bool = False) -> None:
        """Find out what the rows share.

        Args:
            rows: The rows in order, made anew whenever they are asked for: all of them together need
                not fit into memory. One that looks back must follow the row that it looks back at.
            share: Whether rows that look back may gather their keys in groups.
        """
        self.rows = rows
        self.share = share
        self.shared = np.zeros(len(rows), dtype=np.int64)
        lengths = np.zeros(len(rows), dtype=np.int64)
        before = np.zeros(len(rows), dtype=np.int64)  # keys that all tokens of a row that are run see
        seen = np.full(len(rows), -1)  # how far a row looks back, -1 for a whole one
        path: Row | None = None
        for number, row in enumerate(rows):
            lengths[number] = row.length
            if row.sees is None:
                self.shared[number] = before[number] = _common(path, row)
                path = row
            else:
                before[number] = np.count_nonzero(row.sees)
                seen[number] = len(row.sees) - np.argmax(row.sees[::-1]) if row.sees.any() else 0
        self.capacity = int(lengths.max(initial=0))  # places that a stack may need
        self.fresh = lengths - self.shared  # tokens of each row that are run
        self.tokens = int(self.fresh.sum())
        # Pairs of a token that is run and a key that it looks at.
        self.pairs = int((self.fresh * before + self.fresh * (self.fresh + 1) // 2).sum())
        # How much of the path is still looked back at before a row is run.
        self._needs = np.zeros(len(rows) + 1, dtype=np.int64)
        for number in range(len(rows) - 1, -1, -1):
            whole = seen[number] < 0
            self._needs[number] = (
                self.shared[number] if whole else max(seen[number], self._needs[number + 1])
            )

    def finished(self, place: Place) -> bool:
        """Whether nothing is left to run."""
        return place.row >= len(self.rows)

    def chunk(
        self, place: Place, *, tokens: int, outputs: int, keys: float = math.inf
    ) -> tuple[Chunk, Place]:
        """The next chunk, and where the one after it begins.

        Args:
            place: Where to begin.
            tokens: The most tokens of a chunk. A row that looks back is not cut, however long.
            outputs: The most output positions of a chunk.
            keys: The most keys that are gathered for its rows, unless a single row looks at more.
        """
        ids: list[Ints] = []
        positions: list[Ints] = []
        segments: list[Segment] = []
        picked: list[Ints] = []
        scoring: list[Ints] = []
        finished: list[Row] = []
        pools: list[Ints] = []
        height = place.stacked
        where = np.arange(max(height, self.capacity))  # place in the pool of each token of the path
        path: Ints | None = None  # a copy of it, as long as nothing is added to it
        groups = Groups()
        at, number, done, gathered, predicted = 0, place.row, place.done, 0, 0
        while number < len(self.rows):
            row = self.rows[number]
            begin = int(self.shared[number]) + done if row.whole else 0
            end = row.length
            if begin == end:  # the same prompt once more: nothing is left to run
                finished.append(row)
                pools.append(where[:end].copy())
                number += 1
                continue
            first = row.length - row.outputs  # the first token that predicts the output
            room = outputs - predicted
            if row.sees is None:
                end = min(end, begin + tokens - at, max(begin, first) + room)
                gathered += end
            else:
                group, more = groups.offer(len(segments), row.sees, end)
                gathered += more
            if end <= begin or (segments and gathered > keys):
                break
            tail = 0 if row.whole else row.length
            if segments and (at + tail > tokens or (tail and predicted + row.outputs > outputs)):
                break
            own = height + at
            if row.whole:
                where[begin:end] = own + np.arange(end - begin)
                before, path = where[:begin].copy(), None
            else:
                before = path = where.copy() if path is None else path
                groups.take(group)
            if row.whole or not self.share:
                groups.close()
            wanted = np.arange(max(begin, first), end)
            stop = at + end - begin
            segments.append(Segment(at, stop, stop - len(wanted), own, before, row.sees))
            ids.append(row.ids[begin:end])
            positions.append(row.positions[begin:end])
            picked.append(at + wanted - begin)
            scoring.append(np.stack([np.full(len(wanted), row.index), wanted - row.length], 1))
            at = stop
            predicted += len(wanted)
            if end < row.length:
                done = end - int(self.shared[number])
                break
            finished.append(row)
            if row.whole:
                pools.append(where[:end].copy())
            number, done = number + 1, 0
        need = int(self.shared[number]) + done if done else int(self._needs[number])
        target = np.flatnonzero(where[:need] >= height)
        chunk = Chunk(
            np.concatenate(ids),
            np.concatenate(positions),
            tuple(segments),
            height,
            where[target] - height,
            target,
            np.concatenate(picked),
            np.concatenate(scoring),
            tuple(finished),
            tuple(pools),
            groups.found(),
        )
        return chunk, Place(number, done, need)


def _common(path: Row | None, row: Row) -> int:
    """How many tokens a row has in common with the path; those that predict the output are its own."""
    if path is None:
        return 0
    most = min(path.length, row.length - row.outputs)
    same = (path.ids[:most] == row.ids[:most]) & (path.positions[:most] == row.positions[:most])
    return most if same.all() else int(np.argmin(same))
