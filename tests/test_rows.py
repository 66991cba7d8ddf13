"""Masks become rows of tokens, and rows become batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.passes import Ints
from ropelime.surrogate.base import Removal
from ropelime.surrogate.rows import Row, Sequences, batches


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def sequences(how: str = "delete", owner: tuple[int, ...] = (-1, 0, 0, 1, -1, 2)) -> Sequences:
    """Tokens 10, 11, ... with the output 90, 91; the placeholder is 70, 71."""
    ids = 10 + np.arange(len(owner))
    return Sequences(ids, ints(*owner), ints(90, 91), Removal(how), ints(70, 71), ints(1))


def shown(row: Row) -> dict[str, Any]:
    return {"ids": row.ids.tolist(), "at": row.positions.tolist(), "owner": row.owner.tolist()}


def mask(*kept: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array(kept, dtype=bool)


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
def test_the_full_mask_is_the_prompt_itself(how: str) -> None:
    row = sequences(how).row(0, mask(1, 1, 1), share=False)
    assert shown(row) == {
        "ids": [10, 11, 12, 13, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5, 6, 7],
        "owner": [-1, 0, 0, 1, -1, 2, -1, -1],
    }


def test_delete_closes_the_gap() -> None:
    row = sequences("delete").row(5, mask(0, 1, 1), share=False)
    assert row.index == 5
    assert row.length == 6
    assert shown(row) == {
        "ids": [10, 13, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5],
        "owner": [-1, 1, -1, 2, -1, -1],
    }


def test_in_place_keeps_every_position() -> None:
    row = sequences("in-place").row(0, mask(0, 1, 0), share=False)
    assert shown(row) == {
        "ids": [10, 13, 14, 90, 91],
        "at": [0, 3, 4, 6, 7],
        "owner": [-1, 1, -1, -1, -1],
    }


def test_a_placeholder_for_every_removed_feature() -> None:
    row = sequences("placeholder").row(0, mask(0, 0, 1), share=False)
    assert shown(row) == {
        "ids": [10, 70, 71, 70, 71, 14, 15, 90, 91],
        "at": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        "owner": [-1, -1, -1, -1, -1, -1, 2, -1, -1],
    }


def test_one_placeholder_for_a_feature_with_a_pinned_token_inside() -> None:
    row = sequences("placeholder", (0, -1, 0, 1)).row(0, mask(0, 1), share=False)
    assert row.ids.tolist() == [70, 71, 11, 13, 90, 91]


@pytest.mark.parametrize("how", ["delete", "in-place"])
def test_nothing_left_is_the_beginning_of_a_text(how: str) -> None:
    for share in (False, True):
        row = sequences(how, (0, 0, 1)).row(0, mask(0, 0), share=share)
        assert row.ids.tolist() == [1, 90, 91]
        assert row.positions.tolist() == ([0, 1, 2] if how == "delete" else [0, 3, 4])
        assert row.owner.tolist() == [-1, -1, -1]
        assert row.shared == 0


def test_an_empty_placeholder_deletes() -> None:
    empty = Sequences(ints(10, 11), ints(0, 1), ints(90), Removal("placeholder", ""), ints(), ints(1))
    assert empty.row(0, mask(0, 1), share=False).ids.tolist() == [11, 90]
    assert empty.row(0, mask(0, 0), share=False).ids.tolist() == [1, 90]


def test_sharing_leaves_what_follows_the_first_removed_token() -> None:
    row = sequences().row(0, mask(1, 0, 1), share=True)
    assert row.shared == 3
    assert shown(row) == {"ids": [14, 15, 90, 91], "at": [3, 4, 5, 6], "owner": [-1, 2, -1, -1]}


def test_sharing_leaves_one_token_to_predict_the_output() -> None:
    row = sequences().row(0, mask(1, 1, 0), share=True)  # the last token of the prompt is removed
    assert row.shared == 4
    assert row.ids.tolist() == [14, 90, 91]


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.sampled_from(["delete", "in-place", "placeholder"]),
)
def test_shared_tokens_and_the_rest_are_the_whole_row(
    owner: list[int], kept: list[bool], how: str
) -> None:
    made = sequences(how, tuple(sorted(owner)))
    whole, rest = (made.row(0, np.array(kept), share=share) for share in (False, True))
    assert whole.ids.tolist() == [*made.ids[: rest.shared], *rest.ids]
    assert whole.owner.tolist() == [*made.owner[: rest.shared], *rest.owner]
    assert whole.positions.tolist() == [*range(rest.shared), *rest.positions]
    assert rest.length > len(made.output_ids)


def rows(*lengths: int) -> list[Row]:
    blank = [np.zeros(length, dtype=np.int64) for length in lengths]
    return [Row(i, row, row, row, shared=0) for i, row in enumerate(blank)]


def test_batches_hold_rows_of_like_length() -> None:
    got = list(batches(rows(3, 9, 4, 8, 1), tokens=18, most=10))
    assert [[row.length for row in batch] for batch in got] == [[9, 8], [4, 3, 1]]


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 90), st.integers(1, 5), st.randoms())
def test_batches_keep_their_limits(lengths: list[int], tokens: int, most: int, rng: Any) -> None:
    given_rows = rows(*lengths)
    got = list(batches(given_rows, tokens=tokens, most=most))
    assert sorted(row.index for batch in got for row in batch) == list(range(len(lengths)))
    for batch in got:
        assert len(batch) <= most
        assert len(batch) == 1 or len(batch) * max(row.length for row in batch) <= tokens
    rng.shuffle(given_rows)
    again = list(batches(given_rows, tokens=tokens, most=most))
    assert [[r.index for r in batch] for batch in again] == [[r.index for r in batch] for batch in got]
