"""Readings become shares: weigh them, fit them, and say how good the fit is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.kernels import Kernel, resolve_kernel
from ropelime.method.regression import Fit, Regressor, resolve_regressor, weighted_r2
from ropelime.method.scores import Floats, Passes
from ropelime.method.targets import Target, resolve_target
from ropelime.method.uncertainty import certainty
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
        foretold: Rank correlation of the readings with what the fit says of each when it is left out.
    """

    scores: Floats
    weights: Floats
    token_weights: Floats
    r2: float
    effective: float
    half: Floats
    foretold: float


def attribute(passes: Passes, recipe: Recipe, *, tokens: bool = True) -> Attribution:
    """Fit the target on the masks.

    Args:
        passes: Readings, the unmasked prompt first.
        recipe: How to fit them.
        tokens: Whether to fit each output token too; without it ``token_weights`` has no columns.
    """
    target = recipe.target
    near = recipe.kernel.weigh(passes)
    if not (np.isfinite(near).all() and near.min() >= 0 and near.sum() > 0):
        raise InputError("The kernel must give finite weights that are not negative, and not all zero.")
    values = target.values(passes)
    # Few exact readings lean on many cheap ones, where the regressor can tell them apart.
    both = bool(passes.exact[1:].any() and not passes.exact.all())
    shrinks = hasattr(recipe.regressor, "fit_mixed")
    leans = both and shrinks
    each = np.zeros((passes.masks.shape[1], 0))
    if tokens and getattr(recipe.regressor, "solves_all", False):  # of many features it takes long
        columns = np.column_stack([values, target.token_values(passes)])
        all_of_it = _fit(passes, recipe, columns, near, leans=leans)
        fit, each = Fit(all_of_it.coef[:, 0], all_of_it.intercept[0]), all_of_it.coef[:, 1:]
    else:
        fit = _fit(passes, recipe, values, near, leans=leans)
        if tokens:
            each = _fit(passes, recipe, target.token_values(passes), near, leans=leans).coef
    size = np.abs(fit.coef)
    total = size.sum()
    sure = certainty(passes.masks, values, near, fit.coef, passes.exact, leans=leans, shrinks=shrinks)
    told = passes.exact if leans else np.ones(len(values), dtype=bool)
    return Attribution(
        scores=size / total if total > 0 else np.full(len(size), 1 / len(size)),
        weights=target.support * fit.coef,
        token_weights=target.support * each,
        r2=weighted_r2(fit, passes.masks[told], values[told], near[told]),
        effective=float(near.sum() ** 2 / (near**2).sum()),
        half=sure.half,
        foretold=sure.foretold,
    )


def _fit(passes: Passes, recipe: Recipe, values: Floats, near: Floats, *, leans: bool) -> Fit:
    if leans:
        mixed: Any = recipe.regressor
        found: Fit = mixed.fit_mixed(passes.masks, values, near, passes.exact)
        return found
    return recipe.regressor.fit(passes.masks, values, near)
