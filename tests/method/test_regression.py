"""One contract for every regressor, and known solutions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.errors import InputError
from ropelime.method.regression import (
    REGRESSORS,
    WLS,
    BayesRidge,
    Lasso,
    LassoCV,
    LinearFit,
    Regressor,
    Ridge,
    _most_likely,
    centred,
    resolve_regressor,
    weighted_r2,
)
from ropelime.typing import Floats, Masks

COEF = np.array([2.0, -1.0, 0.0, 0.5])
ALL: Masks = np.array(list(itertools.product([True, False], repeat=4)))
# As near to no penalty as each one goes.
FREE = [WLS(), Ridge(1e-9), Lasso(1e-9)]


def problem(rows: int, tokens: int, seed: int = 0) -> tuple[Masks, Floats, Floats]:
    rng = np.random.default_rng(seed)
    masks = rng.random((rows, 4)) < 0.5
    targets = masks @ rng.normal(size=(4, tokens)) + rng.normal(size=(rows, tokens))
    return masks, targets, rng.uniform(0.1, 1, rows)


@pytest.mark.parametrize("name", REGRESSORS)
@settings(max_examples=6, deadline=None)
@given(rows=st.integers(10, 30), tokens=st.integers(1, 3), seed=st.integers(0, 99))
def test_contract(name: str, rows: int, tokens: int, seed: int) -> None:
    masks, targets, weights = problem(rows, tokens, seed)
    regressor = resolve_regressor(name)
    for y in (targets[:, 0], targets):
        fit = regressor.fit(masks, y, weights)
        assert fit.coef.shape == (4, *y.shape[1:])
        assert fit.predict(masks).shape == y.shape
        assert np.isfinite(fit.coef).all()
        again = regressor.fit(masks, y, weights)
        assert np.array_equal(fit.coef, again.coef)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_constant_target_has_zero_coefficients(name: str) -> None:
    fit = resolve_regressor(name).fit(ALL, np.full(16, 3.0), np.ones(16))
    assert np.allclose(fit.coef, 0)
    assert np.allclose(fit.predict(ALL), 3)


@pytest.mark.parametrize("regressor", FREE, ids=lambda r: r.name)
@settings(max_examples=20, deadline=None)
@given(
    coef=st.lists(st.floats(-10, 10), min_size=4, max_size=4),
    intercept=st.floats(-10, 10),
    weights=st.lists(st.floats(0.05, 1), min_size=16, max_size=16),
)
def test_a_linear_function_is_recovered_whatever_the_weights(
    regressor: WLS | Ridge | Lasso, coef: list[float], intercept: float, weights: list[float]
) -> None:
    targets = ALL @ np.array(coef) + intercept
    fit = regressor.fit(ALL, targets, np.array(weights))
    assert np.allclose(fit.coef, coef, atol=5e-3)
    assert np.allclose(fit.intercept, intercept, atol=5e-3)


def test_lasso_cv_nearly_recovers_it() -> None:
    fit = LassoCV().fit(ALL, ALL @ COEF, np.ones(16))
    assert np.allclose(fit.coef, COEF, atol=0.05)


def test_too_few_readings_give_the_solution_of_minimum_norm() -> None:
    # One feature more in the second reading would raise the target by 2: the first two features
    # are seen together only, so that they share it, and the third is never removed.
    masks = np.array([[True, True, True], [False, False, True]])
    fit = WLS().fit(masks, np.array([2.0, 0.0]), np.array([1.0, 0.3]))
    assert np.allclose(fit.coef, [1, 1, 0])
    assert np.allclose(fit.predict(masks), [2, 0])


def test_ridge_in_closed_form() -> None:
    # With the mean taken out: coef = sum(w x y) / (sum(w x x) + alpha) = 1.5 / (0.5 + 1).
    masks = np.array([[True], [False]])
    assert np.allclose(Ridge(1.0).fit(masks, np.array([3.0, 0.0]), np.ones(2)).coef, 1.0)


def test_lasso_in_closed_form() -> None:
    # Target +1, -1 (unit variance), feature +-1/2: coef = (1/2 - alpha) / (1/4).
    masks = np.array([[True], [False]])
    assert np.allclose(Lasso(0.1).fit(masks, np.array([1.0, -1.0]), np.ones(2)).coef, 1.6)
    # The penalty is relative to the spread of the target: ten times the target, ten times the coef.
    assert np.allclose(Lasso(0.1).fit(masks, np.array([10.0, -10.0]), np.ones(2)).coef, 16)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_reading_that_weighs_nothing_changes_nothing(name: str) -> None:
    masks, targets, weights = problem(20, 1)
    weights[7] = 0.0
    outlier = targets[:, 0].copy()
    outlier[7] = 1e3
    regressor = resolve_regressor(name)
    plain = regressor.fit(masks, targets[:, 0], weights)
    assert np.allclose(regressor.fit(masks, outlier, weights).coef, plain.coef)
    weights[7] = 1.0
    assert not np.allclose(regressor.fit(masks, outlier, weights).coef, plain.coef, atol=0.1)


@pytest.mark.parametrize("regressor", [WLS(), Ridge(), BayesRidge(), Lasso()], ids=lambda r: r.name)
def test_many_targets_are_fitted_each_by_itself(regressor: Regressor) -> None:
    masks, targets, weights = problem(20, 5)
    together = regressor.fit(masks, targets, weights)
    for t in range(5):
        alone = regressor.fit(masks, targets[:, t], weights)
        assert np.allclose(together.coef[:, t], alone.coef, atol=1e-6)
        assert np.allclose(together.intercept[t], alone.intercept, atol=1e-6)


def test_bayes_ridge_gives_back_an_additive_function() -> None:
    masks, _, weights = problem(200, 1)
    fit = BayesRidge().fit(masks, masks @ COEF + 3.0, weights)
    assert np.allclose(fit.coef, COEF, atol=5e-3)
    assert fit.intercept == pytest.approx(3.0, abs=5e-3)


@pytest.mark.parametrize(("rounds", "most"), [(1, 0.1), (3, 0.5)])
def test_bayes_ridge_shrinks_noise(rounds: int, most: float) -> None:
    """The later rounds let it in again: they favour what the first one found, however small it was."""
    kept = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        masks, targets = rng.random((40, 12)) < 0.5, rng.normal(size=40)
        ours, plain = (r.fit(masks, targets, np.ones(40)).coef for r in (BayesRidge(rounds), WLS()))
        kept.append(np.linalg.norm(ours) / np.linalg.norm(plain))
    assert np.median(kept) < most


def test_bayes_ridge_of_one_round_is_ridge_with_the_penalty_it_chose() -> None:
    masks, targets, weights = problem(20, 1)
    x, y = centred(masks, targets[:, 0], weights)
    coef, penalty = _most_likely(x, y)
    fit = BayesRidge(1).fit(masks, targets[:, 0], weights)
    assert np.allclose(fit.coef, coef)
    assert np.allclose(fit.coef, np.linalg.solve(x.T @ x + penalty * np.eye(4), x.T @ y))
    plain = Ridge(penalty).fit(masks, targets[:, 0], weights / weights.mean())
    assert np.allclose(fit.coef, plain.coef)
    assert np.allclose(fit.intercept, plain.intercept)


def test_bayes_ridge_takes_the_penalty_of_the_largest_marginal_likelihood() -> None:
    masks, targets, weights = problem(20, 1, seed=2)
    x, y = centred(masks, targets[:, 0], weights)
    _, chosen = _most_likely(x, y)

    def unlikely(penalty: float) -> float:  # normal targets, their scale at its best value
        spread = np.eye(20) + x @ x.T / penalty
        return float(19 * np.log(y @ np.linalg.solve(spread, y)) + np.linalg.slogdet(spread)[1])

    assert unlikely(chosen) < min(unlikely(chosen * 1.5), unlikely(chosen / 1.5))


@pytest.mark.parametrize(
    "name", sorted(set(REGRESSORS) - {"ridge"})
)  # its penalty is against their size
def test_equal_weights_of_any_size_are_no_weights(name: str) -> None:
    masks, targets, _ = problem(20, 1)
    ours, theirs = (
        resolve_regressor(name).fit(masks, targets[:, 0], np.full(20, w)).coef for w in (1.0, 0.3)
    )
    assert np.allclose(ours, theirs, atol=1e-6)


def test_bayes_ridge_with_more_features_than_readings() -> None:
    rng = np.random.default_rng(0)
    masks = rng.random((40, 120)) < 0.5
    fit = BayesRidge().fit(masks, 3.0 * masks[:, 7] + 0.01 * rng.normal(size=40), np.ones(40))
    assert int(np.abs(fit.coef).argmax()) == 7
    assert np.isfinite(fit.coef).all()


def test_lasso_cv_leaves_out_what_weighs_nothing() -> None:
    masks = np.random.default_rng(0).random((24, 3)) < 0.5
    targets, weights = masks @ np.array([1.0, 0.0, -2.0]), np.where(np.arange(24) < 12, 1.0, 0.0)
    for kept in (12, 4):  # of which so many can be cut into folds, or not
        found = LassoCV().fit(masks, targets, weights * (np.arange(24) < kept))
        assert np.isfinite(found.coef).all()


def test_lasso_cv_refuses_too_few_readings() -> None:
    masks, targets, weights = problem(9, 1)
    with pytest.raises(InputError, match=r"at least 10 scored masks, not 9.*Raise the budget"):
        LassoCV().fit(masks, targets[:, 0], weights)


def test_weighted_r2() -> None:
    masks, targets = np.array([[True], [False], [False]]), np.array([4.0, 0.0, 2.0])
    fit = LinearFit(np.array([3.0]), np.array(1.0))  # predicts 4, 1, 1
    assert weighted_r2(fit, masks, targets, np.ones(3)) == pytest.approx(1 - 2 / 8)
    assert weighted_r2(fit, masks, targets, np.array([1.0, 0.0, 1.0])) == pytest.approx(1 - 1 / 2)
    assert math.isnan(weighted_r2(fit, masks, np.full(3, 7.0), np.ones(3))), "nothing to account for"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rigde", "Did you mean 'ridge'"),
        ("ridge:0", "alpha of ridge must be above 0"),
        ("lasso:-1", "Use 'wls' for no penalty"),
        ("lasso:nan", "alpha of lasso"),
        ("ridge:inf", "alpha of ridge"),
        ("lasso-cv:1", "folds of lasso-cv must be a whole number of at least 2"),
        ("lasso-cv:2.5", "whole number"),
        ("wls:1", "takes no parameters"),
        ("bayes-ridge:0", "rounds of bayes-ridge must be a whole number of at least 1"),
        ("bayes-ridge:1.5", "whole number"),
        ("bayes-ridge:true", "whole number"),
        ("bayes-ridge:1000000000", "at most 1000"),
        ("ridge:none", "alpha of ridge must be above 0, not None"),
    ],
)
def test_wrong_parameters(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_regressor(spec)


@pytest.mark.parametrize("shape", [(), (3,)])
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(3, 20), n=st.integers(1, 12), seed=st.integers(0, 999), twin=st.booleans())
def test_wls_is_the_smallest_solution_of_singular_values(
    shape: tuple[int, ...], rows: int, n: int, seed: int, twin: bool
) -> None:
    """Whichever way it is solved: enough masks, too few, features that always go together."""
    rng = np.random.default_rng(seed)
    masks = rng.random((rows, n)) < rng.choice([0.2, 0.5, 0.95])
    masks[:, -1] = masks[:, 0] if twin else masks[:, -1]
    targets, weights = rng.normal(size=(rows, *shape)), rng.uniform(0.1, 1, rows)
    x, y = centred(masks, targets, weights)
    expected = np.linalg.lstsq(x, y, rcond=1e-10)[0]
    np.testing.assert_allclose(WLS().fit(masks, targets, weights).coef, expected, atol=1e-10)


def test_as_many_masks_as_features_are_solved_exactly() -> None:
    """Leave-one-out by hand: a weight is what the target loses."""
    n = 300
    masks = np.concatenate([np.ones((1, n), dtype=bool), ~np.eye(n, dtype=bool)])
    targets = np.random.default_rng(0).normal(size=n + 1)
    fit = WLS().fit(masks, targets, np.linspace(0.1, 1, n + 1))
    np.testing.assert_allclose(fit.coef, targets[0] - targets[1:], atol=1e-10)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (12, 12)])
def test_the_likeliest_penalty_is_that_of_singular_values(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=shape)
    x[:, -1] = x[:, 0]
    y = x @ rng.normal(size=shape[1]) + rng.normal(size=shape[0])
    coef, penalty = _most_likely(x, y)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(coef, vt.T @ (s / (s**2 + penalty) * (u.T @ y)), atol=1e-10)
