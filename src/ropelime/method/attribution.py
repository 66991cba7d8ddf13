"""Readings become shares: weigh them, fit them, and say how good the fit is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.kernels import Kernel, resolve_kernel
from ropelime.method.regression import Fit, Regressor, resolve_regressor, weighted_r2
from ropelime.method.scores import Floats, Scores
from ropelime.method.targets import Target, resolve_target
from ropelime.method.uncertainty import estimate_uncertainty
from ropelime.registry import describe


@dataclass(frozen=True)
class Recipe:
    """How readings are turned into shares.

    Attributes:
        target: What the fit explains.
        kernel: How much each reading counts.
        regressor: How to fit.
    """

    target: Target
    kernel: Kernel
    regressor: Regressor

    @classmethod
    def of(cls, target: object, kernel: object, regressor: object) -> Recipe:
        """Resolve names, dictionaries and objects."""
        return cls(resolve_target(target), resolve_kernel(kernel), resolve_regressor(regressor))

    def describe(self) -> dict[str, Any]:
        """The recipe as plain data, from which :meth:`of` builds it again."""
        return {name: describe(getattr(self, name)) for name in ("target", "kernel", "regressor")}


@dataclass(frozen=True)
class Attribution:
    """The share of every feature.

    Attributes:
        scores: (n,) magnitudes, at least 0, sum 1.
        weights: (n,) signed, in the unit of the target; positive supports the output.
        token_weights: (n, T) the same for each output token by itself.
        r2: Weighted share of the target's variance that the fit accounts for.
        effective: Effective number of readings under the kernel's weights.
        half: (n,) half the width of the 90 % interval of each weight.
        cv_correlation: Rank correlation of the scores with leave-one-out predictions of the fit.
    """

    normalized_weights: Floats
    weights: Floats
    token_weights: Floats
    r2: float
    effective: float
    half: Floats
    cv_correlation: float


def attribute(scores: Scores, recipe: Recipe, *, tokens: bool = True) -> Attribution:
    """Fit the target on the masks.

    Args:
        scores: Readings, the unmasked prompt first.
        recipe: How to fit them.
        tokens: Whether to fit each output token too; without it ``token_weights`` has no columns.
    """
    target = recipe.target
    near = recipe.kernel.weigh(scores)
    if not (np.isfinite(near).all() and near.min() >= 0 and near.sum() > 0):
        raise InputError("The kernel must give finite weights that are not negative, and not all zero.")
    values = target.values(scores)
    # Few exact readings lean on many cheap ones, where the regressor can tell them apart.
    both = bool(scores.exact[1:].any() and not scores.exact.all())
    shrinks = hasattr(recipe.regressor, "fit_mixed")
    control_variate = both and shrinks
    each = np.zeros((scores.masks.shape[1], 0))
    if tokens and getattr(recipe.regressor, "solves_all", False):  # of many features it takes long
        columns = np.column_stack([values, target.token_values(scores)])
        all_of_it = _fit(scores, recipe, columns, near, control_variate=control_variate)
        fit, each = Fit(all_of_it.coef[:, 0], all_of_it.intercept[0]), all_of_it.coef[:, 1:]
    else:
        fit = _fit(scores, recipe, values, near, control_variate=control_variate)
        if tokens:
            each = _fit(
                scores, recipe, target.token_values(scores), near, control_variate=control_variate
            ).coef
    size = np.abs(fit.coef)
    total = size.sum()
    sure = estimate_uncertainty(
        scores.masks,
        values,
        near,
        fit.coef,
        scores.exact,
        control_variate=control_variate,
        shrinks=shrinks,
    )
    told = scores.exact if control_variate else np.ones(len(values), dtype=bool)
    return Attribution(
        normalized_weights=size / total if total > 0 else np.full(len(size), 1 / len(size)),
        weights=target.support * fit.coef,
        token_weights=target.support * each,
        r2=weighted_r2(fit, scores.masks[told], values[told], near[told]),
        effective=float(near.sum() ** 2 / (near**2).sum()),
        half=sure.half,
        cv_correlation=sure.cv_correlation,
    )


def _fit(scores: Scores, recipe: Recipe, values: Floats, near: Floats, *, control_variate: bool) -> Fit:
    if control_variate:
        mixed: Any = recipe.regressor
        found: Fit = mixed.fit_mixed(scores.masks, values, near, scores.exact)
        return found
    return recipe.regressor.fit(scores.masks, values, near)
