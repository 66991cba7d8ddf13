"""Masks become rows of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.surrogate import sequences as rows_module
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.sequences import Row, Rows, Sequences
from ropelime.typing import Ints


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def sequences(how: str = "delete", owner: tuple[int, ...] = (-1, 0, 0, 1, -1, 2)) -> Sequences:
    """Tokens 10, 11, ... with the output 90, 91, 92; the placeholder is 70, 71."""
    ids = 10 + np.arange(len(owner))
    return Sequences(ids, ints(*owner), ints(90, 91, 92), Ablation(how), ints(70, 71), ints(1))


def shown(row: Row) -> dict[str, Any]:
    return {"ids": row.ids.tolist(), "at": row.positions.tolist(), "owner": row.owner.tolist()}


def mask(*kept: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array(kept, dtype=bool)


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
def test_the_full_mask_is_the_prompt_itself(how: str) -> None:
    row = sequences(how).row(0, mask(1, 1, 1))
    assert shown(row) == {
        "ids": [10, 11, 12, 13, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5, 6, 7],
        "owner": [-1, 0, 0, 1, -1, 2, -1, -1],
    }


def test_delete_closes_the_gap() -> None:
    row = sequences("delete").row(5, mask(0, 1, 1))
    assert row.index == 5
    assert row.length == 6
    assert shown(row) == {
        "ids": [10, 13, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5],
        "owner": [-1, 1, -1, 2, -1, -1],
    }


def test_in_place_keeps_every_position() -> None:
    row = sequences("in-place").row(0, mask(0, 1, 0))
    assert shown(row) == {
        "ids": [10, 13, 14, 90, 91],
        "at": [0, 3, 4, 6, 7],
        "owner": [-1, 1, -1, -1, -1],
    }


def test_a_placeholder_for_every_removed_feature() -> None:
    row = sequences("placeholder").row(0, mask(0, 0, 1))
    assert shown(row) == {
        "ids": [10, 70, 71, 70, 71, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        "owner": [-1, -1, -1, -1, -1, -1, 2, -1, -1],
    }


def test_one_placeholder_for_a_feature_with_a_pinned_token_inside() -> None:
    row = sequences("placeholder", (0, -1, 0, 1)).row(0, mask(0, 1))
    assert row.ids.tolist() == [70, 71, 11, 13, 90, 91]


@pytest.mark.parametrize("how", ["delete", "in-place"])
def test_nothing_left_is_the_beginning_of_a_text(how: str) -> None:
    row = sequences(how, (0, 0, 1)).row(0, mask(0, 0))
    assert row.ids.tolist() == [1, 90, 91]
    assert row.positions.tolist() == ([0, 1, 2] if how == "delete" else [0, 3, 4])
    assert row.owner.tolist() == [-1, -1, -1]


def test_an_empty_placeholder_deletes() -> None:
    empty = Sequences(ints(10, 11), ints(0, 1), ints(90), Ablation("placeholder", ""), ints(), ints(1))
    assert empty.row(0, mask(0, 1)).ids.tolist() == [11]
    assert empty.row(0, mask(0, 0)).ids.tolist() == [1]


def test_the_last_token_of_the_output_is_not_run() -> None:
    row = sequences().row(0, mask(1, 1, 1))
    assert row.outputs == 3
    assert row.ids[-row.outputs :].tolist() == [15, 90, 91]  # these predict 90, 91 and 92


def test_a_tail_looks_back_at_what_is_kept() -> None:
    made = sequences(owner=(-1, 0, 0, 1, -1, -1))
    row = made.cheap_row(3, mask(0, 1))
    assert shown(row) == {"ids": [14, 15, 90, 91], "at": [4, 5, 6, 7], "owner": [-1, -1, -1, -1]}
    assert row.sees is not None
    assert np.flatnonzero(row.sees).tolist() == [0, 3]
    assert made.can_look_back(np.array([mask(0, 0), mask(1, 1)])).all()
    assert not sequences().can_look_back(mask(1, 1, 0)[None]).any()  # the last feature is the tail


def test_rows_come_with_those_that_begin_alike_together() -> None:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=bool)
    rows = Rows(sequences(), masks, cached=False)
    assert [row.index for row in rows] == [0, 4, 2, 1, 3]
    assert [row.index for row in rows[1:3]] == [4, 2]
    cached = Rows(sequences(), masks, cached=True)  # only the mask without the last feature is exact
    assert cached[0].ids.tolist() == [10, 11, 12, 13, 14, 15]  # what the others look back at
    assert cached[0].outputs == 0
    assert [(row.index, row.whole) for row in cached] == [
        (0, True),
        (0, False),
        (2, False),
        (1, False),
        (3, False),
        (4, True),
    ]


def test_the_question_is_read_where_a_mask_leaves_it_alone() -> None:
    made = sequences(owner=(-1, 0, 0, 1, -1, -1, -1))
    assert (made.tail, made.question) == (4, 2)
    masks = np.array([[1, 1], [0, 1]], dtype=bool)
    for cached in (False, True):
        rows = [row for row in Rows(made, masks, cached=cached, question=made.question) if row.outputs]
        assert [row.outputs for row in rows] == [5, 5]  # two of the question and three of the output
        assert all(row.ids[-5:].tolist() == [14, 15, 16, 90, 91] for row in rows)
    within = Rows(sequences(), np.array([[1, 1, 1], [1, 1, 0]], dtype=bool), cached=False, question=1)
    assert [row.outputs for row in within] == [4, 3]


@given(
    owner=st.lists(st.integers(-1, 19), min_size=2, max_size=60),
    drawn=st.lists(st.sets(st.integers(0, 19)), max_size=6),
    how=st.sampled_from(["delete", "in-place", "placeholder"]),
    cached=st.booleans(),
    few=st.sampled_from([1, 8, 1000]),
)
def test_sizes_are_known_without_making_the_rows(
    owner: list[int], drawn: list[set[int]], how: str, cached: bool, few: int
) -> None:
    owner[0] = max(0, owner[0])
    made = sequences(how, tuple(owner))
    masks = np.ones((1 + len(drawn), 20), dtype=bool)
    for number, kept in enumerate(drawn, 1):
        masks[number] = np.isin(np.arange(20), list(kept))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_FEW", few)  # few tokens are gathered, many are found in the prompt
        rows = Rows(made, masks, cached=cached)
        tokens, exact = rows.costs()
        found = list(rows)
    length, whole = np.zeros(len(masks), dtype=int), np.ones(len(masks), dtype=bool)
    for row in found:
        left = np.isin(made.owner, np.flatnonzero(masks[row.index])) | (made.owner < 0)
        if row.sees is not None:
            assert row.sees.tolist() == left[: made.tail].tolist()
            whole[row.index] = row.index == 0
        elif how == "delete" and row.outputs and left.any():
            assert row.ids[:-2].tolist() == made.ids[left].tolist()
        length[row.index] += row.length + (row.outputs > 0)
    assert tokens.tolist() == length.tolist()
    assert exact.tolist() == whole.tolist()
    assert rows.reach == max(row.end for row in found)


def test_rows_are_ordered_as_their_masks_are() -> None:
    masks = np.random.default_rng(0).random((50, 75)) < 0.5
    masks[0], masks[25:, :40] = True, masks[:25, :40]
    rows = Rows(sequences(owner=tuple(range(75))), masks, cached=False)
    gone = [(~masks[row.index]).tolist() for row in rows]
    assert gone[1:] == sorted(gone[1:])
    assert rows[0].index == 0
