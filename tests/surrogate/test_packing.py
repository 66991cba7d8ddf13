"""Chunks of packed sequences: every token runs once, and attends to its own sequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.surrogate.base import Ablation
from ropelime.surrogate.packing import Chunk, Cursor, Packer
from ropelime.surrogate.sequences import MaskedSequences
from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.typing import Masks

Token = tuple[int, int]  # id and position


def tokenized(owner: list[int], *, how: str = "delete", outputs: int = 2) -> TokenizedPrompt:
    ids = 10 + np.arange(len(owner))
    output = 90 + np.arange(outputs)
    return TokenizedPrompt(ids, np.array(owner), output, Ablation(how), np.array([70]), np.array([1]))


def chunks(packer: Packer, *, tokens: int, outputs: int = 99) -> list[Chunk]:
    cursor, found = Cursor(), []
    while not packer.finished(cursor):
        chunk, cursor = packer.chunk(cursor, tokens=tokens, outputs=outputs)
        found.append(chunk)
    return found


def tokens_of(sequence: TokenSequence) -> list[Token]:
    return list(zip(sequence.ids.tolist(), sequence.positions.tolist(), strict=True))


def replay(found: list[Chunk]) -> dict[int, list[list[Token]]]:
    """Play the chunks with a real cache: for each mask what each predicting token attends to."""
    cache: dict[int, Token] = {}
    seen: dict[int, list[list[Token]]] = {}
    for chunk in found:
        own = list(zip(chunk.ids.tolist(), chunk.positions.tolist(), strict=True))
        pool = [cache.get(i, (-1, -1)) for i in range(chunk.n_cached)] + own
        for segment in chunk.segments:
            assert segment.keys[-1] - chunk.n_cached == segment.stop - 1
        for at, (mask, token) in zip(chunk.outputs, chunk.scored, strict=True):
            segment = next(s for s in chunk.segments if s.start <= at < s.stop)
            visible = len(segment.keys) - (segment.stop - 1 - at)
            assert token < 0
            seen.setdefault(int(mask), []).append([pool[k] for k in segment.keys[:visible]])
        for source, target in zip(chunk.store_from, chunk.store_to, strict=True):
            cache[int(target)] = own[source]
    return seen


def expected(sequences: MaskedSequences) -> dict[int, list[list[Token]]]:
    full = tokens_of(sequences[0])
    found = {}
    for sequence in sequences:
        before = (
            []
            if sequence.prefix_mask is None
            else [full[at] for at in np.flatnonzero(sequence.prefix_mask)]
        )
        every = before + tokens_of(sequence)
        ends = range(len(every) - sequence.n_outputs + 1, len(every) + 1)
        if sequence.n_outputs:
            found[sequence.index] = [every[:end] for end in ends]
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
def test_every_prediction_attends_to_the_whole_of_its_own_sequence(
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
    made = tokenized(owner, how=how, outputs=answer)
    sequences = MaskedSequences(made, masks, cached=cached and how == "delete")
    packer = Packer(sequences)
    found = chunks(packer, tokens=tokens, outputs=outputs)
    assert replay(found) == expected(sequences)
    assert sum(len(chunk.ids) for chunk in found) == packer.tokens
    looked = [
        len(segment.keys) - at
        for chunk in found
        for segment in chunk.segments
        for at in range(segment.stop - segment.start)
    ]
    assert sum(looked) == packer.pairs
    cursor = Cursor()
    for chunk in found:  # what has been run is known wherever a chunk ends
        _, following = packer.chunk(cursor, tokens=tokens, outputs=outputs)
        before, after = packer.run_before(cursor), packer.run_before(following)
        seen = [looked.pop(0) for _ in chunk.ids]
        assert (after[0] - before[0], after[1] - before[1]) == (len(seen), sum(seen))
        cursor = following
    longest_tail = max((sequence.length for sequence in sequences if sequence.cached), default=0)
    assert all(len(chunk.ids) <= max(tokens, longest_tail) for chunk in found)
    assert all(len(chunk.outputs) <= max(outputs, answer) for chunk in found)
    done = [sequence.index for chunk in found for sequence in chunk.finished if sequence.n_outputs]
    assert sorted(done) == list(range(len(masks)))
    for chunk in found:
        assert np.all(np.diff(chunk.scored[:, 1])[np.diff(chunk.scored[:, 0]) == 0] == 1)


def leave_one_out(n: int) -> Masks:
    return np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])


@pytest.mark.parametrize("tokens", [50, 100_000])
def test_leave_one_out_costs_about_half(tokens: int) -> None:
    n = 40
    packer = Packer(
        MaskedSequences(tokenized(np.repeat(np.arange(n), 10).tolist()), leave_one_out(n), cached=False)
    )
    naive = sum(sequence.length for sequence in packer.sequences)
    assert 0.45 < packer.tokens / naive < 0.55
    assert sum(len(c.ids) for c in chunks(packer, tokens=tokens)) == packer.tokens


def test_a_common_beginning_is_run_once() -> None:
    """Thirty pinned tokens before the features, and masks that have nothing else in common."""
    masks = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1]], dtype=bool)
    packer = Packer(MaskedSequences(tokenized([-1] * 30 + [0, 1, 2, -1]), masks, cached=False))
    assert packer.shared.tolist() == [0, 30, 30]
    assert packer.tokens == 34 + 1 + 2 * 3


def test_the_cache_holds_no_more_than_what_is_attended_to() -> None:
    masks = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1]], dtype=bool)
    packer = Packer(MaskedSequences(tokenized([0, 1, 2, 3, -1]), masks, cached=False))
    first, after = packer.chunk(Cursor(), tokens=6, outputs=9)
    assert (first.store_to.tolist(), after.n_cached) == ([0], 1)
    assert packer.capacity == 6


def test_keys_bound_a_chunk_too() -> None:
    """Short tails that attend to a long prompt would gather many keys at once."""
    masks = leave_one_out(200)
    packer = Packer(MaskedSequences(tokenized([*range(200), -1]), masks, cached=True))
    cursor = Cursor()
    while not packer.finished(cursor):
        chunk, cursor = packer.chunk(cursor, tokens=100, outputs=99, keys=800)
        assert len(chunk.segments) == 1 or sum(len(s.keys) for s in chunk.segments) <= 800
