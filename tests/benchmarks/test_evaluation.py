"""Measures of an attribution: every one against values worked out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation import Agreement, agreement, auroc, chance, follow, held_out, plan, spearman
from ropelime.errors import InputError


def labels(text: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([c == "1" for c in text])


class TestLabels:
    @pytest.mark.parametrize(
        ("scores", "gold", "iou", "f1"),
        [
            ([4, 3, 2, 1], "1100", 1, 1),
            ([4, 3, 2, 1], "1010", 1 / 3, 1 / 2),  # top two {0, 1}, gold {0, 2}
            ([4, 3, 2, 1], "0011", 0, 0),
            ([9, 1, 8, 7, 0], "11100", 1 / 2, 2 / 3),  # top three {0, 2, 3}, gold {0, 1, 2}
            ([1, 1, 1], "010", 0, 0),  # a tie goes to the first in the text
            ([1, 1, 1], "100", 1, 1),
            ([2, 1], "11", 1, 1),
        ],
    )
    def test_iou_and_f1(self, scores: list[float], gold: str, iou: float, f1: float) -> None:
        found = agreement(np.array(scores, dtype=float), labels(gold))
        assert [found.iou, found.f1] == pytest.approx([iou, f1])

    @pytest.mark.parametrize(
        ("scores", "gold", "area"),
        [
            ([4, 3, 2, 1], "1100", 1.0),
            ([4, 3, 2, 1], "0011", 0.0),
            ([4, 3, 2, 1], "1010", 0.75),  # three of the four pairs
            ([4, 3, 2, 1], "0110", 0.5),
            ([1, 1, 1, 1], "1100", 0.5),  # every pair is a tie
            ([2, 1, 1], "010", 0.25),  # one pair lost, one a tie
            ([2, 1], "11", None),
            ([2, 1], "00", None),
        ],
    )
    def test_auroc(self, scores: list[float], gold: str, area: float | None) -> None:
        assert auroc(np.array(scores, dtype=float), labels(gold)) == area

    def test_all_gold_has_no_auroc(self) -> None:
        assert agreement(np.array([0.1, 0.9]), labels("11")) == Agreement(1.0, 1.0, None)

    def test_no_gold_and_no_number_are_refused(self) -> None:
        with pytest.raises(InputError, match="No feature is labelled"):
            agreement(np.ones(3), labels("000"))
        with pytest.raises(InputError, match="NaN or infinite"):
            agreement(np.array([1.0, np.nan]), labels("10"))

    @pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 6) for k in range(1, n + 1)])
    def test_chance_is_the_mean_over_all_rankings(self, n: int, k: int) -> None:
        gold = np.arange(n) < k
        all_of_them = [
            agreement(np.array(scores, dtype=float), gold)
            for scores in itertools.permutations(range(n))
        ]
        expected = chance(n, k)
        assert expected.iou == pytest.approx(np.mean([a.iou for a in all_of_them]))
        assert expected.f1 == pytest.approx(np.mean([a.f1 for a in all_of_them]))
        assert expected.f1 == pytest.approx(k / n)
        areas = [a.auroc for a in all_of_them if a.auroc is not None]
        assert expected.auroc == (pytest.approx(np.mean(areas)) if k < n else None)

    def test_chance_of_one_in_four(self) -> None:
        assert chance(4, 1) == Agreement(0.25, 0.25, 0.5)

    @given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=12))
    def test_f1_and_iou_say_the_same(self, pairs: list[tuple[int, bool]]) -> None:
        gold = np.array([g for _, g in pairs])
        if gold.any():
            found = agreement(np.array([s for s, _ in pairs], dtype=float), gold)
            assert found.f1 == pytest.approx(2 * found.iou / (1 + found.iou))


class TestSpearman:
    def test_by_hand(self) -> None:
        # Ranks 1 2 3 4 and 2 1 4 3: 1 - 6 * 4 / (4 * 15).
        assert spearman(np.array([1.0, 2, 3, 4]), np.array([0.2, 0.1, 9, 5])) == pytest.approx(0.6)

    def test_ties_share_their_rank(self) -> None:
        # Ranks 1 2.5 2.5 4 and 1 2 3 4: covariance 4.5, variances 4.5 and 5.
        found = spearman(np.array([0.0, 1, 1, 2]), np.array([1.0, 2, 3, 4]))
        assert found == pytest.approx(4.5 / math.sqrt(4.5 * 5))

    def test_only_the_order_counts(self) -> None:
        x = np.random.default_rng(0).normal(size=20)
        assert spearman(x, np.exp(x)) == pytest.approx(1)
        assert spearman(x, -(x**3)) == pytest.approx(-1)

    @pytest.mark.parametrize(
        ("x", "y"), [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [5, 5, 5]), ([1, 2], [2, 1])]
    )
    def test_undefined(self, x: list[float], y: list[float]) -> None:
        assert spearman(np.array(x, dtype=float), np.array(y, dtype=float)) is None


class TestHeldOut:
    @pytest.mark.parametrize(("n", "rows"), [(1, 2), (3, 8), (10, 64), (50, 64)])
    def test_distinct_and_as_many_as_there_can_be(self, n: int, rows: int) -> None:
        masks = held_out(n, np.random.default_rng(0))
        assert masks.shape == (rows, n)
        assert len({m.tobytes() for m in masks}) == rows

    def test_half_is_kept_and_a_seed_is_a_seed(self) -> None:
        masks = held_out(200, np.random.default_rng(1))
        assert masks.mean() == pytest.approx(0.5, abs=0.02)
        assert (masks == held_out(200, np.random.default_rng(1))).all()


class TestCurves:
    def test_the_masks_of_a_plan(self) -> None:
        curve = plan(np.array([0.1, 0.6, 0.3]))
        assert curve.order == (1, 2, 0)
        assert curve.counts == (1, 2, 3)
        deletion = [[1, 0, 1], [1, 0, 0], [0, 0, 0]]
        insertion = [[0, 1, 0], [0, 1, 1], [1, 1, 1]]
        assert curve.masks.astype(int).tolist() == deletion + insertion

    def test_the_counts_of_twenty(self) -> None:
        assert plan(np.arange(20.0)).counts == (1, 2, 3, 5, 10, 15, 20)

    def test_areas_and_drops_by_hand(self) -> None:
        curve = plan(np.array([0.4, 0.3, 0.2, 0.1]))
        assert curve.counts == (1, 2, 3, 4)
        deleted, inserted = [-4.0, -6.0, -8.0, -10.0], [-3.0, -2.0, -2.0, -2.0]
        found = follow(curve, np.array(deleted + inserted), full=-2.0, tokens=2)
        assert (found["drop1"], found["drop3"], found["drop5"]) == (2.0, 6.0, None)
        # Trapezia a quarter wide: the ends count half.
        assert found["deletion"] == pytest.approx((-1 - 4 - 6 - 8 - 5) / 4 / 2)
        assert found["insertion"] == pytest.approx((-5 - 3 - 2 - 2 - 1) / 4 / 2)

    @pytest.mark.parametrize(("n", "known"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
    def test_a_drop_of_all_features_or_more_is_none(self, n: int, known: int) -> None:
        curve = plan(np.arange(n, dtype=float))
        found = follow(curve, np.zeros(len(curve.masks)), full=0.0, tokens=1)
        drops = [found[f"drop{k}"] for k in (1, 3, 5)]
        assert [d is not None for d in drops] == [i < known for i in range(3)]

    def test_an_additive_answer_is_best_explained_by_its_coefficients(self) -> None:
        coef = np.random.default_rng(2).random(12)

        def curves(
            scores: np.ndarray[tuple[int], np.dtype[np.float64]],
        ) -> dict[str, float | None]:
            curve = plan(scores)
            return follow(curve, curve.masks @ coef, full=float(coef.sum()), tokens=1)

        right, wrong = curves(coef), curves(-coef)
        assert right["drop1"] == pytest.approx(coef.max())
        for name, better in (("deletion", -1), ("insertion", 1), ("drop3", 1)):
            a, b = right[name], wrong[name]
            assert a is not None
            assert b is not None
            assert better * (a - b) > 0
