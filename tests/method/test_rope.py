"""Rotary geometry against hand-made values, and the shift property that the paper claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.method.rope import Pairing, planes, polar_distances, rwmd, span_means, turn, wrap

PI = math.pi
Kind = Callable[[Any], Any]
KINDS: list[Kind] = [np.asarray, lambda x: torch.as_tensor(np.asarray(x))]
both = pytest.mark.parametrize("kind", KINDS, ids=["numpy", "torch"])


def span_mean(a: Any, b: Any) -> tuple[Any, Any]:
    """Of all tokens as one span."""
    r, theta = span_means(a, b, np.zeros(len(a), dtype=int), 1)
    return r[0], theta[0]


@both
def test_planes_pair_the_dimensions_that_turn_together(kind: Kind) -> None:
    x = kind([1.0, 2.0, 3.0, 4.0])
    assert [v.tolist() for v in planes(x, "half")] == [[1, 2], [3, 4]]
    assert [v.tolist() for v in planes(x, "interleaved")] == [[1, 3], [2, 4]]


@both
def test_turn_by_a_quarter(kind: Kind) -> None:
    a, b = turn(kind([1.0, 0.0]), kind([0.0, 2.0]), kind([PI / 2, PI / 2]))
    assert np.allclose(a, [0, -2])
    assert np.allclose(b, [1, 0])


@both
def test_span_mean_of_known_phases(kind: Kind) -> None:
    phases, sizes = np.array([[0.1, 3.0], [0.3, -3.0]]), np.array([[1.0, 2.0], [3.0, 2.0]])
    r, theta = span_mean(kind(sizes * np.cos(phases)), kind(sizes * np.sin(phases)))
    assert np.allclose(r, [2, 2]), "the mean magnitude"
    # The phase is that of the mean unit vector: magnitudes do not pull it, and it wraps at ±π.
    assert np.allclose(theta, [0.2, PI])


@both
def test_span_mean_of_a_zero_vector_is_defined(kind: Kind) -> None:
    r, theta = span_mean(kind([[0.0], [2.0]]), kind([[0.0], [0.0]]))
    assert r.tolist() == [1.0]
    assert theta.tolist() == [0.0]


@both
def test_every_span_has_the_mean_of_its_own_tokens(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    a, b = kind(rng.normal(size=(7, 3))), kind(rng.normal(size=(7, 3)))
    span = np.array([1, 0, 2, 1, 0, 1, 1])
    r, theta = span_means(a, b, span, 3)
    for number in range(3):
        mine = kind(np.flatnonzero(span == number))
        expected = span_mean(a[mine], b[mine])
        assert np.allclose(r[number], expected[0])
        assert np.allclose(theta[number], expected[1])


@settings(deadline=None)
@given(st.floats(-50, 50))
def test_wrap_keeps_the_direction(angle: float) -> None:
    wrapped = float(wrap(angle))
    assert -PI <= wrapped <= PI
    assert math.isclose(math.cos(wrapped), math.cos(angle), abs_tol=1e-9)
    assert math.isclose(math.sin(wrapped), math.sin(angle), abs_tol=1e-9)


@both
def test_polar_distance_by_hand(kind: Kind) -> None:
    r_x, theta_x = kind([[1.0, 5.0]]), kind([[0.5, 0.0]])
    r_y, theta_y = (
        kind([[1.0, 5.0], [4.0, 9.0], [1.0, 5.0]]),
        kind([[0.5, 0.0], [0.5, 0.0], [2.5, 0.0]]),
    )
    assert np.allclose(polar_distances(r_x, theta_x, r_y, theta_y), [[0, 5, 2]])
    assert np.allclose(polar_distances(r_x, theta_x, r_y, theta_y, 0.25), [[0, 5, 1]])


@both
def test_polar_distance_goes_the_short_way_over_the_seam(kind: Kind) -> None:
    one = kind([[1.0]])
    near = polar_distances(one, kind([[PI - 0.1]]), one, kind([[-PI + 0.2]]))
    assert np.allclose(near, [[0.3]])


def test_polar_distance_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = [rng.normal(size=(n, 6)) for n in (7, 7, 4, 4)]
    whole = polar_distances(*arrays)
    monkeypatch.setattr("ropelime.method.rope._ELEMENTS_AT_ONCE", 1)
    assert np.array_equal(polar_distances(*arrays), whole)


@both
def test_rwmd_by_hand(kind: Kind) -> None:
    distances = kind([[0.0, 4.0], [2.0, 1.0], [6.0, 3.0]])  # nearest of x: 0, 1, 3; of y: 0, 1
    ones = [kind([1.0, 1.0, 1.0]), kind([1.0, 1.0])]
    tokens = [kind([1.0, 2.0, 5.0]), kind([1.0, 3.0])]
    assert np.isclose(float(rwmd(distances, *ones)), 4 / 3)
    assert np.isclose(float(rwmd(distances, *tokens)), 17 / 8)
    assert np.isclose(float(rwmd(distances, *ones, tight=True)), 4 / 3)
    back = kind([[0.0, 5.0]])  # one feature, two kept: the way back is longer
    assert float(rwmd(back, kind([1.0]), ones[1])) == 0
    assert float(rwmd(back, kind([1.0]), ones[1], tight=True)) == 2.5


@both
def test_rwmd_to_nothing_is_undefined(kind: Kind) -> None:
    assert math.isnan(float(rwmd(kind(np.zeros((3, 0))), kind(np.ones(3)), kind(np.ones(0)))))


def test_numpy_and_torch_agree() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 5, 3, 8)), rng.normal(size=(2, 4, 3, 8))

    def distance(kind: Kind) -> Any:
        means = []
        for a, b in (x, y):
            pairs = [span_mean(kind(s), kind(t)) for s, t in zip(a, b, strict=True)]
            means += [kind(np.stack([np.asarray(p[i]) for p in pairs])) for i in (0, 1)]
        return polar_distances(*means)

    assert np.allclose(distance(KINDS[0]), distance(KINDS[1]))


def rotate(keys: np.ndarray[Any, Any], angle: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a Llama does to its keys: dimension k turns with k + d/2."""
    return np.concatenate(turn(*planes(keys, "half"), angle), axis=-1)


