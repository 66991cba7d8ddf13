"""Masks become rows of tokens. Pure arithmetic on arrays."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np

from ropelime.method.scores import Ints, Masks
from ropelime.surrogate.base import Ablation

_FEW = 8  # so many times fewer than all features are few


@dataclass(frozen=True)
class Row:
    """One masked prompt with the output behind it; its last token is left out, it predicts nothing.

    Attributes:
        index: Which mask it is.
        ids: (q,) tokens.
        positions: (q,) where they stand.
        owner: (q,) the feature of each token, -1 for pinned and output tokens.
        outputs: How many of the last tokens predict a token of the output.
        sees: (p,) which tokens of the whole row before it, from its beginning, it looks back at; None
            for a row that is whole itself.
    """

    index: int
    ids: Ints
    positions: Ints
    owner: Ints
    outputs: int
    sees: Masks | None = None

    @property
    def whole(self) -> bool:
        """Whether it looks back at no other row."""
        return self.sees is None

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
    ablation: Ablation
    placeholder: Ints  # (p,)
    beginning: Ints  # (1,) what is read where nothing is left of the prompt

    @property
    def n_features(self) -> int:
        """How many features there are; each owns at least one token."""
        return int(self.owner.max()) + 1

    def row(self, index: int, mask: Masks) -> Row:
        """The row of one mask."""
        if self.ablation.how == "placeholder" and not (kept := self._kept(mask)).all():
            ids, owner, positions = self._replaced(kept)
        else:
            places = self._left(mask)
            ids, owner = self.ids[places], self.owner[places]
            positions = places if self.ablation.how == "in-place" else np.arange(len(places))
        if not len(ids):  # something must predict the first token of the output
            ids, owner, positions = self.beginning, np.array([-1]), np.array([0])
        after = len(self.ids) if self.ablation.how == "in-place" else len(ids)
        return self._with_output(index, ids, positions, owner, after)

    @cached_property
    def _places(self) -> list[Ints]:
        """Where the pinned tokens are, and then those of each feature."""
        order = np.argsort(self.owner, kind="stable")
        return np.split(order, np.searchsorted(self.owner[order], np.arange(self.owner.max() + 1)))

    def _of(self, features: Ints) -> list[Ints]:
        return [self._places[f + 1] for f in features.tolist() if f + 1 < len(self._places)]

    def _left(self, mask: Masks) -> Ints:
        """Where those tokens are that a mask keeps; where they are few it costs no more than them."""
        features = np.flatnonzero(mask)
        if _FEW * len(features) > len(mask):
            return np.flatnonzero(self._kept(mask))
        return np.sort(np.concatenate([self._places[0], *self._of(features)]))

    def _kept(self, mask: Masks) -> Masks:
        """(L,) which tokens a mask keeps."""
        gone = np.flatnonzero(~mask)
        if _FEW * len(gone) > len(mask):
            return np.asarray((self.owner < 0) | mask[self.owner])
        kept = np.ones(len(self.ids), dtype=bool)
        for places in self._of(gone):
            kept[places] = False
        return kept

    def lengths(self, masks: Masks) -> Ints:
        """(N,) tokens of every mask's row with the whole output, without making the rows."""
        tokens = np.bincount(self.owner + 1, minlength=masks.shape[1] + 1)
        left = tokens[0] + masks @ tokens[1:]
        if self.ablation.how == "placeholder":
            left += len(self.placeholder) * (~masks @ (tokens[1:] > 0).astype(np.int64))
        return np.asarray(np.maximum(left, 1) + len(self.output_ids))

    def _with_output(
        self, index: int, ids: Ints, positions: Ints, owner: Ints, after: int, sees: Masks | None = None
    ) -> Row:
        output = self.output_ids[:-1]
        return Row(
            index,
            np.concatenate([ids, output]),
            np.concatenate([positions, after + np.arange(len(output))]),
            np.concatenate([owner, np.full(len(output), -1)]),
            len(self.output_ids),
            sees,
        )

    def prompt(self) -> Row:
        """The full prompt by itself: nothing is predicted, but other rows look back at it."""
        return Row(0, self.ids, np.arange(len(self.ids)), self.owner, 0)

    @property
    def question(self) -> int:
        """How many tokens behind the first one of the tail there are to be read."""
        return len(self.ids) - self.tail - 1

    @cached_property
    def tail(self) -> int:
        """Where the pinned end of the prompt begins; at least one token is left to it."""
        last = int(np.flatnonzero(self.owner >= 0)[-1])
        return min(last + 1, len(self.ids) - 1)

    def can_look_back(self, masks: Masks) -> Masks:
        """(N,) whether the tail holds no token of a removed feature."""
        owner = self.owner[self.tail :]
        return np.asarray(masks[:, owner[owner >= 0]].all(1))

    def cheap_row(self, index: int, mask: Masks) -> Row:
        """The tail and the output alone, looking back at the full prompt less the removed features."""
        start, length = self.tail, len(self.ids)
        return self._with_output(
            index,
            self.ids[start:],
            np.arange(start, length),
            np.full(length - start, -1),
            length,
            self._kept(mask)[:start],
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


_PROMPT = -1  # stands for the full prompt by itself among the numbers of masks


class Rows(SequenceOf[Row]):
    """The rows of many masks, each made when it is asked for."""

    def __init__(self, sequences: Sequences, masks: Masks, *, cached: bool, question: int = 0) -> None:
        """Put them into an order in which neighbours begin alike.

        Args:
            sequences: The tokens.
            masks: (N, n) distinct masks, the first of them all ones.
            cached: Whether rows look back at the full prompt where they can. It is then run by itself,
                and its reading looks back at it as well: all such readings round alike.
            question: How many tokens before the output are read too, where a mask leaves them alone.
        """
        self._sequences, self._masks, self._question = sequences, masks, question
        clear = sequences.can_look_back(masks)
        self._clear = clear if question else np.zeros(len(masks), dtype=bool)
        self._cheap = clear if cached else np.zeros(len(masks), dtype=bool)
        # What looks back, then the rest with kept features first; the full mask before all others.
        order = np.lexsort((*_words(~masks)[::-1], ~self._cheap, np.arange(len(masks)) > 0))
        self._order = np.concatenate([[_PROMPT], order]) if cached else order

    def __len__(self) -> int:
        return len(self._order)

    @property
    def masks(self) -> int:
        """How many masks the rows are of."""
        return len(self._masks)

    @overload
    def __getitem__(self, number: int) -> Row: ...

    @overload
    def __getitem__(self, number: slice) -> SequenceOf[Row]: ...

    def __getitem__(self, number: int | slice) -> Row | SequenceOf[Row]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        index = int(self._order[number])
        if index == _PROMPT:
            return self._sequences.prompt()
        make = self._sequences.cheap_row if self._cheap[index] else self._sequences.row
        row = make(index, self._masks[index])
        return replace(row, outputs=row.outputs + self._question) if self._clear[index] else row

    @property
    def reach(self) -> int:
        """The position behind the last token of the row that reaches farthest."""
        sequences = self._sequences
        stays = self._cheap.any() or sequences.ablation.how == "in-place"
        whole = len(sequences.ids) + len(sequences.output_ids) if stays else 0
        return max(whole, int(self._lengths[~self._cheap].max(initial=0))) - 1

    def costs(self) -> tuple[Ints, Masks]:
        """(N,) tokens of every mask with the whole output, and (N,) whether it is read exactly."""
        sequences, cached = self._sequences, self._cheap
        length, outputs = len(sequences.ids), len(sequences.output_ids)
        tokens = np.where(cached, length - sequences.tail + outputs, self._lengths)
        exact = ~cached
        if self._masks[0].all():
            tokens[0] += length * cached[0]  # which the others look back at
            exact[0] = True  # with nothing removed both ways are the same
        return tokens, exact

    @cached_property
    def _lengths(self) -> Ints:
        return self._sequences.lengths(self._masks)


def _words(masks: Masks) -> Ints:
    """(n / 32, N) masks as numbers that are ordered as the masks are, the first features first."""
    packed = np.packbits(masks, axis=1)
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4)))
    return np.ascontiguousarray(padded).view(">u4").astype(np.int64).T


