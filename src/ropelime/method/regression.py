"""The weighted linear fit from masks to targets. numpy or scikit-learn do the solving."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ropelime.errors import InputError
from ropelime.registry import is_number, resolve
from ropelime.typing import Floats, Masks

_FEW = 16  # exact scores that weigh as much as the assumption that cached ones have the right size
_MOST_ROUNDS = 1000  # and folds: more would take for ever and change nothing
_DEPENDENT = 1e-7  # a column that is so much smaller without the others' part hangs on them


@dataclass(frozen=True)
class LinearFit:
    """A linear model of one target or of several: ``intercept + masks @ coef``."""

    coef: Floats  # (n,) or (n, T)
    intercept: Floats  # () or (T,)

    def predict(self, masks: Masks) -> Floats:
        """The target that the model expects under each mask."""
        return np.asarray(masks @ self.coef + self.intercept)


class Regressor(ABC):
    """Fits targets on masks.

    Attributes:
        name: What it is called in options and explanations.
        solves_together: Whether one system is solved for all columns of the targets, however many.
        uses_control_variates: Whether :meth:`fit_mixed` is there.
        estimates_prior: Whether the size of the penalty is estimated, so that there are residuals
            however few masks were scored.
    """

    name: ClassVar[str]
    solves_together: ClassVar[bool] = False
    uses_control_variates: ClassVar[bool] = False
    estimates_prior: ClassVar[bool] = False

    @property
    def least_scores(self) -> int:
        """Fewer scored masks than this cannot be fitted."""
        return 1

    @abstractmethod
    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Fit (N,) targets, or each column of (N, T) by itself."""

    def fit_mixed(self, masks: Masks, targets: Floats, weights: Floats, exact: Masks) -> LinearFit:
        """Fit few exact scores with many cached ones as control variates, where that is offered.

        ``exact`` (N,) says which scores are exact; that of the full prompt is.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class WLS(Regressor):
    """Weighted least squares. With fewer masks than features, the solution of minimum norm."""

    name: ClassVar[str] = "wls"
    solves_together: ClassVar[bool] = True

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Solve by numpy: importing scikit-learn takes longer than all of it."""
        x, y = centred(masks, targets, weights)
        return _with_intercept(_least_squares(x, y), masks, targets, weights)


@dataclass(frozen=True)
class Ridge(Regressor):
    """Weighted least squares with a penalty ``alpha * |coef|^2``."""

    alpha: float = 1.0  # against weights of at most one
    name: ClassVar[str] = "ridge"
    solves_together: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_alpha(self.name, self.alpha)

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Solve as least squares, with one more row for each feature that draws it to zero."""
        x, y = centred(masks, targets, weights)
        pull = np.sqrt(self.alpha / weights.mean()) * np.eye(x.shape[1])
        zeros = np.zeros((x.shape[1], *y.shape[1:]))
        coef = _least_squares(np.concatenate([x, pull]), np.concatenate([y, zeros]))
        return _with_intercept(coef, masks, targets, weights)


@dataclass(frozen=True)
class BayesRidge(Regressor):
    """Empirical-Bayes ridge: the data choose the penalty, smaller for features that turn out to matter.

    The penalty maximises the marginal likelihood of a normal model. Then the prior variance of every
    feature is set by its estimated weight, and the fit is repeated.
    """

    rounds: int = 3  # how often it is fitted; one gives every feature the same prior
    name: ClassVar[str] = "bayes-ridge"
    uses_control_variates: ClassVar[bool] = True
    estimates_prior: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_whole("rounds of bayes-ridge", self.rounds, 1)

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Fit every target by itself."""
        nothing = np.zeros((masks.shape[1], *targets.shape[1:]))
        return self._fit(masks, targets, weights, nothing)

    def fit_mixed(self, masks: Masks, targets: Floats, weights: Floats, exact: Masks) -> LinearFit:
        """Fit few exact scores with many cached ones as control variates.

        The cached scores are fitted first. The difference of the exact scores from that fit is fitted
        next, shrunk to zero where exact scores are few; with many of them the cached ones do not count.
        """
        # Masks that were scored exactly only, such as the full prompt, belong to the first fit too.
        also_cached = {mask.tobytes() for mask in masks[~exact]}
        cached = ~exact | np.array([mask.tobytes() not in also_cached for mask in masks])
        prior = self.fit(masks[cached], targets[cached], weights[cached]).coef
        return self._fit(masks[exact], targets[exact], weights[exact], prior)

    def _fit(self, masks: Masks, targets: Floats, weights: Floats, prior: Floats) -> LinearFit:
        columns = zip(targets.reshape(len(masks), -1).T, prior.reshape(len(prior), -1).T, strict=True)
        coef = [self._coefficients(masks, column, weights, along) for column, along in columns]
        return _with_intercept(np.stack(coef, 1).reshape(prior.shape), masks, targets, weights)

    def _coefficients(self, masks: Masks, targets: Floats, weights: Floats, prior: Floats) -> Floats:
        x, y = centred(masks, targets, weights)
        coef = prior * _stretch(x @ prior, y)
        y = y - x @ coef
        towards, scale = coef, np.ones(x.shape[1])
        for _ in range(self.rounds):
            if not y.any():
                break
            coef = towards + scale * _most_likely(x * scale, y)[0]
            scale = np.sqrt(1 + coef**2 / max(float((coef**2).mean()), 1e-300))
            scale /= np.sqrt((scale**2).mean())
        return coef


