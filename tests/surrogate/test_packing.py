"""Chunks of packed rows: every token runs once, and sees the path of its own row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.surrogate.base import Ablation
from ropelime.surrogate.packing import Chunk, Packer, Place
from ropelime.surrogate.sequences import Row, Rows, Sequences
from ropelime.typing import Masks

Token = tuple[int, int]  # id and position


def sequences(owner: list[int], *, how: str = "delete", outputs: int = 2) -> Sequences:
    ids = 10 + np.arange(len(owner))
    output = 90 + np.arange(outputs)
    return Sequences(ids, np.array(owner), output, Ablation(how), np.array([70]), np.array([1]))


def chunks(packer: Packer, *, tokens: int, outputs: int = 99) -> list[Chunk]:
    place, found = Place(), []
    while not packer.finished(place):
        chunk, place = packer.chunk(place, tokens=tokens, outputs=outputs)
        found.append(chunk)
    return found


def tokens_of(row: Row) -> list[Token]:
    return list(zip(row.ids.tolist(), row.positions.tolist(), strict=True))


def replay(found: list[Chunk]) -> dict[int, list[list[Token]]]:
    """Play the chunks with a real stack: for each mask what each of its readings has seen."""
    stack: dict[int, Token] = {}
    seen: dict[int, list[list[Token]]] = {}
    for chunk in found:
        own = list(zip(chunk.ids.tolist(), chunk.positions.tolist(), strict=True))
        pool = [stack.get(i, (-1, -1)) for i in range(chunk.stacked)] + own
        for segment in chunk.segments:
            assert segment.keys[-1] - chunk.stacked == segment.stop - 1
        for at, (mask, token) in zip(chunk.outputs, chunk.scoring, strict=True):
            segment = next(s for s in chunk.segments if s.start <= at < s.stop)
            visible = len(segment.keys) - (segment.stop - 1 - at)
            assert token < 0
            seen.setdefault(int(mask), []).append([pool[k] for k in segment.keys[:visible]])
        for source, target in zip(chunk.source, chunk.target, strict=True):
            stack[int(target)] = own[source]
    return seen


def expected(rows: Rows) -> dict[int, list[list[Token]]]:
    full = tokens_of(rows[0])
    found = {}
    for row in rows:
        before = [] if row.sees is None else [full[at] for at in np.flatnonzero(row.sees)]
        every = before + tokens_of(row)
        ends = range(len(every) - row.outputs + 1, len(every) + 1)
        if row.outputs:
            found[row.index] = [every[:end] for end in ends]
    return found


@given(
    owner=st.lists(st.integers(-1, 4), min_size=2, max_size=14),
    drawn=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=12),
    how=st.sampled_from(["delete", "in-place", "placeholder"]),
    cached=st.booleans(),
    tokens=st.integers(1, 60),
    outputs=st.integers(1, 9),
    answer=st.integers(1, 4),
)
def test_every_reading_sees_the_whole_of_its_own_row(
    owner: list[int],
    drawn: list[list[bool]],
    how: str,
    cached: bool,
    tokens: int,
    outputs: int,
    answer: int,
) -> None:
    owner = sorted(owner)
    if max(owner) < 0:
        owner[-1] = 0
    masks = np.unique(np.array([[True] * 5, *drawn], dtype=bool), axis=0)[::-1]
    made = sequences(owner, how=how, outputs=answer)
    rows = Rows(made, masks, cached=cached and how == "delete")
    packer = Packer(rows)
    found = chunks(packer, tokens=tokens, outputs=outputs)
    assert replay(found) == expected(rows)
    assert sum(len(chunk.ids) for chunk in found) == packer.tokens
    looked = [
        len(segment.keys) - at
        for chunk in found
        for segment in chunk.segments
        for at in range(segment.stop - segment.start)
    ]
    assert sum(looked) == packer.pairs
    longest_tail = max((row.length for row in rows if not row.whole), default=0)
    assert all(len(chunk.ids) <= max(tokens, longest_tail) for chunk in found)
    assert all(len(chunk.outputs) <= max(outputs, answer) for chunk in found)
    done = [row.index for chunk in found for row in chunk.finished if row.outputs]
    assert sorted(done) == list(range(len(masks)))
    for chunk in found:
        assert np.all(np.diff(chunk.scoring[:, 1])[np.diff(chunk.scoring[:, 0]) == 0] == 1)


def leave_one_out(n: int) -> Masks:
    return np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])


@pytest.mark.parametrize("tokens", [50, 100_000])
def test_leave_one_out_costs_about_half(tokens: int) -> None:
    n = 40
    packer = Packer(
        Rows(sequences(np.repeat(np.arange(n), 10).tolist()), leave_one_out(n), cached=False)
    )
    naive = sum(row.length for row in packer.rows)
    assert 0.45 < packer.tokens / naive < 0.55
    assert sum(len(c.ids) for c in chunks(packer, tokens=tokens)) == packer.tokens


def test_a_common_beginning_is_run_once() -> None:
    """Thirty pinned tokens before the features, and masks that have nothing else in common."""
    masks = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1]], dtype=bool)
    packer = Packer(Rows(sequences([-1] * 30 + [0, 1, 2, -1]), masks, cached=False))
    assert packer.shared.tolist() == [0, 30, 30]
    assert packer.tokens == 34 + 1 + 2 * 3


def test_the_stack_holds_no_more_than_what_is_looked_back_at() -> None:
    masks = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1]], dtype=bool)
    packer = Packer(Rows(sequences([0, 1, 2, 3, -1]), masks, cached=False))
    first, after = packer.chunk(Place(), tokens=6, outputs=9)
    assert (first.target.tolist(), after.stacked) == ([0], 1)
    assert packer.capacity == 6


def test_keys_bound_a_chunk_too() -> None:
    """Short tails that look back at a long prompt would gather many keys at once."""
    masks = leave_one_out(200)
    packer = Packer(Rows(sequences([*range(200), -1]), masks, cached=True))
    place = Place()
    while not packer.finished(place):
        chunk, place = packer.chunk(place, tokens=100, outputs=99, keys=800)
        assert len(chunk.segments) == 1 or sum(len(s.keys) for s in chunk.segments) <= 800