class Several(SequenceOf[Row]):
    """The rows of several prompts, one prompt behind the other; their masks are numbered through."""

    def __init__(self, parts: SequenceOf[Rows], beside: SequenceOf[bool]) -> None:
        """Take the rows of each prompt, and whether it is the one before it with another output."""
        self._parts, self._beside = parts, np.asarray(beside)
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        self.numbers = np.cumsum([0, *(part.masks for part in parts)])  # of each prompt's first mask

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, number: int) -> Row: ...

    @overload
    def __getitem__(self, number: slice) -> SequenceOf[Row]: ...

    def __getitem__(self, number: int | slice) -> Row | SequenceOf[Row]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        part = int(np.searchsorted(self._starts, number, "right")) - 1
        row = self._parts[part][number - int(self._starts[part])]
        return replace(row, index=row.index + int(self.numbers[part]))

    @property
    def reach(self) -> int:
        """The position behind the last token of the row that reaches farthest."""
        return max(part.reach for part in self._parts)

    def alone(self, run: Ints) -> Ints:
        """How many tokens each prompt would have run by itself, out of what was run of each row.

        What it shares with the prompt before it is its first row's; whatever else is read with it, an
        explanation says the same about its cost.
        """
        firsts = self._starts[:-1]
        shared = np.array([part[0].length for part in self._parts]) - run[firsts]
        return np.asarray(np.add.reduceat(run, firsts) + np.where(self._beside, 0, shared))