def span_representation(
    keys: np.ndarray[Any, Any],
    positions: np.ndarray[Any, Any],
    freq: np.ndarray[Any, Any],
    read: Pairing,
) -> np.ndarray[Any, Any]:
    """Magnitude and relative phase of one span whose rotated keys are read with a pairing."""
    rotated = rotate(keys, positions[:, None] * freq)
    r, theta = span_mean(*turn(*planes(rotated, read), -positions[0] * freq))
    return np.concatenate([r * np.cos(theta), r * np.sin(theta)])


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shift=st.integers(1, 5000), tokens=st.integers(1, 6))
def test_a_span_looks_the_same_wherever_it_stands(seed: int, shift: int, tokens: int) -> None:
    rng = np.random.default_rng(seed)
    keys, freq = rng.normal(size=(tokens, 16)), rng.uniform(0.05, 1, size=8)
    positions = rng.integers(0, 100) + np.arange(tokens)
    here = span_representation(keys, positions, freq, "half")
    there = span_representation(keys, positions + shift, freq, "half")
    assert np.allclose(here, there, atol=1e-6)


@pytest.mark.parametrize("shift", [1, 17, 1000])
def test_the_wrong_pairing_does_not_have_that_property(shift: int) -> None:
    rng = np.random.default_rng(shift)
    keys, freq = rng.normal(size=(4, 16)), rng.uniform(0.05, 1, size=8)
    here = span_representation(keys, np.arange(4), freq, "interleaved")
    there = span_representation(keys, np.arange(4) + shift, freq, "interleaved")
    assert np.abs(here - there).max() > 0.1


@both
def test_identical_prompts_are_at_distance_zero(kind: Kind) -> None:
    rng = np.random.default_rng(2)
    r, theta = kind(rng.uniform(0, 3, size=(6, 8))), kind(rng.uniform(-PI, PI, size=(6, 8)))
    ones = kind(np.ones(6))
    assert float(rwmd(polar_distances(r, theta, r, theta), ones, ones, tight=True)) == 0
