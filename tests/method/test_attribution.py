"""Weights that are made of several signals: known answers, and what always holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.method.attribution import (
    Attribution,
    Recipe,
    above_floor,
    evidence,
    fit,
    sharpened,
    without_place,
)
from ropelime.method.scores import QuestionScores, Scores
from ropelime.method.targets import Evidence, Instant
from ropelime.results.diagnostics import diagnose, warn
from ropelime.results.grounding import Measures
from ropelime.results.verdicts import judge
from ropelime.typing import Floats
from toy import scoring

WITHOUT_ONE = [[1, 1], [0, 1], [1, 0]]
WORDS = np.array([1.0, 2.0])  # cubed: 1 and 8 of 9


def recipe(target: Evidence | Instant) -> Recipe:
    return Recipe.of(target, "uniform", "wls")


def scores(first: float = 4.0, second: float = 1.0, question: float | None = 2.0) -> Scores:
    """Two features: the roots of the divergences without each are given; nothing else moves.

    The question moves without the first feature only.
    """
    found = scoring(WITHOUT_ONE, np.full((3, 1), -1.0), np.array([[0.0], [first**2], [second**2]]))
    if question is None:
        return found
    asked = QuestionScores(np.full((3, 1), -1.0), np.array([[0.0], [question**2], [0]]))
    return replace(found, question=asked)


class TestEvidence:
    def test_shares_of_two_features(self) -> None:
        """4 and 1 to the power of 1.5 are 8 and 1 of 9; the question gives all to the first."""
        found = fit(scores(), recipe(Evidence(0.5, 0.3, 0.2)), words=WORDS)
        assert list(found.signals) == ["shift", "words", "question"]
        np.testing.assert_allclose(found.signals["shift"], [8 / 9, 1 / 9])
        np.testing.assert_allclose(found.signals["words"], [1 / 9, 8 / 9])
        np.testing.assert_allclose(found.signals["question"], [1, 0], atol=1e-12)
        expected = [4 / 9 + 0.3 / 9 + 0.2, 0.5 / 9 + 2.4 / 9]
        np.testing.assert_allclose(found.weights, expected)
        np.testing.assert_allclose(found.normalized_weights, expected)
        np.testing.assert_allclose(found.token_weights[:, 0], [16 / 17, 1 / 17])  # squares
        assert found.from_masks

    def test_only_the_ratios_of_the_counts_matter(self) -> None:
        one, ten = (recipe(Evidence(*(s * c for c in (0.5, 0.3, 0.2)))) for s in (1, 10))
        np.testing.assert_allclose(
            fit(scores(), one, words=WORDS).weights, fit(scores(), ten, words=WORDS).weights
        )

    def test_words_off(self) -> None:
        found = fit(scores(), recipe(Evidence(0.5, 0, 0.2)), words=WORDS)
        assert "words" not in found.signals
        np.testing.assert_allclose(found.weights, [(4 / 9 + 0.2) / 0.7, 0.5 / 9 / 0.7])

    def test_question_off_and_no_question_are_the_same(self) -> None:
        off = fit(scores(), recipe(Evidence(0.5, 0.3, 0)), words=WORDS)
        none = fit(scores(question=None), recipe(Evidence(0.5, 0.3, 0.2)), words=WORDS)
        for found in (off, none):
            assert "question" not in found.signals
            expected = [4.3 / 9 / 0.8, 2.9 / 9 / 0.8]
            np.testing.assert_allclose(found.weights, expected)

    @pytest.mark.parametrize(
        ("silent", "left"),
        [
            ({"words": np.zeros(2)}, [(4 / 9 + 0.2) / 0.7, 0.5 / 9 / 0.7]),
            ({"question": 0.0}, [4.3 / 9 / 0.8, 2.9 / 9 / 0.8]),
            ({"shift": 0.0}, [(0.3 / 9 + 0.2) / 0.5, 2.4 / 9 / 0.5]),
        ],
    )
    def test_a_signal_that_says_nothing_leaves_the_others(
        self, silent: dict[str, Any], left: list[float]
    ) -> None:
        moved = silent.get("shift", 1.0)
        given = scores(4 * moved, moved, silent.get("question", 2.0))
        words = silent.get("words", WORDS)
        found = fit(given, recipe(Evidence(0.5, 0.3, 0.2)), words=words)
        (name,) = silent
        assert not found.signals[name].any()
        np.testing.assert_allclose(found.weights, left, atol=1e-12)

    def test_all_silent(self) -> None:
        found = fit(scores(0, 0, 0), recipe(Evidence()), words=np.zeros(2))
        assert found.weights.tolist() == [0, 0]
        assert found.normalized_weights.tolist() == [0.5, 0.5]
        assert found.half_width.tolist() == [0, 0]
        assert not found.token_weights.any()

    def test_a_signal_alone_that_cannot_be_had(self) -> None:
        """Only the question counts, and nothing was asked."""
        found = fit(scores(question=None), recipe(Evidence(0, 0, 1)), words=WORDS)
        assert found.signals == {}
        assert found.weights.tolist() == [0, 0]

    def test_a_part_that_speaks_against_the_answer_has_no_share(self) -> None:
        shift = np.array([-2.0, 1.0, 1.0])
        alone = Attribution(shift, shift, shift[:, None], 1.0, 4.0, np.zeros(3), 0.0)
        found = evidence(alone, Evidence(1, 0, 0), np.ones(1), None, None)
        assert found.weights.tolist() == [0, 0.5, 0.5]

    def test_uncertainty_grows_with_how_far_the_signals_differ(self) -> None:
        """Shares of 8 / 9 and 1 / 9, each counting for half, lie as far from their mean."""
        shift, half = np.array([4.0, 1.0]), np.array([0.1, 0.2])
        alone = Attribution(shift, shift, shift[:, None], 1.0, 4.0, half, 0.0)
        found = evidence(alone, Evidence(0.5, 0.5, 0), np.ones(1), None, WORDS)
        mean, apart = 1 / 2, (8 / 9 - 1 / 9) / 2
        expected = np.sqrt(apart**2 + LEAST**2 + 0.25 * mean * (1 - mean))
        np.testing.assert_allclose(found.half_width, [expected] * 2)
        alike = evidence(alone, Evidence(1, 0, 0), np.ones(1), None, None)
        np.testing.assert_allclose(alike.half_width, [np.sqrt(LEAST**2 + 0.25 * 8 / 81)] * 2)

    def test_tokens_count_for_what_the_prompt_does_for_them(self) -> None:
        """Two tokens: the prompt gives 0.9 nats to the first alone, so that it counts tenfold."""
        given = scoring(WITHOUT_ONE, np.full((3, 2), -1.0), [[0, 0], [9, 0], [1, 4]])
        given = replace(given, without_features=np.array([-1.9, -1.0]))
        found = fit(given, recipe(Evidence(1, 0, 0)))
        np.testing.assert_allclose(found.token_weights, [[9 / 11, 0], [1 / 11, 1 / 11]], atol=1e-9)
        squares = np.array([90.0, 14.0])  # 10 · 9; 10 · 1 + 4
        np.testing.assert_allclose(found.weights, squares**0.75 / (squares**0.75).sum())


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 7),
    tokens=st.integers(1, 4),
    seed=st.integers(0, 9999),
    counts=st.tuples(*[st.sampled_from([0.0, 0.2, 1.0])] * 3).filter(any),
    asked=st.booleans(),
    silent=st.booleans(),
)
def test_weights_are_shares(
    n: int, tokens: int, seed: int, counts: tuple[float, ...], asked: bool, silent: bool
) -> None:
    rng = np.random.default_rng(seed)
    masks = np.vstack([np.ones(n), ~np.eye(n, dtype=bool), rng.random((3, n)) < 0.5]).astype(bool)
    kl = rng.exponential(size=(len(masks), tokens)) * (np.arange(len(masks)) > 0)[:, None]
    given = scoring(masks, -rng.exponential(size=(len(masks), tokens)), 0 * kl if silent else kl)
    if silent:
        given = replace(given, logprob=np.full_like(given.logprob, -1.0))
    if asked:
        given = replace(given, question=QuestionScores(given.logprob[:, :1], given.kl[:, :1]))  # type: ignore[index]
    words = rng.exponential(size=n) * (rng.random(n) < 0.5)
    found = fit(given, recipe(Evidence(*counts)), words=words)
    check(found, n, tokens)
    attention = rng.random((tokens, n)) ** 4
    given = replace(given, attention=attention / attention.sum())
    check(
        fit(given, recipe(Instant(*(counts[:2] if any(counts[:2]) else (1, 0)))), words=words),
        n,
        tokens,
    )


def check(found: Attribution, n: int, tokens: int) -> None:
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1) or not found.weights.any()
    for share in found.signals.values():
        assert share.shape == (n,)
        assert share.min() >= 0
        assert share.sum() == pytest.approx(1) or not share.any()
    assert found.token_weights.shape == (n, tokens)
    assert found.token_weights.min() >= 0
    assert found.token_weights.sum() <= 1 + 1e-9
    assert np.isfinite(found.half_width).all()
    assert found.half_width.min() >= 0


LEAST = 0.02 + 0.25 / 2  # of half the width of an interval, with two features
MEASURES = Measures(*(np.ones(1) for _ in range(4)))


class TestInstant:
    ATTENTION = np.array([[0.2, 0.1], [0.6, 0.1]])  # (T, n)

    def scores(self) -> Scores:
        return replace(scoring([[1, 1]], [[-1.0, -2.0]]), attention=self.ATTENTION)

    def test_shares_of_two_features(self) -> None:
        found = fit(self.scores(), recipe(Instant(0.6, 0.4)), words=WORDS)
        np.testing.assert_allclose(found.signals["attention"], [0.8, 0.2])
        np.testing.assert_allclose(found.signals["words"], [1 / 9, 8 / 9])
        np.testing.assert_allclose(found.weights, [0.48 + 0.4 / 9, 0.12 + 3.2 / 9])
        np.testing.assert_allclose(found.token_weights, self.ATTENTION.T)
        assert not found.from_masks
        mean = float(found.weights[0])
        differ = 0.6 * (0.8 - mean) ** 2 + 0.4 * (1 / 9 - mean) ** 2
        expected = np.sqrt(differ + LEAST**2 + 0.25 * mean * (1 - mean))
        np.testing.assert_allclose(found.half_width, [expected] * 2)

    def test_words_alone_and_attention_alone(self) -> None:
        words = fit(self.scores(), recipe(Instant(0, 1)), words=WORDS)
        np.testing.assert_allclose(words.weights, [1 / 9, 8 / 9])
        attention = fit(self.scores(), recipe(Instant(1, 0)), words=WORDS)
        np.testing.assert_allclose(attention.weights, [0.8, 0.2])
        np.testing.assert_allclose(attention.half_width, [np.sqrt(LEAST**2 + 0.25 * 0.16)] * 2)
        silent = fit(self.scores(), recipe(Instant(0.6, 0.4)), words=np.zeros(2))
        np.testing.assert_allclose(silent.weights, [0.8, 0.2])

    def test_nothing_at_all(self) -> None:
        given = replace(self.scores(), attention=np.zeros((2, 2)))
        found = fit(given, recipe(Instant()), words=np.zeros(2))
        assert found.weights.tolist() == [0, 0]
        trust = judge(given, found, MEASURES, {})
        assert trust.value <= 0.1
        assert trust.text == "Nothing tells the parts apart: the ranking means nothing."

    def test_diagnostics_do_not_speak_of_a_fit(self) -> None:
        both = scoring([[1, 1], [0, 0]], [[-1.0, -1.0], [-3.0, -3.0]])
        given = replace(both, attention=self.ATTENTION)
        found = fit(given.fitted(), recipe(Instant(1, 0)))
        figures = diagnose(given, found, requested=0, notes=(), warnings=())
        assert (figures.notes, figures.masks_scored) == ((), 0)
        assert list(warn(given, found)) == []
        assert np.isnan(figures.r2)


class TestTheLastPart:
    """It stands next to the question, and counts 0.4 of what it moves there."""

    def test_of_equal_parts(self) -> None:
        np.testing.assert_allclose(without_place(np.full(4, 0.25)), np.array([1, 1, 1, 0.4]) / 3.4)

    @pytest.mark.parametrize("shares", [[1.0], [0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    def test_there_may_be_nothing_to_share_with(self, shares: list[float]) -> None:
        np.testing.assert_array_equal(without_place(np.array(shares)), shares)

    def test_only_the_signal_of_the_question_is_about_its_place(self) -> None:
        """Shares of 1 and 8 of 9 without regard to the place: 1 and 3.2 of 4.2."""
        moved = QuestionScores(np.full((3, 1), -1.0), np.array([[0.0], [1.0], [16.0]]))
        found = fit(replace(scores(), question=moved), recipe(Evidence(0.5, 0.3, 0.2)), words=WORDS)
        np.testing.assert_allclose(found.signals["question"], [1 / 4.2, 3.2 / 4.2])
        np.testing.assert_allclose(found.signals["shift"], [8 / 9, 1 / 9])


class TestFloor:
    def test_what_the_feature_in_the_middle_has_is_taken_from_all(self) -> None:
        shares = np.array([0.86, 0.04, 0.02, 0.02, 0.02, 0.02, 0.01, 0.01])
        np.testing.assert_allclose(above_floor(shares), np.array([0.84, 0.02, *[0] * 6]) / 0.86)

    def test_equal_shares_stay_equal(self) -> None:
        np.testing.assert_allclose(above_floor(np.full(10, 0.1)), np.full(10, 0.1))

    def test_few_features_have_no_floor(self) -> None:
        shares = np.array([0.4, 0.2, 0.2, 0.1, 0.05, 0.03, 0.02])
        assert above_floor(shares) is shares
        assert above_floor(np.zeros(9)).tolist() == [0] * 9

    @given(st.lists(st.floats(0, 1), min_size=4, max_size=60))
    def test_the_order_and_the_sum_stay(self, values: list[float]) -> None:
        shares = np.array(values)
        if shares.sum() < 1e-6:
            return
        shares /= shares.sum()
        found = above_floor(shares)
        assert found.sum() == pytest.approx(1)
        assert np.all(np.diff(found[np.argsort(shares, kind="stable")]) >= -1e-12)

    @given(st.integers(0, 60), st.integers(0, 2**31))
    def test_features_that_do_nothing_do_not_decide_a_share(self, more: int, seed: int) -> None:
        """A right part among irrelevant ones keeps its place and nearly its share."""
        rng = np.random.default_rng(seed)
        shift = np.array([3.0, 1.5, *(0.1 * rng.random(6))])
        added = np.concatenate([shift, 0.1 * rng.random(more)])
        before, after = (above_floor(sharpened(values)) for values in (shift, added))
        assert int(np.argmax(after)) == 0
        assert after[:2] == pytest.approx(before[:2], abs=0.02)


@pytest.mark.parametrize(
    ("values", "power", "shares"),
    [
        ([3.0, 1.0], 2, [0.9, 0.1]),
        ([2.0, 1.0], 4, [16 / 17, 1 / 17]),
        ([-3.0, 1.0], 2, [0, 1]),
        ([0.0, 0.0], 2, [0, 0]),
        ([-1.0, -2.0], 2, [0, 0]),
        ([1e-200, 2e-200], 2, [0.2, 0.8]),
        ([1e200, 2e200], 4, [1 / 17, 16 / 17]),
    ],
)
def test_sharpened(values: list[float], power: int, shares: list[float]) -> None:
    np.testing.assert_allclose(sharpened(np.array(values), power), shares)
    columns: Floats = np.stack([np.array(values), np.array([1.0, 1.0])], 1)
    np.testing.assert_allclose(sharpened(columns, power), np.stack([shares, [0.5, 0.5]], 1))
