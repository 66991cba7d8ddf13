"""One contract for every sampler, and the known counts and sizes of each."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.errors import InputError
from ropelime.method.samplers import (
    MOST_EXHAUSTIVE,
    SAMPLERS,
    SPARSE_K_SETTINGS,
    Bernoulli,
    BestSparseK,
    Hadamard,
    Sample,
    SparseK,
    resolve_sampler,
)

SPECS = [
    *(name for name in SAMPLERS if name != "none"),
    *SPARSE_K_SETTINGS,
    "sparse-k:sqrt:M:removed",
    "sparse-k:2:16k:removed:64",
    "bernoulli:32:0.9",
    "mixed:leave-one-out+sparse-k/sqrt/M/2+bernoulli/16/0.3",
]


def draw(spec: object, n: int, budget: int | None = None, seed: int = 0) -> Sample:
    return resolve_sampler(spec).sample(n, budget=budget, rng=np.random.default_rng(seed))


def as_set(sample: Sample) -> set[tuple[bool, ...]]:
    return {tuple(row) for row in sample.masks.tolist()}


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 40), budget=st.none() | st.integers(1, 60), seed=st.integers(0, 99))
def test_contract(spec: str, n: int, budget: int | None, seed: int) -> None:
    n = min(n, 9) if spec == "exhaustive" else n
    sample = draw(spec, n, budget, seed)
    assert sample.masks.dtype == bool
    assert sample.masks.shape == (len(sample.masks), n)
    assert 1 <= len(sample.masks) <= sample.requested
    assert len(as_set(sample)) == len(sample.masks), "masks must be distinct"
    assert not sample.masks.all(1).any(), "the full prompt is read on top"
    assert budget is None or sample.requested == budget
    assert len(sample.masks) == sample.requested or sample.note
    again = draw(spec, n, budget, seed)
    assert np.array_equal(sample.masks, again.masks)


@pytest.mark.parametrize("budget", [None, 1, 40])
def test_none_draws_nothing_whatever_the_budget(budget: int | None) -> None:
    sample = draw("none", 7, budget)
    assert sample.masks.shape == (0, 7)
    assert sample.masks.dtype == bool
    assert (sample.requested, sample.note) == (0, "")


@pytest.mark.parametrize("spec", ["sparse-k", "bernoulli", "hadamard", "shapley"])
def test_another_seed_draws_other_masks(spec: str) -> None:
    assert as_set(draw(spec, 30, seed=0)) != as_set(draw(spec, 30, seed=1))


def test_the_sweep_has_eighteen_settings() -> None:
    assert len(set(SPARSE_K_SETTINGS)) == 18


@pytest.mark.parametrize(
    ("setting", "n", "count"),
    [
        ("sqrt:M", 9, 10),  # 9 ln 3 = 9.89
        ("sqrt:M/2", 9, 5),  # 4.94
        ("sqrt:M/4", 9, 3),  # 2.47
        ("sqrt:4k", 36, 44),  # 24 ln 6 = 43.002
        ("sqrt:8k", 36, 65),  # min(36, 48) ln 6 = 64.5
        ("sqrt:4k", 100, 93),  # 40 ln 10 = 92.1
        ("sqrt:8k", 100, 185),  # 80 ln 10 = 184.2
        ("sqrt:16k", 100, 231),  # min(100, 160) ln 10 = 230.3
        ("2sqrt:4k", 100, 240),  # 80 ln 20 = 239.7
        ("2sqrt:M", 4, 6),  # 4 ln 4 = 5.5
        ("4sqrt:M/2", 3, 3),  # 1.5 ln 6.93 = 2.9: the logarithm of k before it is clipped to 2
        ("4sqrt:4k", 13, 35),  # 13 ln 14.4 = 34.7
    ],
)
def test_sparse_k_count(setting: str, n: int, count: int) -> None:
    sample = draw(f"sparse-k:{setting}", n)
    assert sample.requested == count


def test_sparse_k_keeps_or_removes_k_features() -> None:
    assert set(draw("sparse-k:sqrt:M", 36).masks.sum(1)) == {6}
    assert set(draw("sparse-k:sqrt:M:removed", 36).masks.sum(1)) == {30}
    assert set(draw("sparse-k:5:20", 36).masks.sum(1)) == {5}
    assert set(draw("sparse-k:4sqrt:M/4", 12).masks.sum(1)) == {11}, "k is clipped to n - 1"


def test_sparse_k_takes_neighbouring_sizes_and_says_so() -> None:
    sample = draw(SparseK(1, "M"), 4, budget=9)
    sizes = sample.masks.sum(1).tolist()
    assert sorted(sizes) == [1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert "only 4 exist" in sample.note
    assert "keep 2" in sample.note


def test_sparse_k_that_runs_out_of_masks_says_so() -> None:
    sample = draw("sparse-k:4sqrt:16k", 2)  # 2 ln 5.66 = 3.5
    assert (len(sample.masks), sample.requested) == (2, 4)
    assert "only 2" in sample.note


@pytest.mark.parametrize(
    ("n", "k", "c"),
    [
        (3, "4sqrt", "M/2"),
        (5, "2sqrt", "M"),
        (8, "4sqrt", "8k"),
        (11, "4sqrt", "M"),
        (12, "4sqrt", "4k"),
        (40, "4sqrt", "4k"),
    ],
)
def test_the_papers_best_settings(n: int, k: str, c: str) -> None:
    assert BestSparseK.setting(n) == SparseK(k, c)
    assert np.array_equal(draw("sparse-k-best", n).masks, draw(SparseK(k, c), n).masks)


def test_leave_one_out_and_one_at_a_time_are_complements() -> None:
    out, one = draw("leave-one-out", 7), draw("one-at-a-time", 7)
    assert np.array_equal(out.masks, ~one.masks)
    assert np.array_equal(one.masks, np.eye(7, dtype=bool))


def test_a_budget_is_said_when_it_binds() -> None:
    assert "allowed 3" in draw("leave-one-out", 7, budget=3).note
    assert "only 7" in draw("leave-one-out", 7, budget=30).note
    assert draw("leave-one-out", 7, budget=7).note == ""


@pytest.mark.parametrize("n", [2, 3, 8])
def test_exhaustive_has_every_mask_but_the_full_one(n: int) -> None:
    assert len(as_set(draw("exhaustive", n))) == 2**n - 1


def test_exhaustive_is_refused_above_its_limit() -> None:
    with pytest.raises(InputError, match=r"131,071 passes.*'shapley'"):
        draw("exhaustive", MOST_EXHAUSTIVE + 1)


def test_bernoulli_keeps_a_share_of_p() -> None:
    assert abs(draw("bernoulli:500:0.3", 40).masks.mean() - 0.3) < 0.02


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 31, 33])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_whole_hadamard_matrix_is_balanced_in_every_feature_and_every_pair(n: int, seed: int) -> None:
    size = 2 ** math.ceil(math.log2(n + 1))
    rows = Hadamard()._draws(n, size, np.random.default_rng(seed))
    for _ in range(2):  # the next matrix too
        signs = 2 * np.array(list(itertools.islice(rows, size))).astype(int) - 1
        assert not signs.sum(0).any(), "kept half the time"
        assert np.array_equal(signs.T @ signs, size * np.eye(n)), "each pair agrees half the time"
        assert len(np.unique(signs, axis=0)) == size


def test_hadamard_goes_on_to_another_matrix_and_ends_with_the_masks() -> None:
    assert len(draw("hadamard", 5, budget=20).masks) == 20, "a matrix for five features has eight rows"
    every = draw("hadamard", 3)
    assert (len(every.masks), every.requested) == (7, 64)
    assert "7 distinct ones" in every.note
    assert len(draw("hadamard:5", 40).masks) == 5


def test_hadamard_of_very_many_features_is_not_made_whole() -> None:
    masks = draw("hadamard", 50_000).masks  # the matrix would have 4 * 10^9 entries
    assert masks.shape == (64, 50_000)
    assert abs(masks.mean() - 0.5) < 0.01


@settings(max_examples=10, deadline=None)
@given(p=st.sampled_from([1e-12, 0.5, 1 - 1e-12]), n=st.integers(2, 30))
def test_bernoulli_ends_where_hardly_any_mask_can_be_drawn(p: float, n: int) -> None:
    assert len(draw(Bernoulli(8, p), n).masks) <= 8


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 20), pairs=st.integers(1, 20), seed=st.integers(0, 9))
def test_shapley_masks_come_with_their_complement(n: int, pairs: int, seed: int) -> None:
    sample = draw("shapley", n, budget=2 * pairs, seed=seed)
    assert as_set(sample) == {tuple(not z for z in row) for row in as_set(sample)}
    sizes = sample.masks.sum(1)
    assert sorted(sizes) == sorted(n - sizes)
    assert sizes.min() >= 1
    assert sizes.max() <= n - 1


def test_shapley_prefers_the_extreme_sizes() -> None:
    sizes = draw("shapley:400", 20).masks.sum(1)
    extreme = np.isin(sizes, [1, 2, 18, 19]).mean()
    weight = {s: 1 / (s * (20 - s)) for s in range(1, 20)}
    share = sum(weight[s] for s in (1, 2, 18, 19)) / math.fsum(weight.values())
    # Only 40 + 380 masks of these sizes exist, so that drawing distinct ones lowers their share.
    assert 0.2 < extreme <= share + 0.05


@settings(max_examples=60, deadline=None)
@given(
    spec=st.sampled_from(sorted(SAMPLERS)),
    n=st.integers(2, 14),
    few=st.integers(1, 40),
    more=st.integers(1, 3000),
    seed=st.integers(0, 9),
)
def test_a_smaller_budget_draws_some_of_the_same_masks(
    spec: str, n: int, few: int, more: int, seed: int
) -> None:
    short, long = (as_set(draw(spec, n, budget=count, seed=seed)) for count in (few, few + more))
    assert short <= long


def test_a_great_many_masks_are_drawn_in_blocks() -> None:
    assert len(draw("bernoulli:1000000", 4).masks) == 15
    assert len(draw("shapley:1000000", 4).masks) == 14
    with pytest.raises(InputError, match="at most 1,000,000 can be drawn"):
        draw("sparse-k:2:1e300", 40)


def test_mixed_draws_each_part_and_takes_doubles_once() -> None:
    assert len(draw("mixed", 6).masks) == 12
    two = draw("mixed", 2)
    assert (len(two.masks), two.requested) == (2, 4)
    assert "2 distinct" in two.note
    parts = draw("mixed:leave-one-out+sparse-k/sqrt/M/2+sparse-k/2/16k/removed/7", 16)
    assert parts.masks.sum(1).tolist() == [15] * 16 + [4] * 12 + [14] * 7  # 8 ln 4 = 11.1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sparsek", "Did you mean 'sparse-k'"),
        ("sparse-k:3sqrt", "Known: 2sqrt, 4sqrt, sqrt"),
        ("sparse-k:sqrt:K", "Unknown c"),
        ("sparse-k:sqrt:M:dropped", "Unknown active"),
        ("sparse-k:0", "k of sparse-k must be at least 1"),
        ("sparse-k:nan", "k of sparse-k"),
        ("sparse-k:2:0", "c of sparse-k must be above 0"),
        ("sparse-k:2:inf", "c of sparse-k"),
        ("sparse-k:2:M:kept:0", "must be a whole number"),
        ("bernoulli:0", "count of bernoulli must be a whole number of at least 1"),
        ("bernoulli:2.5", "whole number"),
        ("bernoulli:true", "whole number"),
        ("bernoulli:64:1", "between 0 and 1"),
        ("bernoulli:64:true", "between 0 and 1"),
        ("bernoulli:1000000000000", "at most 1,000,000, not 1000000000000"),
        ("hadamard:1000000000000", "at most 1,000,000"),
        ("shapley:1000000000000", "at most 1,000,000"),
        ("sparse-k:2:M:kept:1000000000000", "at most 1,000,000"),
        ("sparse-k:none", "k of sparse-k must be at least 1, not"),
        ("sparse-k:true", "k of sparse-k must be at least 1, not"),
        ("sparse-k:2:none", "c of sparse-k must be above 0, not None"),
        ("bernoulli:64:nan", "between 0 and 1"),
        ("shapley:0", "count of shapley"),
        ("hadamard:0", "count of hadamard"),
        ("leave-one-out:3", "takes no parameters"),
        ("mixed:leave-one-out+loo", "Unknown sampler 'loo'"),
        ("mixed:3", "Unknown sampler '3'"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_drawn(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_sampler(spec)
