"""Groups of sequences that attend to nearly the same cached tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.surrogate import cascade
from ropelime.surrogate.cascade import Cascade, CascadeGroup
from ropelime.typing import Masks


def grouped(seen: Masks, own: int = 1) -> tuple[tuple[CascadeGroup, ...], int]:
    """The groups of sequences in this order, and how many keys are gathered."""
    groups, gathered = Cascade(), 0
    for number, one in enumerate(seen):
        group, more = groups.offer(number, one, own)
        groups.take(group)
        gathered += more
    return groups.found(), gathered


@pytest.mark.parametrize("n", [400, 2000])
def test_leave_one_out_gathers_twice_the_root_of_as_many_prompts(n: int) -> None:
    tokens = 16
    seen = np.repeat(~np.eye(n, dtype=bool), tokens, axis=1)
    found, gathered = grouped(seen)
    assert gathered == pytest.approx(2 * n**0.5 * n * tokens, rel=0.05)
    assert sum(group.count for group in found) >= n - 1
    assert {group.count for group in found[:-1]} <= {
        round(n**0.5) - 1,
        round(n**0.5),
        round(n**0.5) + 1,
    }


def test_sparse_masks_and_short_prompts_are_left_alone() -> None:
    fewer = np.random.default_rng(0).random((50, 20_000)) < 0.45
    assert grouped(fewer) == ((), int(fewer.sum()) + 50)
    short = ~np.eye(900, dtype=bool)
    assert grouped(short)[0] == ()


def test_another_prefix_begins_another_group() -> None:
    seen = np.ones(5000, dtype=bool)
    groups = Cascade()
    for number in range(4):
        group, _ = groups.offer(number, seen, 3)
        groups.take(group)
        if number == 1:
            groups.close()
    assert [(group.first, group.count) for group in groups.found()] == [(0, 2), (2, 2)]
    group, more = groups.offer(4, seen[:-1], 3)
    assert (group.first, group.count, more) == (4, 1, 5002)


@given(
    seed=st.integers(0, 1000),
    kept=st.floats(0.0, 1.0),
    blocks=st.integers(1, 30),
    count=st.integers(1, 20),
)
def test_a_group_has_in_common_what_all_of_it_sees(
    seed: int, kept: float, blocks: int, count: int
) -> None:
    seen = np.repeat(np.random.default_rng(seed).random((count, blocks)) < kept, 7, axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "_LEAST", 1)
        found, gathered = grouped(seen)
    expected = int(seen.sum()) + count
    for group in found:
        mine = seen[group.first : group.first + group.count]
        assert group.common.tolist() == mine.all(0).tolist()
        assert group.longest == mine.sum(1).max() + 1
        assert 2 * group.shared > group.longest
        expected -= (group.count - 1) * int(group.common.sum())
    assert gathered == expected
