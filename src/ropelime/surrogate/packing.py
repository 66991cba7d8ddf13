"""Packing and prefix sharing: token sequences become chunks, one forward pass each.

Sequences come in an order in which neighbours begin alike. A sequence continues the *prefix*, the
tokens of the whole sequence before it, from where the two differ, and only its new tokens are run.
What later chunks attend to is kept in a *KV cache* with one slot for each token of the prefix. The
*pool* of a chunk is that cache with the keys of the chunk itself behind it. Pure arithmetic on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ropelime.surrogate.cascade import Cascade, CascadeGroup
from ropelime.surrogate.tokens import TokenSequence
from ropelime.typing import Ints, Masks


@dataclass(frozen=True)
class Segment:
    """The part of a sequence that one chunk runs.

    Attributes:
        start: Where it begins in the chunk.
        stop: Where it ends.
        own: Where its own tokens begin in the pool.
        prefix: The slots in the pool of the prefix that it continues or attends to.
        prefix_mask: (p,) which of the first p of them it attends to; all if None.
    """

    start: int
    stop: int
    own: int
    prefix: Ints
    prefix_mask: Masks | None = None

    @cached_property
    def keys(self) -> Ints:
        """The slots that its tokens attend to: its own are the last, each attends up to itself."""
        before = self.prefix if self.prefix_mask is None else self.prefix_keys(self.prefix_mask)
        return np.concatenate([before, self.own + np.arange(self.stop - self.start)])

    def prefix_keys(self, which: Masks) -> Ints:
        """The slots of some of the first tokens of the prefix."""
        return self.prefix[: len(which)][which]

    def other_keys(self, common: Masks) -> Ints:
        """The slots that its tokens attend to, without those that its group has in common."""
        assert self.prefix_mask is not None
        own = self.own + np.arange(self.stop - self.start)
        return np.concatenate([self.prefix_keys(self.prefix_mask & ~common), own])


@dataclass(frozen=True)
class Chunk:
    """Tokens of one forward pass.

    Attributes:
        ids: (N,) tokens.
        positions: (N,) their positions.
        segments: The sequences that they belong to, and what each attends to.
        n_cached: How many slots of the KV cache the pool begins with.
        store_from: (m,) tokens of the chunk whose keys and values go into the cache,
        store_to: (m,) and their slots there.
        outputs: (K,) tokens that predict the output,
        scored: (K, 2) and the mask and the token that each predicts, counted from the end: -1 is the
            last token of the output.
        finished: The sequences that end in this chunk,
        slots: and the slots in the pool of the tokens of each of them that is not cached.
        groups: Segments that attend to nearly the same cached tokens.
    """

    ids: Ints
    positions: Ints
    segments: tuple[Segment, ...]
    n_cached: int
    store_from: Ints
    store_to: Ints
    outputs: Ints
    scored: Ints
    finished: tuple[TokenSequence, ...]
    slots: tuple[Ints, ...]
    groups: tuple[CascadeGroup, ...] = ()


@dataclass(frozen=True)
class Cursor:
    """How far packing has come.

    Attributes:
        sequence: The number of the next sequence.
        done: Its tokens, behind the shared prefix, that have been run.
        n_cached: Slots of the KV cache in use.
    """

    sequence: int = 0
    done: int = 0
    n_cached: int = 0


class Packer:
    """Cuts sequences into chunks of any size, each when it is asked for."""

    def __init__(self, sequences: Sequence[TokenSequence], *, cascade: bool = False) -> None:
        """Find the prefixes that the sequences share.

        Args:
            sequences: The sequences in order. They may be built anew whenever they are asked for. A
                cached one must follow the sequence whose prefix it attends to.
            cascade: Whether cached sequences may gather the keys that they have in common in groups.
        """
        self.sequences = sequences
        self.cascade = cascade
        count = len(sequences)
        self.shared = np.zeros(count, dtype=np.int64)  # tokens of the prefix that a sequence continues
        lengths = np.zeros(count, dtype=np.int64)
        before = np.zeros(count, dtype=np.int64)  # keys that all new tokens of a sequence attend to
        reach = np.full(count, -1)  # how much of the prefix a cached sequence needs; -1 for others
        prefix: TokenSequence | None = None
        for number, sequence in enumerate(sequences):
            lengths[number] = sequence.length
            mask = sequence.prefix_mask
            if mask is None:
                self.shared[number] = before[number] = _common_prefix(prefix, sequence)
                prefix = sequence
            else:
                before[number] = np.count_nonzero(mask)
                reach[number] = len(mask) - np.argmax(mask[::-1]) if mask.any() else 0
        self.capacity = int(lengths.max(initial=0))  # slots that the KV cache may need
        self.fresh = lengths - self.shared  # tokens of each sequence that are run
        self.tokens = int(self.fresh.sum())
        self._pairs = self.fresh * before + self.fresh * (self.fresh + 1) // 2
        self.pairs = int(self._pairs.sum())  # of a query and a key that it attends to
        # How much of the prefix is still needed before a sequence is run.
        self._needs = np.zeros(count + 1, dtype=np.int64)
        for number in range(count - 1, -1, -1):
            self._needs[number] = (
                self.shared[number]
                if reach[number] < 0
                else max(reach[number], self._needs[number + 1])
            )

    def finished(self, cursor: Cursor) -> bool:
        """Whether nothing is left to run."""
        return cursor.sequence >= len(self.sequences)

    def run_before(self, cursor: Cursor) -> tuple[int, int]:
        """How many tokens are run before a cursor, and how many pairs of a query and a key."""
        number, done = cursor.sequence, cursor.done
        tokens, pairs = int(self.fresh[:number].sum()), int(self._pairs[:number].sum())
        if done:
            pairs += done * int(self.shared[number]) + done * (done + 1) // 2
        return tokens + done, pairs

    def chunk(
        self, cursor: Cursor, *, tokens: int, outputs: int, keys: float = math.inf
    ) -> tuple[Chunk, Cursor]:
        """The next chunk, and where the one after it begins.

        Args:
            cursor: Where to begin.
            tokens: The most tokens of a chunk. A cached sequence is not cut, however long.
            outputs: The most output positions.
            keys: The most gathered keys, unless a single sequence needs more.
        """
        cascade = Cascade() if self.cascade else None
        builder = _ChunkBuilder(cursor.n_cached, self.capacity, tokens, outputs, keys, cascade)
        number, done = cursor.sequence, cursor.done
        while number < len(self.sequences):
            sequence = self.sequences[number]
            end = builder.add(sequence, 0 if sequence.cached else int(self.shared[number]) + done)
            if end is None:
                break
            if end < sequence.length:
                done = end - int(self.shared[number])
                break
            number, done = number + 1, 0
        need = int(self.shared[number]) + done if done else int(self._needs[number])
        return builder.chunk(need), Cursor(number, done, need)


class _ChunkBuilder:
    """A chunk that sequences are added to until it is full."""

    def __init__(
        self,
        n_cached: int,
        capacity: int,
        tokens: int,
        outputs: int,
        keys: float,
        cascade: Cascade | None,
    ) -> None:
        self._n_cached, self._max_tokens, self._max_outputs = n_cached, tokens, outputs
        self._max_keys, self._cascade = keys, cascade
        self._slots = np.arange(max(n_cached, capacity))  # in the pool, of each token of the prefix
        self._prefix: Ints | None = None  # a copy of them that holds as long as nothing is added
        self._tokens = self._keys = self._outputs = 0  # so far
        self._ids: list[Ints] = []
        self._positions: list[Ints] = []
        self._segments: list[Segment] = []
        self._picked: list[Ints] = []
        self._scored: list[Ints] = []
        self._finished: list[TokenSequence] = []
        self._finished_slots: list[Ints] = []

    def add(self, sequence: TokenSequence, begin: int) -> int | None:
        """Add the tokens of a sequence from ``begin`` on.

        Returns:
            Where in the sequence they end, which is before its end if the chunk is full with them;
            None if not one of them fits.
        """
        if begin == sequence.length:  # the same prompt once more: nothing is left to run
            self._finish(sequence)
            return begin
        if sequence.prefix_mask is None:
            end = self._add_whole(sequence, begin)
        else:
            end = self._add_cached(sequence, sequence.prefix_mask)
        if end == sequence.length:
            self._finish(sequence)
        return end

    def _add_whole(self, sequence: TokenSequence, begin: int) -> int | None:
        predicts_from = max(begin, sequence.length - sequence.n_outputs)
        end = min(
            sequence.length,
            begin + self._max_tokens - self._tokens,
            predicts_from + self._max_outputs - self._outputs,
        )
        if end <= begin or not self._has_room_for(end):
            return None
        if self._cascade:
            self._cascade.close()  # the prefix changes
        prefix, self._prefix = self._slots[:begin].copy(), None
        own = self._n_cached + self._tokens
        self._slots[begin:end] = own + np.arange(end - begin)
        self._append(sequence, begin, end, prefix)
        return end

    def _add_cached(self, sequence: TokenSequence, prefix_mask: Masks) -> int | None:
        length, group = sequence.length, None
        if self._cascade:
            group, more = self._cascade.offer(len(self._segments), prefix_mask, length)
        else:
            more = int(np.count_nonzero(prefix_mask)) + length
        too_long = self._tokens + length > self._max_tokens
        too_many = self._outputs + sequence.n_outputs > self._max_outputs
        if not self._has_room_for(more) or (self._segments and (too_long or too_many)):
            return None
        if self._prefix is None:
            self._prefix = self._slots.copy()
        if self._cascade and group:
            self._cascade.take(group)
        self._append(sequence, 0, length, self._prefix)
        return length

    def _has_room_for(self, keys: int) -> bool:
        """Whether so many more keys may be gathered; for a first segment any number."""
        self._keys += keys
        return not self._segments or self._keys <= self._max_keys

    def _append(self, sequence: TokenSequence, begin: int, end: int, prefix: Ints) -> None:
        predicting = np.arange(max(begin, sequence.length - sequence.n_outputs), end)
        start, stop = self._tokens, self._tokens + end - begin
        own = self._n_cached + start
        self._segments.append(Segment(start, stop, own, prefix, sequence.prefix_mask))
        self._ids.append(sequence.ids[begin:end])
        self._positions.append(sequence.positions[begin:end])
        self._picked.append(start + predicting - begin)
        masks = np.full(len(predicting), sequence.index)
        self._scored.append(np.stack([masks, predicting - sequence.length], 1))
        self._tokens = stop
        self._outputs += len(predicting)

    def _finish(self, sequence: TokenSequence) -> None:
        self._finished.append(sequence)
        if not sequence.cached:
            self._finished_slots.append(self._slots[: sequence.length].copy())

    def chunk(self, need: int) -> Chunk:
        """The chunk; the first ``need`` tokens of the prefix are kept for later ones."""
        store_to = np.flatnonzero(self._slots[:need] >= self._n_cached)
        return Chunk(
            np.concatenate(self._ids),
            np.concatenate(self._positions),
            tuple(self._segments),
            self._n_cached,
            self._slots[store_to] - self._n_cached,
            store_to,
            np.concatenate(self._picked),
            np.concatenate(self._scored),
            tuple(self._finished),
            tuple(self._finished_slots),
            self._cascade.found() if self._cascade else (),
        )


def _common_prefix(prefix: TokenSequence | None, sequence: TokenSequence) -> int:
    """How many tokens a sequence shares with the prefix; those that predict the output are its own."""
    if prefix is None:
        return 0
    most = min(prefix.length, sequence.length - sequence.n_outputs)
    same = (prefix.ids[:most] == sequence.ids[:most]) & (
        prefix.positions[:most] == sequence.positions[:most]
    )
    return most if same.all() else int(np.argmin(same))
