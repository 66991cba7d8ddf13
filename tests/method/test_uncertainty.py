"""Coverage of the intervals, and how well left-out scores are predicted."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy.stats import spearmanr

from ropelime import InputError
from ropelime.method.attribution import Recipe, fit
from ropelime.method.kernels import Uniform
from ropelime.method.regression import WLS, BayesRidge, Regressor
from ropelime.method.samplers import resolve_sampler
from ropelime.method.scores import Scores
from ropelime.method.uncertainty import LEVEL, estimate_uncertainty, rank_correlation
from ropelime.typing import Floats, Masks
from toy import scoring


def linear(
    rng: np.random.Generator, coef: Floats, rows: int, noise: float = 0.5
) -> tuple[Masks, Floats]:
    masks = rng.random((rows, len(coef))) < 0.5
    return masks, masks @ coef + noise * rng.normal(size=rows)


@pytest.mark.parametrize("regressor", [WLS(), BayesRidge()], ids=lambda r: r.name)
@pytest.mark.parametrize(("n", "rows"), [(8, 40), (12, 20)])
def test_intervals_hold_as_often_as_they_say(regressor: Regressor, n: int, rows: int) -> None:
    held = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        coef = rng.normal(size=n)
        masks, targets = linear(rng, coef, rows)
        found = regressor.fit(masks, targets, np.ones(rows)).coef
        half_width = estimate_uncertainty(masks, targets, np.ones(rows), found).half_width
        held.append(np.abs(found - coef) <= half_width)
    assert np.mean(held) == pytest.approx(LEVEL, abs=0.05)


@pytest.mark.parametrize("kernel", ["uniform", "hamming", "cosine", "cosine:0.1"])
@pytest.mark.parametrize(("n", "sampler", "count"), [(8, "hadamard", 64), (10, "mixed", None)])
def test_they_hold_as_often_under_any_kernel(
    n: int, sampler: str, count: int | None, kernel: str
) -> None:
    recipe, held = Recipe.of("nll", kernel, "wls"), []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        coef = rng.normal(size=n)
        drawn = resolve_sampler(sampler).sample(n, budget=count, rng=rng).masks
        masks = np.concatenate([np.ones((1, n), bool), drawn])
        said = masks @ coef + 0.5 * rng.normal(size=len(masks)) - 3.0
        found = fit(scoring(masks, said[:, None]), recipe)
        held.append(np.abs(found.weights - coef) <= found.half_width)
    # Where a narrow kernel leaves as many scores as unknowns, they are wider than they need be.
    most = 1.0 if sampler == "mixed" else LEVEL + 0.06
    assert LEVEL - 0.04 <= np.mean(held) <= most


@pytest.mark.parametrize("kernel", ["uniform", "hamming", "cosine:0.1"])
def test_readings_are_foretold_as_they_were_read_whatever_they_weigh(kernel: str) -> None:
    rng, n = np.random.default_rng(0), 6
    masks = np.concatenate([np.ones((1, n), bool), rng.random((40, n)) < 0.5])
    said = masks @ rng.normal(size=n) + rng.normal(size=len(masks)) - 3.0
    scores, recipe = scoring(masks, said[:, None]), Recipe.of("nll", kernel, "wls")
    weights, drop = recipe.kernel.weigh(scores), said[0] - said
    x = np.column_stack([np.ones(len(masks)), masks])
    cv_correlation = []
    for row in range(len(masks)):
        root = np.sqrt(np.delete(weights, row))[:, None]
        rest = np.delete(x, row, 0), np.delete(drop, row)[:, None]
        cv_correlation.append(x[row] @ np.linalg.lstsq(root * rest[0], root * rest[1], rcond=None)[0])
    expected = spearmanr(drop, np.ravel(cv_correlation)).statistic
    assert fit(scores, recipe).cv_correlation == pytest.approx(expected, abs=0.02)


def test_four_times_the_readings_halve_the_interval() -> None:
    masks, targets = linear(np.random.default_rng(0), np.array([2.0, -1.0, 0.0, 0.5]), 100)
    coef = WLS().fit(masks, targets, np.ones(100)).coef
    one = estimate_uncertainty(masks, targets, np.ones(100), coef)
    four = estimate_uncertainty(np.tile(masks, (4, 1)), np.tile(targets, 4), np.ones(400), coef)
    assert np.allclose(four.half_width * 2, one.half_width, rtol=0.05)


def test_the_interval_in_closed_form() -> None:
    # All masks of two features, twice: orthogonal columns of variance 1/4, targets that alternate
    # around the fit by 1. The fit keeps no more than 1/1000 of it, and five scores are left over.
    masks = np.tile(np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=bool), (2, 1))
    targets = masks @ np.array([3.0, 1.0]) + np.repeat([1.0, -1.0], 4)
    found = estimate_uncertainty(masks, targets, np.ones(8), np.array([3.0, 1.0]))
    student = 2.015  # of five degrees of freedom, two-sided 90 %
    assert np.allclose(found.half_width, student * math.sqrt(8 / 5 / (8 / 4)), rtol=5e-3)


@pytest.mark.parametrize("extra", [1, 2])
def test_as_many_readings_as_unknowns_are_judged_by_the_stated_rule(extra: int) -> None:
    masks, targets = linear(np.random.default_rng(0), np.ones(4), 4 + extra)
    coef = np.array([1.0, -3.0, 0.5, 0.2])
    found = estimate_uncertainty(masks, targets, np.ones(4 + extra), coef)
    median, size = 0.75, np.abs(coef)
    noise = np.hypot(0.2 * 0.9 * median, 0.8 * 0.2 * np.sqrt(np.mean(coef**2)))
    assert np.allclose(found.half_width, 1.645 * np.sqrt(noise**2 + (size / 4) ** 2))
    assert math.isnan(found.cv_correlation)


def test_readings_that_weigh_nothing_do_not_count() -> None:
    masks, targets = linear(np.random.default_rng(0), np.array([2.0, -1.0, 0.5]), 30)
    weights = np.where(np.arange(30) < 12, 1.0, 0.0)
    coef = WLS().fit(masks, targets, weights).coef
    some, few = (
        estimate_uncertainty(masks[:count], targets[:count], weights[:count], coef)
        for count in (30, 12)
    )
    assert np.allclose(some.half_width, few.half_width)
    assert some.cv_correlation == pytest.approx(few.cv_correlation)
    assert math.isnan(
        estimate_uncertainty(masks, targets, weights * (np.arange(30) < 5), coef).cv_correlation
    )


def test_the_scale_of_the_weights_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    masks, targets = linear(rng, np.array([2.0, -1.0, 0.5]), 30)
    weights, coef = rng.uniform(0.1, 1, 30), np.array([2.0, -1.0, 0.5])
    ours, theirs = (estimate_uncertainty(masks, targets, w, coef) for w in (weights, 0.01 * weights))
    assert np.allclose(ours.half_width, theirs.half_width)


def test_additive_targets_are_foretold_and_noise_is_not() -> None:
    known, noise = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        masks, targets = linear(rng, rng.normal(size=8), 64, noise=0.01)
        known.append(
            estimate_uncertainty(
                masks, targets, np.ones(64), WLS().fit(masks, targets, np.ones(64)).coef
            )
        )
        blind = rng.normal(size=64)
        noise.append(
            estimate_uncertainty(masks, blind, np.ones(64), WLS().fit(masks, blind, np.ones(64)).coef)
        )
    assert min(c.cv_correlation for c in known) > 0.99
    assert abs(np.mean([c.cv_correlation for c in noise])) < 0.15


def test_left_out_readings_are_foretold_as_if_they_had_not_been_fitted() -> None:
    masks, targets = linear(np.random.default_rng(3), np.array([1.0, -0.5, 0.2, 0.0]), 24)
    coef = WLS().fit(masks, targets, np.ones(24)).coef
    by_hand = []
    for i in range(24):
        others = np.arange(24) != i
        fit = WLS().fit(masks[others], targets[others], np.ones(23))
        by_hand.append(fit.predict(masks[i : i + 1])[0])
    expected = spearmanr(targets, by_hand).statistic
    assert estimate_uncertainty(masks, targets, np.ones(24), coef).cv_correlation == pytest.approx(
        expected, abs=0.02
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_targets_that_do_not_vary_have_no_width_and_foretell_nothing(value: float) -> None:
    masks, _ = linear(np.random.default_rng(0), np.ones(3), 30)
    found = estimate_uncertainty(masks, np.full(30, value), np.ones(30), np.zeros(3))
    assert np.allclose(found.half_width, 0, atol=1e-12)
    assert math.isnan(found.cv_correlation)


def test_what_cannot_be_told_apart_is_wide_and_finite() -> None:
    rng = np.random.default_rng(0)
    masks, targets = linear(rng, np.array([1.0, 1.0, 0.5, 0.0]), 40)
    masks[:, 1] = masks[:, 0]  # always together
    masks[:, 3] = True  # never removed
    coef = WLS().fit(masks, targets, np.ones(40)).coef
    half_width = estimate_uncertainty(masks, targets, np.ones(40), coef).half_width
    assert np.isfinite(half_width).all()
    assert min(half_width[0], half_width[1], half_width[3]) > 5 * half_width[2]


def test_many_features_take_no_more_room_than_the_readings_and_one_square_do() -> None:
    rng = np.random.default_rng(0)
    masks, targets = linear(rng, rng.normal(size=300), 1000)
    tracemalloc.start()
    estimate_uncertainty(masks, targets, np.ones(1000), np.zeros(300))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * 10 * (1000 * 300 + 300 * 300)


def test_two_features_read_in_every_way() -> None:
    scores = scoring([[1, 1], [1, 0], [0, 1]], [[-1.0], [-1.0], [-3.0]])
    found = fit(scores, Recipe.of("nll", "uniform", "wls"))
    assert np.allclose(found.weights, [2, 0])
    noise = np.hypot(0.1 * 0.9 * 1.0, 0.9 * 0.2 * math.sqrt(2))
    assert np.allclose(found.half_width, 1.645 * np.hypot(noise, [0.5, 0.0]))


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [1.0, np.nan, 1.0], [1.0, -1.0, 1.0]])
def test_weights_that_mean_nothing_are_refused(weights: list[float]) -> None:
    class Broken(Uniform):
        def weigh(self, scores: Scores) -> Floats:
            return np.array(weights)

    scores = scoring([[1, 1], [1, 0], [0, 1]], [[-1.0], [-1.0], [-3.0]])
    with pytest.raises(InputError, match="finite weights that are not negative, and not all zero"):
        fit(scores, Recipe.of("nll", Broken(), "wls"))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_exact_readings_leave_open_what_was_open_before_them(count: int) -> None:
    masks, targets = linear(np.random.default_rng(0), np.array([2.0, -1.0, 0.5]), 30)
    coef, exact = np.array([2.0, -1.0, 0.5]), np.arange(30) < count
    half_width = estimate_uncertainty(
        masks, targets, np.ones(30), coef, exact, control_variate=True, least=0.3
    ).half_width
    assert np.allclose(half_width, 2.0 * np.hypot(0.4 * np.sqrt((coef**2).mean()), 0.3))


@pytest.mark.parametrize("n", [2, 3, 8])
def test_cached_readings_are_off_by_something_however_few_and_small(n: int) -> None:
    masks = resolve_sampler("exhaustive").sample(n, budget=None, rng=np.random.default_rng(0)).masks
    masks = np.concatenate([np.ones((1, n), bool), masks])
    targets = masks @ np.full(n, 1e-4)
    coef = BayesRidge().fit(masks, targets, np.ones(len(masks))).coef
    cached = np.arange(len(masks)) == 0
    half_width = estimate_uncertainty(
        masks, targets, np.ones(len(masks)), coef, cached, shrinks=True, least=0.2
    ).half_width
    assert half_width.min() >= 1.645 * 0.2
    assert half_width.max() < 0.4


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
def test_rank_correlation_of_known_values(a: list[float], b: list[float], expected: float) -> None:
    assert rank_correlation(a, b) == pytest.approx(expected)
    assert rank_correlation(np.array(b), np.array(a)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("a", "b"), [([], []), ([1.0], [2.0]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 0])]
)
def test_where_rank_correlation_is_undefined(a: list[float], b: list[float]) -> None:
    assert math.isnan(rank_correlation(a, b))
