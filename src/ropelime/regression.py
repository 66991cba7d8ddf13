"""The weighted linear fit from masks to targets. scikit-learn does the solving."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from ropelime.errors import InputError
from ropelime.passes import Floats, Masks
from ropelime.strategies import resolve


@dataclass(frozen=True)
class Fit:
    """A linear model of the target: ``intercept + masks @ coef``.

    Attributes:
        coef: (n,) for one target, (n, T) for several.
        intercept: () or (T,).
    """

    coef: Floats
    intercept: Floats

    def predict(self, masks: Masks) -> Floats:
        """The target that the model expects under each mask."""
        return np.asarray(masks @ self.coef + self.intercept)


class Regressor(Protocol):
    """Fits targets on masks."""

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> Fit:
        """Fit (N,) targets, or each column of (N, T) by itself."""
        ...


@dataclass(frozen=True)
class WLS:
    """Weighted least squares. With fewer masks than features, the solution of minimum norm."""

    name: ClassVar[str] = "wls"

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> Fit:
        """Solve by singular values, which never fails and gives the smallest solution."""
        from sklearn.linear_model import LinearRegression

        return _fitted(LinearRegression(), masks, targets, weights)


@dataclass(frozen=True)
class Ridge:
    """Weighted least squares with a penalty ``alpha * |coef|^2``.

    Attributes:
        alpha: Strength of the penalty, against weights that are at most one a reading.
    """

    alpha: float = 1.0
    name: ClassVar[str] = "ridge"

    def __post_init__(self) -> None:
        _check_alpha(self.name, self.alpha)

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> Fit:
        """Solve in closed form."""
        from sklearn.linear_model import Ridge as Solver

        return _fitted(Solver(alpha=self.alpha), masks, targets, weights)


@dataclass(frozen=True)
class Lasso:
    """Weighted least squares with a penalty on ``|coef|``, which leaves most of them at zero.

    Attributes:
        alpha: Strength of the penalty; the target is scaled to unit variance first.
    """

    alpha: float = 0.01
    name: ClassVar[str] = "lasso"

    def __post_init__(self) -> None:
        _check_alpha(self.name, self.alpha)

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> Fit:
        """Solve by coordinate descent, each target scaled by its own standard deviation."""
        from sklearn.linear_model import Lasso as Solver

        scale = _scale(targets, weights)
        solver = Solver(alpha=self.alpha, max_iter=20_000)
        fit = _fitted(solver, masks, targets / scale, weights)
        return Fit(fit.coef * scale, fit.intercept * scale)


@dataclass(frozen=True)
class LassoCV:
    """Lasso with the penalty chosen by cross-validation on the target.

    Attributes:
        folds: Parts that the readings are cut into.
    """

    folds: int = 5
    name: ClassVar[str] = "lasso-cv"

    def __post_init__(self) -> None:
        if not isinstance(self.folds, int) or self.folds < 2:
            raise InputError(
                f"folds of lasso-cv must be a whole number of at least 2, not {self.folds!r}."
            )

    @property
    def least_readings(self) -> int:
        """Fewer readings than this cannot be cut into folds."""
        return 2 * self.folds

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> Fit:
        """Choose alpha for the (mean) target, then fit every target with it."""
        from sklearn.linear_model import LassoCV as Solver
        from sklearn.model_selection import KFold

        chosen = targets if targets.ndim == 1 else targets.mean(1)
        check_readings(self, len(masks))
        if np.ptp(chosen) == 0:  # nothing to choose by: every penalty gives zero
            return Lasso().fit(masks, targets, weights)
        scaled = chosen / _scale(chosen, weights)
        folds = KFold(self.folds, shuffle=True, random_state=0)  # samplers draw in an order
        solver = Solver(cv=folds, max_iter=20_000)
        solver.fit(masks.astype(float), scaled, sample_weight=weights)
        return Lasso(max(float(solver.alpha_), 1e-12)).fit(masks, targets, weights)


REGRESSORS: dict[str, type[Regressor]] = {cls.name: cls for cls in (WLS, Ridge, Lasso, LassoCV)}


def resolve_regressor(spec: object) -> Regressor:
    """A regressor by name or as an object."""
    return resolve("regressor", spec, REGRESSORS, method="fit")


def check_readings(regressor: Regressor, count: int) -> None:
    """Refuse fewer readings than a regressor can fit; most can fit any number."""
    least = getattr(regressor, "least_readings", 1)
    if count < least:
        raise InputError(
            f"This regressor needs at least {least} readings, not {count}. Raise the budget if the "
            "sampler has more masks, or use regressor='lasso' or 'ridge'."
        )


def weighted_r2(fit: Fit, masks: Masks, targets: Floats, weights: Floats) -> float:
    """Share of the weighted variance of the targets that the fit accounts for.

    NaN where the targets do not vary at all, because then there is nothing to account for.
    """
    mean = np.average(targets, weights=weights)
    total = float(np.sum(weights * (targets - mean) ** 2))
    if total <= 1e-24:
        return float("nan")
    return 1.0 - float(np.sum(weights * (targets - fit.predict(masks)) ** 2)) / total


def _fitted(solver: Any, masks: Masks, targets: Floats, weights: Floats) -> Fit:
    solver.fit(masks.astype(float), targets, sample_weight=weights)
    coef = np.asarray(solver.coef_, dtype=np.float64)
    intercept = np.asarray(solver.intercept_, dtype=np.float64)
    return Fit(coef.T.reshape(masks.shape[1:] + targets.shape[1:]), intercept)


def _scale(targets: Floats, weights: Floats) -> Floats:
    """Weighted standard deviation; a reading that weighs nothing changes nothing."""
    mean = np.average(targets, axis=0, weights=weights)
    spread = np.sqrt(np.average((targets - mean) ** 2, axis=0, weights=weights))
    return np.where(spread > 0, spread, 1.0)


def _check_alpha(name: str, alpha: float) -> None:
    if not 0 < alpha < math.inf:
        raise InputError(f"alpha of {name} must be above 0, not {alpha}. Use 'wls' for no penalty.")
