"""One contract for every kernel, and the closed form of each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.errors import InputError, ModelError
from ropelime.method.kernels import KERNELS, Cosine, Hamming, RopeRWMD, resolve_kernel
from ropelime.method.rope import RopeSpace
from ropelime.typing import Floats
from toy import scoring

ROPE = RopeRWMD()


def rope_weights(distance: list[float]) -> Floats:
    masks = np.ones((len(distance), 2), dtype=bool)
    return ROPE.weigh(scoring(masks, distances={ROPE.space: np.array(distance)}))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=12),
    distances=st.lists(
        st.just(math.nan) | st.just(0.0) | st.floats(1e-6, 1e6), min_size=12, max_size=12
    ),
)
def test_contract(name: str, rows: list[list[bool]], distances: list[float]) -> None:
    scores = scoring(
        [[True] * 4, *rows], distances={ROPE.space: np.array([0.0, *distances[: len(rows)]])}
    )
    weights = resolve_kernel(name).weigh(scores)
    assert weights.shape == (1 + len(rows),)
    assert weights[0] == 1
    assert np.all((weights >= 0) & (weights <= 1)), "also excludes NaN"


@pytest.mark.parametrize("distance", [[0.0], [0.0, 0.0, 0.0], [0.0, math.nan], [0.0, math.nan, 0.0]])
def test_no_distance_at_all_weighs_everything_the_same(distance: list[float]) -> None:
    assert rope_weights(distance).tolist() == [1.0] * len(distance)


def test_equal_distances() -> None:
    assert np.allclose(rope_weights([0, 3, 3, 3]), [1, *[math.exp(-1)] * 3])


def test_rope_rwmd_is_a_gaussian_with_the_median_as_its_width() -> None:
    expected = [1, math.exp(-1 / 4), math.exp(-1), math.exp(-9)]  # the median of 1, 2, 6 is 2
    assert np.allclose(rope_weights([0, 1, 2, 6]), expected)


def test_an_undefined_distance_counts_as_the_largest() -> None:
    assert np.array_equal(rope_weights([0, 1, math.nan, 5, math.inf]), rope_weights([0, 1, 5, 5, 5]))


def test_where_the_median_is_zero_the_mean_takes_its_place() -> None:
    assert np.allclose(rope_weights([0, 0, 0, 3]), [1, 1, 1, math.exp(-9)])


def test_distances_that_are_too_large_to_be_squared_weigh_nothing() -> None:
    assert np.allclose(rope_weights([0, 1, 1, 1e200]), [1, math.exp(-1), math.exp(-1), 0])
    assert np.allclose(Cosine(1e-200).weigh(scoring([[1, 1], [1, 0]])), [1, 0])


def test_hamming() -> None:
    masks = [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]]  # removed: 0, 1/4, 1/2, 1
    assert np.allclose(Hamming().weigh(scoring(masks)), np.exp([0, -1 / 4, -1, -4]))


def test_cosine() -> None:
    masks = [[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]  # cosine with the full mask: 1, 1/2, 0
    assert np.allclose(Cosine(0.5).weigh(scoring(masks)), np.exp([0, -1, -4]))


def test_uniform() -> None:
    assert resolve_kernel("uniform").weigh(scoring([[1, 1], [0, 0]])).tolist() == [1, 1]


def test_only_the_rope_kernel_asks_for_distances() -> None:
    assert {name for name in KERNELS if resolve_kernel(name).space is not None} == {"rope-rwmd"}
    spec = "rope-rwmd:-1:hidden:raw:0.5:tokens:true"
    assert resolve_kernel(spec).space == RopeSpace(-1, "hidden", "raw", 0.5, "tokens", True)


def test_a_surrogate_without_rotary_space_is_told_what_it_can_use() -> None:
    with pytest.raises(ModelError, match="'hamming', 'cosine' or 'uniform'"):
        ROPE.weigh(scoring([[1, 1], [1, 0]]))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("haming", "Did you mean 'hamming'"),
        ("rope-rwmd:last", "layer of rope-rwmd must be a number"),
        ("rope-rwmd:0.5:value", "embedding of rope-rwmd must be 'key' or 'hidden'"),
        ("rope-rwmd:0.5:key:absolute", "phase of rope-rwmd"),
        ("rope-rwmd:0.5:key:raw:-1", "beta of rope-rwmd must be finite"),
        ("rope-rwmd:0.5:key:raw:1:words", "mass of rope-rwmd"),
        ("rope-rwmd:1:key:relative:none", "beta of rope-rwmd must be finite and at least 0, not None"),
        ("rope-rwmd:1:key:relative:1:uniform:7", "tight of rope-rwmd must be true or false, not 7"),
        ("cosine:0", "width of cosine must be above 0"),
        ("cosine:true", "width of cosine must be above 0, not True"),
        ("cosine:nan", "width of cosine must be above 0"),
    ],
)
def test_wrong_parameters(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_kernel(spec)
