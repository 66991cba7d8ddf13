"""The fit: from scores to a weight for every feature, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.kernels import Kernel, resolve_kernel
from ropelime.method.regression import LinearFit, Regressor, resolve_regressor, weighted_r2
from ropelime.method.scores import Scores
from ropelime.method.targets import Target, resolve_target
from ropelime.method.uncertainty import estimate_uncertainty
from ropelime.registry import describe
from ropelime.typing import Floats


@dataclass(frozen=True)
class Recipe:
    """How scores become weights: what the fit explains, how much each mask counts, and how to fit."""

    target: Target
    kernel: Kernel
    regressor: Regressor

    @classmethod
    def of(cls, target: object, kernel: object, regressor: object) -> Recipe:
        """Resolve names, dictionaries and objects."""
        return cls(resolve_target(target), resolve_kernel(kernel), resolve_regressor(regressor))

    def describe(self) -> dict[str, Any]:
        """The recipe as plain data, from which :meth:`of` builds it again."""
        return {name: describe(strategy) for name, strategy in vars(self).items()}


@dataclass(frozen=True)
class Attribution:
    """The weight of every feature."""

    normalized_weights: Floats  # (n,) magnitudes of the weights, at least 0, sum 1
    weights: Floats  # (n,) signed, in the unit of the target; positive supports the output
    token_weights: Floats  # (n, T) the same for each output token by itself
    r2: float  # weighted, of the fit
    effective_samples: float  # effective number of scored masks under the kernel's weights
    half_width: Floats  # as in Uncertainty
    cv_correlation: float


def fit(scores: Scores, recipe: Recipe, *, tokens: bool = True) -> Attribution:
    """Fit the target on the masks; the first is the full prompt.

    Without ``tokens``, no output token is fitted by itself and ``token_weights`` has no columns.
    """
    target, regressor = recipe.target, recipe.regressor
    locality = recipe.kernel.weigh(scores)
    if not (np.isfinite(locality).all() and locality.min() >= 0 and locality.sum() > 0):
        raise InputError("The kernel must give finite weights that are not negative, and not all zero.")
    # Where some masks were scored exactly and others from the KV cache, the cached scores serve as a
    # control variate for the exact ones, if the regressor offers that.
    both = bool(scores.exact[1:].any() and not scores.exact.all())
    control_variate = both and regressor.uses_control_variates

    def solve(values: Floats) -> LinearFit:
        if control_variate:
            return regressor.fit_mixed(scores.masks, values, locality, scores.exact)
        return regressor.fit(scores.masks, values, locality)

    values = target.values(scores)
    if tokens and regressor.solves_together:
        together = solve(np.column_stack([values, target.token_values(scores)]))
        whole, by_token = LinearFit(together.coef[:, 0], together.intercept[0]), together.coef[:, 1:]
    else:
        whole = solve(values)
        none = np.zeros((scores.masks.shape[1], 0))
        by_token = solve(target.token_values(scores)).coef if tokens else none
    uncertainty = estimate_uncertainty(
        scores.masks,
        values,
        locality,
        whole.coef,
        scores.exact,
        control_variate=control_variate,
        shrinks=regressor.estimates_prior,
    )
    judged = scores.exact if control_variate else np.ones(len(values), dtype=bool)
    return Attribution(
        normalized_weights=normalized(whole.coef),
        weights=target.support * whole.coef,
        token_weights=target.support * by_token,
        r2=weighted_r2(whole, scores.masks[judged], values[judged], locality[judged]),
        effective_samples=float(locality.sum() ** 2 / (locality**2).sum()),
        half_width=uncertainty.half_width,
        cv_correlation=uncertainty.cv_correlation,
    )


def normalized(weights: Floats) -> Floats:
    """(n,) magnitudes that sum to 1; equal where every weight is zero."""
    size = np.abs(weights)
    total = size.sum()
    return np.asarray(size / total if total > 0 else np.full(len(size), 1 / len(size)))
