"""Rank correlation against values worked out by hand, and NaN where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ropelime.method.statistics import rank_correlation


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1.0),  # only the order counts
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),  # 1 - 6 * 4 / (5 * 24)
        ([1, 2], [5, 9], 1.0),
        ([1, 1, 2], [1, 2, 3], math.sqrt(3) / 2),  # ties have their mean rank
    ],
)
def test_known_values(a: list[float], b: list[float], expected: float) -> None:
    assert rank_correlation(a, b) == pytest.approx(expected)
    assert rank_correlation(np.array(b), np.array(a)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("a", "b"), [([], []), ([1.0], [2.0]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 0])]
)
def test_undefined(a: list[float], b: list[float]) -> None:
    assert math.isnan(rank_correlation(a, b))


def test_too_few_pairs_for_the_caller() -> None:
    assert math.isnan(rank_correlation([1, 2], [1, 2], least=3))
    assert rank_correlation([1, 2, 3], [1, 2, 3], least=3) == pytest.approx(1.0)