@dataclass(frozen=True)
class Lasso(Regressor):
    """Weighted least squares with a penalty ``alpha * |coef|``, which leaves most of them at zero."""

    alpha: float = 0.01  # of a target that is scaled to unit variance
    name: ClassVar[str] = "lasso"

    def __post_init__(self) -> None:
        _check_alpha(self.name, self.alpha)

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Solve by coordinate descent, each target scaled by its own standard deviation."""
        from sklearn.linear_model import Lasso as Solver

        scale = _scale(targets, weights)
        solver = Solver(alpha=self.alpha, max_iter=20_000)
        solver.fit(masks.astype(float), targets / scale, sample_weight=weights)
        coef = np.asarray(solver.coef_).T.reshape(masks.shape[1:] + targets.shape[1:])
        return LinearFit(coef * scale, np.asarray(solver.intercept_ * scale))


@dataclass(frozen=True)
class LassoCV(Regressor):
    """Lasso with the penalty chosen by cross-validation on the target."""

    folds: int = 5
    name: ClassVar[str] = "lasso-cv"

    def __post_init__(self) -> None:
        _check_whole("folds of lasso-cv", self.folds, 2)

    @property
    def least_scores(self) -> int:
        """Fewer scored masks than this cannot be divided into folds."""
        return 2 * self.folds

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Choose alpha for the (mean) target, then fit every target with it."""
        from sklearn.linear_model import LassoCV as Solver
        from sklearn.model_selection import KFold

        chosen = targets if targets.ndim == 1 else targets.mean(1)
        check_enough(self, len(masks))
        counts = weights > 0  # a fold in which nothing counts cannot be judged by
        if counts.sum() < self.least_scores or np.ptp(chosen[counts]) == 0:
            return Lasso().fit(masks, targets, weights)  # nothing to choose by
        scaled = chosen / _scale(chosen, weights)
        folds = KFold(self.folds, shuffle=True, random_state=0)  # samplers draw in an order
        solver = Solver(cv=folds, max_iter=20_000)
        solver.fit(masks[counts].astype(float), scaled[counts], sample_weight=weights[counts])
        return Lasso(max(float(solver.alpha_), 1e-12)).fit(masks, targets, weights)


REGRESSORS: dict[str, type[Regressor]] = {
    cls.name: cls for cls in (WLS, Ridge, BayesRidge, Lasso, LassoCV)
}
resolve_regressor = partial(resolve, "regressor", registry=REGRESSORS, base=Regressor)


def check_enough(regressor: Regressor, count: int) -> None:
    """Refuse fewer scored masks than a regressor can fit; most can fit any number."""
    least = regressor.least_scores
    if count < least:
        raise InputError(
            f"This regressor needs at least {least} scored masks, not {count}. Raise the budget if the "
            "sampler has more masks, or use regressor='lasso' or 'ridge'."
        )


