"""Trust: known values, what moves it, and the words for each."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.method.attribution import Attribution
from ropelime.results.diagnostics import Trust, judge
from toy import additive, scoring, toy

N = 40
SINGLE = np.vstack([np.ones((1, N), bool), ~np.eye(N, dtype=bool)])
MANY = np.vstack([np.ones((1, N), bool), np.arange(N) % 2 == 1, np.arange(N) % 2 == 0])


def trust(
    share: float, *, cv_correlation: float = math.nan, drop: float = 0.0, many: bool = False
) -> Trust:
    """The trust in an explanation whose first feature has a share, and whose loss costs ``drop``."""
    normalized_weights = np.array([share, *[(1 - share) / (N - 1)] * (N - 1)])
    fitted = Attribution(
        normalized_weights,
        normalized_weights,
        normalized_weights[:, None],
        1.0,
        4.0,
        np.zeros(N),
        cv_correlation,
    )
    masks = MANY if many else SINGLE
    said = -1.0 - drop * ~masks[:, :1] - 0.5 * ~masks[:, 1:2]  # the second feature moves it too
    return judge(scoring(masks, said), fitted)


def test_a_first_part_that_speaks_against_the_answer_is_no_evidence_for_it() -> None:
    e = toy(sampler="leave-one-out", output="yes", surrogate=additive([-5.0, 0.5, 0.2, 0.1, 0.1]))
    assert e.weights[0] == e.weights.min() < 0
    assert e.trust is not None
    assert "the first part speaks against the answer" in e.trust.text
    assert e.trust.value > 0.9


@pytest.mark.parametrize(
    ("share", "value", "words"),
    [
        (1.0, 0.949, "Very likely the first part is evidence for the answer."),
        (0.3, 0.795, "Probably the first part is evidence for the answer."),
        (0.1, 0.482, "It is about even whether the first part.*Look at more than the first part"),
        (0.03, 0.163, "It is doubtful whether the first part.*a hint only"),
    ],
)
def test_where_each_part_was_removed_once(share: float, value: float, words: str) -> None:
    found = trust(share)
    assert found.value == pytest.approx(value, abs=5e-4)
    assert found.value == pytest.approx(1 / (1 + math.exp(-2.92 - 1.3 * math.log(share))))
    assert re.match(words, found.text)


@pytest.mark.parametrize(
    ("cv_correlation", "value", "words"),
    [
        (1.0, 0.867, "Very likely the weights predict what removing parts does."),
        (0.6, 0.707, "Probably the weights predict"),
        (0.2, 0.547, "It is about even whether the weights predict.*Look at more than the first part"),
        (0.0, 0.467, "It is about even whether the weights predict"),
        (-1.0, 0.067, "It is doubtful whether the weights predict.*a hint only"),
        (math.nan, 0.467, "It is about even"),
    ],
)
def test_where_many_masks_were_fitted(cv_correlation: float, value: float, words: str) -> None:
    found = trust(0.5, cv_correlation=cv_correlation, many=True)
    assert found.value == pytest.approx(value, abs=1e-3)
    assert re.match(words, found.text)


@settings(max_examples=60, deadline=None)
@given(
    normalized_weights=st.lists(st.floats(0.03, 1.0), min_size=2, max_size=2),
    cv_correlation=st.floats(-1, 1),
    drops=st.lists(st.floats(-50, 50), min_size=2, max_size=2),
    many=st.booleans(),
)
def test_it_lies_between_0_and_1_and_rises_with_the_share_and_the_drop(
    normalized_weights: list[float], cv_correlation: float, drops: list[float], many: bool
) -> None:
    low, high = sorted(normalized_weights)
    less, more = sorted(drops)
    weak = trust(low, cv_correlation=cv_correlation, drop=less, many=many)
    strong = trust(high, cv_correlation=cv_correlation, drop=more, many=many)
    assert 0 <= weak.value <= strong.value <= 1


def test_an_answer_that_depends_on_nothing_is_not_trusted_more_than_one_that_depends() -> None:
    nothing, something = (
        toy(surrogate=additive(np.zeros(5))),
        toy(surrogate=additive([3.0, 0, 0, 0, 0])),
    )
    assert nothing.trust is not None
    assert something.trust is not None
    assert nothing.trust.value < something.trust.value


def test_too_few_masks_of_many_features_are_not_taken_for_single_removals() -> None:
    words = " ".join(f"w{i}" for i in range(80))
    e = toy(
        words, surrogate=additive(np.eye(80)[0] * 9, -20), sampler="hadamard", regressor="bayes-ridge"
    )
    assert e.trust is not None
    assert "the weights predict" in e.trust.text
    assert any("leave the fit underdetermined" in warning for warning in e.diagnostics.warnings)
