"""Masks become rows of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ropelime.passes import Ints
from ropelime.surrogate.base import Removal
from ropelime.surrogate.rows import Row, Rows, Sequences


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def sequences(how: str = "delete", owner: tuple[int, ...] = (-1, 0, 0, 1, -1, 2)) -> Sequences:
    """Tokens 10, 11, ... with the output 90, 91, 92; the placeholder is 70, 71."""
    ids = 10 + np.arange(len(owner))
    return Sequences(ids, ints(*owner), ints(90, 91, 92), Removal(how), ints(70, 71), ints(1))


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
    empty = Sequences(ints(10, 11), ints(0, 1), ints(90), Removal("placeholder", ""), ints(), ints(1))
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
    assert row.past is not None
    assert row.past.tolist() == [0, 3]
    assert made.can_look_back(mask(0, 0))
    assert not sequences().can_look_back(mask(1, 1, 0))  # the last feature is the tail itself


def test_rows_come_with_those_that_begin_alike_together() -> None:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=bool)
    rows = Rows(sequences(), masks, cheap=False)
    assert [row.index for row in rows] == [0, 4, 2, 1, 3]
    assert [row.index for row in rows[1:3]] == [4, 2]
    cheap = Rows(sequences(), masks, cheap=True)  # only the mask without the last feature is exact
    assert cheap[0].ids.tolist() == [10, 11, 12, 13, 14, 15]  # what the others look back at
    assert cheap[0].outputs == 0
    assert [(row.index, row.past is None) for row in cheap] == [
        (0, True),
        (0, False),
        (2, False),
        (1, False),
        (3, False),
        (4, True),
    ]


def test_the_question_is_read_where_a_mask_leaves_it_alone() -> None:
    made = sequences(owner=(-1, 0, 0, 1, -1, -1, -1))
    assert (made.tail, made.asked) == (4, 2)
    masks = np.array([[1, 1], [0, 1]], dtype=bool)
    for cheap in (False, True):
        rows = [row for row in Rows(made, masks, cheap=cheap, asked=made.asked) if row.outputs]
        assert [row.outputs for row in rows] == [5, 5]  # two of the question and three of the output
        assert all(row.ids[-5:].tolist() == [14, 15, 16, 90, 91] for row in rows)
    within = Rows(sequences(), np.array([[1, 1, 1], [1, 1, 0]], dtype=bool), cheap=False, asked=1)
    assert [row.outputs for row in within] == [4, 3]