def weighted_r2(fit: LinearFit, masks: Masks, targets: Floats, weights: Floats) -> float:
    """Share of the weighted variance that the fit accounts for; NaN where the targets do not vary."""
    mean = np.average(targets, weights=weights)
    total = float(np.sum(weights * (targets - mean) ** 2))
    if total <= 1e-24:
        return float("nan")
    return 1.0 - float(np.sum(weights * (targets - fit.predict(masks)) ** 2)) / total


def centred(masks: Masks, targets: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Masks and (N,) or (N, T) targets less their weighted means, times the roots of the weights."""
    root = np.sqrt(weights / weights.mean())
    x = masks - np.average(masks, axis=0, weights=weights)
    y = targets - np.average(targets, axis=0, weights=weights)
    return x * root[:, None], (y.T * root).T


def _with_intercept(coef: Any, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
    """Put the model through the weighted means."""
    middle = np.average(masks, axis=0, weights=weights)
    mean = np.average(targets, axis=0, weights=weights)
    return LinearFit(np.asarray(coef, dtype=np.float64), np.asarray(mean - middle @ coef))


def _least_squares(x: Floats, y: Floats) -> Floats:
    """The smallest solution: by a triangle where there is only one, else by singular values."""
    count, n = x.shape
    if count > n:
        triangle = np.asarray(np.linalg.qr(np.column_stack([x, y]), mode="r"))
        size = np.abs(np.diag(triangle)[:n])
        if size.min() > _DEPENDENT * size.max():
            coef = np.linalg.solve(triangle[:n, :n], triangle[:n, n:])
            return np.asarray(coef.reshape(n, *y.shape[1:]))
    return np.asarray(np.linalg.lstsq(x, y, rcond=None)[0])


def _most_likely(x: Floats, y: Floats) -> tuple[Floats, float]:
    """Ridge coefficients, and the penalty of the largest marginal likelihood."""
    # Squares of the singular values from the smaller of both products: every penalty is far above
    # what the squares lose.
    wide = x.shape[0] <= x.shape[1]
    squares, turned = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    squares = squares.clip(0)
    some = squares > squares.max() * len(squares) * np.finfo(float).eps
    onto = turned.T @ (y if wide else x.T @ y)
    along = onto if wide else np.where(some, onto / np.sqrt(np.where(some, squares, 1.0)), 0.0)
    rest = max(float(y @ y - along @ along), 0.0)
    freedom = max(1, len(y) - 1)

    def unlikely(penalty: float) -> float:
        grown = 1 + squares / penalty
        left = float((along**2 / grown).sum()) + rest
        return freedom * math.log(max(left, 1e-300)) + float(np.log(grown).sum())

    penalties = (float(squares.mean()) or 1.0) * np.geomspace(1e-3, 1e3, 61)
    best = float(min(penalties, key=unlikely))
    coef = turned @ (onto / (squares + best))
    return np.asarray(x.T @ coef if wide else coef), best


def _stretch(predicted: Floats, y: Floats) -> float:
    """The factor on what cached scores predict, near one while exact scores are few."""
    size = float(predicted @ predicted)
    if size <= 0:
        return 1.0
    return 1.0 + (float(predicted @ y) / size - 1.0) * len(y) / (len(y) + _FEW)


def _scale(targets: Floats, weights: Floats) -> Floats:
    """Weighted standard deviation; a score of weight zero changes nothing."""
    mean = np.average(targets, axis=0, weights=weights)
    spread = np.sqrt(np.average((targets - mean) ** 2, axis=0, weights=weights))
    return np.where(spread > 0, spread, 1.0)


def _check_alpha(name: str, alpha: float) -> None:
    if not is_number(alpha) or alpha <= 0:
        raise InputError(f"alpha of {name} must be above 0, not {alpha!r}. Use 'wls' for no penalty.")


def _check_whole(what: str, value: int, least: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= _MOST_ROUNDS:
        kind = f"a whole number of at least {least} and at most {_MOST_ROUNDS}"
        raise InputError(f"{what} must be {kind}, not {value!r}.")
