"""The token sequences of many masks, in an order that lets neighbours share their prefixes.

Sequences are built when they are needed: all of them together need not fit into memory. Pure
arithmetic on arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import overload

import numpy as np

from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.typing import Ints, Masks

_PREFIX = -1  # stands for the unmasked prompt alone among the numbers of masks


class LazySequences(Sequence[TokenSequence]):
    """Token sequences that are built when they are asked for."""

    @abstractmethod
    def build(self, number: int) -> TokenSequence:
        """The sequence of that number, counted from 0."""

    @property
    @abstractmethod
    def max_end(self) -> int:
        """The position behind the last token of the sequence that reaches farthest."""

    @overload
    def __getitem__(self, number: int) -> TokenSequence: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[TokenSequence]: ...

    def __getitem__(self, number: int | slice) -> TokenSequence | Sequence[TokenSequence]:
        if isinstance(number, slice):
            return [self.build(i) for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self.build(number)


class MaskedSequences(LazySequences):
    """The sequences of many masks over one tokenised prompt."""

    def __init__(
        self, tokenized: TokenizedPrompt, masks: Masks, *, cached: bool, n_question: int = 0
    ) -> None:
        """Order the masks so that neighbours begin alike.

        Args:
            tokenized: The prompt and the output.
            masks: (N, n) distinct masks, the first of them all ones.
            cached: Whether sequences attend to the cached prompt where they can. The unmasked prompt
                is then run alone first, and its own scores use the cache as well, so that all scores
                round alike.
            n_question: How many tokens before the output are scored too, for masks that leave them
                as they are.
        """
        self._tokenized, self._masks, self._n_question = tokenized, masks, n_question
        able, never = tokenized.can_be_cached(masks), np.zeros(len(masks), dtype=bool)
        self._scores_question = able if n_question else never
        self._cached = able if cached else never
        # Cached sequences, then the others with kept features first; the full mask before all others.
        # The empty one second if the prefix is cached: with both, an interrupted run can be explained.
        turn = np.minimum(np.arange(len(masks)), 2 if cached and not masks[1:2].any() else 1)
        order = np.lexsort((*_words(~masks)[::-1], ~self._cached, turn))
        self._order = np.concatenate([[_PREFIX], order]) if cached else order

    def __len__(self) -> int:
        return len(self._order)

    @property
    def n_masks(self) -> int:
        """How many masks there are."""
        return len(self._masks)

    def build(self, number: int) -> TokenSequence:
        """The sequence of that number in this order."""
        index = int(self._order[number])
        if index == _PREFIX:
            return self._tokenized.prefix()
        cached = self._cached[index]
        make = self._tokenized.cached_sequence if cached else self._tokenized.sequence
        sequence = make(index, self._masks[index])
        if not self._scores_question[index]:
            return sequence
        return replace(sequence, n_outputs=sequence.n_outputs + self._n_question)

    @property
    def max_end(self) -> int:
        """The position behind the last token of the sequence that reaches farthest."""
        tokenized = self._tokenized
        keeps_positions = self._cached.any() or tokenized.ablation.how == "in-place"
        whole = len(tokenized.ids) + len(tokenized.output_ids) if keeps_positions else 0
        return max(whole, int(self._lengths[~self._cached].max(initial=0))) - 1

    def costs(self) -> tuple[Ints, Masks]:
        """(N,) tokens of each mask with the whole output, and (N,) whether its scores are exact."""
        tokenized, cached = self._tokenized, self._cached
        length, outputs = len(tokenized.ids), len(tokenized.output_ids)
        tokens = np.where(cached, length - tokenized.tail + outputs, self._lengths)
        exact = ~cached
        if self._masks[0].all():
            tokens[0] += length * cached[0]  # the prefix that the others attend to
            exact[0] = True  # with nothing removed both ways are the same
        return tokens, exact

    @cached_property
    def _lengths(self) -> Ints:
        return self._tokenized.lengths(self._masks)


class JoinedSequences(LazySequences):
    """The sequences of several requests, one request after the other; masks are numbered through.

    Attributes:
        first_masks: The number of each request's first mask, and behind the last one their count.
    """

    def __init__(self, requests: Sequence[MaskedSequences], shares_previous: Sequence[bool]) -> None:
        """Join requests.

        Args:
            requests: The sequences of each request.
            shares_previous: Whether a request is the prompt before it with another output.
        """
        self._requests, self._shares_previous = requests, np.asarray(shares_previous)
        self._starts = np.cumsum([0, *(len(request) for request in requests)])
        self.first_masks = np.cumsum([0, *(request.n_masks for request in requests)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def build(self, number: int) -> TokenSequence:
        """The sequence of that number, with the number of its mask among all masks."""
        request = int(np.searchsorted(self._starts, number, "right")) - 1
        sequence = self._requests[request].build(number - int(self._starts[request]))
        return replace(sequence, index=sequence.index + int(self.first_masks[request]))

    @property
    def max_end(self) -> int:
        """The position behind the last token of the sequence that reaches farthest."""
        return max(request.max_end for request in self._requests)

    def tokens_alone(self, run: Ints) -> Ints:
        """How many tokens each request would have run by itself, out of what was run of each sequence.

        Only its first sequence can share a prefix with the request before it. An explanation reports
        the same cost whatever was scored with it.
        """
        firsts = self._starts[:-1]
        shared = np.array([request[0].length for request in self._requests]) - run[firsts]
        return np.asarray(np.add.reduceat(run, firsts) + np.where(self._shares_previous, 0, shared))


def _words(masks: Masks) -> Ints:
    """(n / 32, N) masks as numbers in the order of the masks, the first features first."""
    packed = np.packbits(masks, axis=1)
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4)))
    return np.ascontiguousarray(padded).view(">u4").astype(np.int64).T
