"""Masks become sequences of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.surrogate import tokens as tokens_module
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.sequences import MaskedSequences
from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.typing import Ints


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def tokenized(how: str = "delete", owner: tuple[int, ...] = (-1, 0, 0, 1, -1, 2)) -> TokenizedPrompt:
    """Tokens 10, 11, ... with the output 90, 91, 92; the placeholder is 70, 71."""
    ids = 10 + np.arange(len(owner))
    return TokenizedPrompt(ids, ints(*owner), ints(90, 91, 92), Ablation(how), ints(70, 71), ints(1))


def shown(sequence: TokenSequence) -> dict[str, Any]:
    return {
        "ids": sequence.ids.tolist(),
        "at": sequence.positions.tolist(),
        "owner": sequence.owner.tolist(),
    }


def mask(*kept: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array(kept, dtype=bool)


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
def test_the_full_mask_is_the_prompt_itself(how: str) -> None:
    sequence = tokenized(how).sequence(0, mask(1, 1, 1))
    assert shown(sequence) == {
        "ids": [10, 11, 12, 13, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5, 6, 7],
        "owner": [-1, 0, 0, 1, -1, 2, -1, -1],
    }


def test_delete_closes_the_gap() -> None:
    sequence = tokenized("delete").sequence(5, mask(0, 1, 1))
    assert sequence.index == 5
    assert sequence.length == 6
    assert shown(sequence) == {
        "ids": [10, 13, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5],
        "owner": [-1, 1, -1, 2, -1, -1],
    }


def test_in_place_keeps_every_position() -> None:
    sequence = tokenized("in-place").sequence(0, mask(0, 1, 0))
    assert shown(sequence) == {
        "ids": [10, 13, 14, 90, 91],
        "at": [0, 3, 4, 6, 7],
        "owner": [-1, 1, -1, -1, -1],
    }


def test_a_placeholder_for_every_removed_feature() -> None:
    sequence = tokenized("placeholder").sequence(0, mask(0, 0, 1))
    assert shown(sequence) == {
        "ids": [10, 70, 71, 70, 71, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        "owner": [-1, -1, -1, -1, -1, -1, 2, -1, -1],
    }


def test_one_placeholder_for_a_feature_with_a_pinned_token_inside() -> None:
    sequence = tokenized("placeholder", (0, -1, 0, 1)).sequence(0, mask(0, 1))
    assert sequence.ids.tolist() == [70, 71, 11, 13, 90, 91]


@pytest.mark.parametrize("how", ["delete", "in-place"])
def test_nothing_left_is_the_beginning_of_a_text(how: str) -> None:
    sequence = tokenized(how, (0, 0, 1)).sequence(0, mask(0, 0))
    assert sequence.ids.tolist() == [1, 90, 91]
    assert sequence.positions.tolist() == ([0, 1, 2] if how == "delete" else [0, 3, 4])
    assert sequence.owner.tolist() == [-1, -1, -1]


def test_an_empty_placeholder_deletes() -> None:
    empty = TokenizedPrompt(
        ints(10, 11), ints(0, 1), ints(90), Ablation("placeholder", ""), ints(), ints(1)
    )
    assert empty.sequence(0, mask(0, 1)).ids.tolist() == [11]
    assert empty.sequence(0, mask(0, 0)).ids.tolist() == [1]


def test_the_last_token_of_the_output_is_not_run() -> None:
    sequence = tokenized().sequence(0, mask(1, 1, 1))
    assert sequence.n_outputs == 3
    assert sequence.ids[-sequence.n_outputs :].tolist() == [15, 90, 91]  # these predict 90, 91 and 92


def test_a_tail_attends_to_what_is_kept() -> None:
    made = tokenized(owner=(-1, 0, 0, 1, -1, -1))
    sequence = made.cached_sequence(3, mask(0, 1))
    assert shown(sequence) == {"ids": [14, 15, 90, 91], "at": [4, 5, 6, 7], "owner": [-1, -1, -1, -1]}
    assert sequence.prefix_mask is not None
    assert np.flatnonzero(sequence.prefix_mask).tolist() == [0, 3]
    assert made.can_be_cached(np.array([mask(0, 0), mask(1, 1)])).all()
    assert not tokenized().can_be_cached(mask(1, 1, 0)[None]).any()  # the last feature is the tail


def test_sequences_that_begin_alike_are_neighbours() -> None:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=bool)
    sequences = MaskedSequences(tokenized(), masks, cached=False)
    assert [sequence.index for sequence in sequences] == [0, 4, 2, 1, 3]
    assert [sequence.index for sequence in sequences[1:3]] == [4, 2]
    cached = MaskedSequences(
        tokenized(), masks, cached=True
    )  # only the mask without the last feature is exact
    assert cached[0].ids.tolist() == [10, 11, 12, 13, 14, 15]  # what the others attend to
    assert cached[0].n_outputs == 0
    assert [(sequence.index, sequence.cached) for sequence in cached] == [
        (0, False),
        (0, True),
        (2, True),
        (1, True),
        (3, True),
        (4, False),
    ]


def test_the_question_is_scored_where_a_mask_leaves_it_alone() -> None:
    made = tokenized(owner=(-1, 0, 0, 1, -1, -1, -1))
    assert (made.tail, made.n_question) == (4, 2)
    masks = np.array([[1, 1], [0, 1]], dtype=bool)
    for cached in (False, True):
        sequences = [
            sequence
            for sequence in MaskedSequences(made, masks, cached=cached, n_question=made.n_question)
            if sequence.n_outputs
        ]
        assert [sequence.n_outputs for sequence in sequences] == [
            5,
            5,
        ]  # two of the question and three of the output
        assert all(sequence.ids[-5:].tolist() == [14, 15, 16, 90, 91] for sequence in sequences)
    within = MaskedSequences(
        tokenized(), np.array([[1, 1, 1], [1, 1, 0]], dtype=bool), cached=False, n_question=1
    )
    assert [sequence.n_outputs for sequence in within] == [4, 3]


@given(
    owner=st.lists(st.integers(-1, 19), min_size=2, max_size=60),
    drawn=st.lists(st.sets(st.integers(0, 19)), max_size=6),
    how=st.sampled_from(["delete", "in-place", "placeholder"]),
    cached=st.booleans(),
    few=st.sampled_from([1, 8, 1000]),
)
def test_sizes_are_known_without_building_the_sequences(
    owner: list[int], drawn: list[set[int]], how: str, cached: bool, few: int
) -> None:
    owner[0] = max(0, owner[0])
    made = tokenized(how, tuple(owner))
    masks = np.ones((1 + len(drawn), 20), dtype=bool)
    for number, kept in enumerate(drawn, 1):
        masks[number] = np.isin(np.arange(20), list(kept))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tokens_module, "_FEW", few
        )  # few tokens are gathered, many are found in the prompt
        sequences = MaskedSequences(made, masks, cached=cached)
        tokens, exact = sequences.costs()
        found = list(sequences)
    length, whole = np.zeros(len(masks), dtype=int), np.ones(len(masks), dtype=bool)
    for sequence in found:
        left = np.isin(made.owner, np.flatnonzero(masks[sequence.index])) | (made.owner < 0)
        if sequence.prefix_mask is not None:
            assert sequence.prefix_mask.tolist() == left[: made.tail].tolist()
            whole[sequence.index] = sequence.index == 0
        elif how == "delete" and sequence.n_outputs and left.any():
            assert sequence.ids[:-2].tolist() == made.ids[left].tolist()
        length[sequence.index] += sequence.length + (sequence.n_outputs > 0)
    assert tokens.tolist() == length.tolist()
    assert exact.tolist() == whole.tolist()
    assert sequences.max_end == max(sequence.end for sequence in found)


def test_sequences_are_ordered_as_their_masks_are() -> None:
    masks = np.random.default_rng(0).random((50, 75)) < 0.5
    masks[0], masks[25:, :40] = True, masks[:25, :40]
    sequences = MaskedSequences(tokenized(owner=tuple(range(75))), masks, cached=False)
    gone = [(~masks[sequence.index]).tolist() for sequence in sequences]
    assert gone[1:] == sorted(gone[1:])
    assert sequences[0].index == 0
