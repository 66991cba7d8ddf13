"""The fit: from scores to a weight for every feature, with its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.groups import divided, has_groups
from ropelime.method.kernels import Kernel, resolve_kernel
from ropelime.method.regression import LinearFit, Regressor, resolve_regressor, weighted_r2
from ropelime.method.scores import Scores
from ropelime.method.targets import Evidence, Instant, Target, dependence, resolve_target
from ropelime.method.uncertainty import CACHED, estimate_uncertainty
from ropelime.registry import describe
from ropelime.typing import Floats

# Half the width of the interval of a share: how far the signals differ, a least width that is larger
# where there are few parts (in part of what each would have if all were equal), and a part of
# the spread of a yes or no of that probability. So wide, the intervals cover what answering models lost
# without a part for nine parts of ten that were learnt from (docs/results/truth.md has others).
_LEAST_WIDTH, _OF_EQUAL, _OWN_SPREAD = 0.02, 0.25, 0.5
_FEW = 8  # features: among fewer, the one in the middle may well matter
# Shares grow with a power of a signal: a little of it is what any part has. Of words only much counts.
POWER = {"shift": 1.5, "words": 3, "question": 1.5}
# The last part is next to the question and moves it whatever it says, by 2.5 times as much as a part
# elsewhere that is as often a source (docs/results/truth.md).
_LAST = 0.4


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

    @property
    def uses_words(self) -> bool:
        """Whether :func:`fit` needs to know which words the features share with the answer."""
        return bool(self.target.signals.get("words"))

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
    signals: Mapping[str, Floats] = field(default_factory=dict)  # (n,) the shares that each gives
    from_masks: bool = True  # whether ablations were fitted
    grouped: bool = False  # whether features were removed in groups, which share what they moved


def fit(
    scores: Scores, recipe: Recipe, *, words: Floats | None = None, tokens: bool = True
) -> Attribution:
    """Fit the target on the masks; the first is the full prompt.

    ``words`` (n,) says which words the features share with the answer, for targets that use them.
    Without ``tokens``, no output token is fitted by itself and ``token_weights`` has no columns.
    """
    target, regressor = recipe.target, recipe.regressor
    if isinstance(target, Instant):
        return instant(scores, target, words)
    locality = _locality(scores, recipe)
    # Where some masks were scored exactly and others from the KV cache, the cached scores serve as a
    # control variate for the exact ones, if the regressor offers that.
    both = bool(scores.exact[1:].any() and not scores.exact.all())
    control_variate = both and regressor.uses_control_variates
    grouped = _is_grouped(scores, target)

    def solve(values: Floats) -> LinearFit:
        if grouped:
            return _members(scores, values)
        if control_variate:
            return regressor.fit_mixed(scores.masks, values, locality, scores.exact)
        return regressor.fit(scores.masks, values, locality)

    values = target.values(scores)
    targets = {"whole": values}
    if tokens:
        targets["tokens"] = target.token_values(scores)
    if isinstance(target, Evidence) and (asked := target.question_values(scores)) is not None:
        targets["question"] = asked
    fits = _fits(solve, targets, together=regressor.solves_together or grouped)
    whole = fits["whole"]
    by_token = fits["tokens"].coef if tokens else np.zeros((scores.masks.shape[1], 0))
    uncertainty = estimate_uncertainty(
        scores.masks,
        values,
        locality,
        whole.coef,
        scores.exact,
        control_variate=control_variate,
        shrinks=regressor.estimates_prior,
        least=CACHED / (scores.logprob.shape[1] if target.per_token else 1),
    )
    judged = scores.exact if control_variate else np.ones(len(values), dtype=bool)
    fitted = Attribution(
        normalized_weights=normalized(whole.coef),
        weights=target.support * whole.coef,
        token_weights=target.support * by_token,
        r2=weighted_r2(whole, scores.masks[judged], values[judged], locality[judged]),
        effective_samples=float(locality.sum() ** 2 / (locality**2).sum()),
        half_width=uncertainty.half_width,
        cv_correlation=uncertainty.cv_correlation,
        grouped=grouped,
    )
    fitted = replace(fitted, r2=float("nan")) if grouped else fitted
    if not isinstance(target, Evidence):
        return fitted
    question = target.support * fits["question"].coef if "question" in fits else None
    return evidence(fitted, target, dependence(scores), question, words)


def _locality(scores: Scores, recipe: Recipe) -> Floats:
    """(N,) how much each mask counts."""
    locality = recipe.kernel.weigh(scores)
    if not (np.isfinite(locality).all() and locality.min() >= 0 and locality.sum() > 0):
        raise InputError("The kernel must give finite weights that are not negative, and not all zero.")
    return locality


def _members(scores: Scores, values: Floats) -> LinearFit:
    """What each feature moves, where some were removed in groups; shifts add up by their squares."""
    assert scores.attention is not None
    prior = scores.attention.sum(0)
    coef = -np.sqrt(divided(scores.masks[1:], values[1:] ** 2, prior))
    return LinearFit(coef, np.zeros(values.shape[1:]))


def _fits(
    solve: Callable[[Floats], LinearFit], targets: Mapping[str, Floats], *, together: bool
) -> dict[str, LinearFit]:
    """The fit of each (N,) or (N, T) target, by one factorisation where the regressor can do that."""
    if not together:
        return {name: solve(values) for name, values in targets.items()}
    all_of_them = solve(np.column_stack(list(targets.values())))
    fits, at = {}, 0
    for name, values in targets.items():
        own = slice(at, at + values.shape[1]) if values.ndim > 1 else at
        fits[name] = LinearFit(all_of_them.coef[:, own], all_of_them.intercept[own])
        at += values.shape[1] if values.ndim > 1 else 1
    return fits


def evidence(
    fitted: Attribution,
    target: Evidence,
    dependence: Floats,
    question: Floats | None,
    words: Floats | None,
) -> Attribution:
    """The shares of the features out of the fit of the answer's shift and the other signals.

    Args:
        fitted: The fit of the answer's shift.
        target: How much each signal counts.
        dependence: (T,) what the prompt does for each output token.
        question: (n,) the coefficients of the question's shift, where it was scored.
        words: (n,) what the features share with the answer.
    """
    shift = np.maximum(fitted.weights, 0.0)
    found = {"shift": shift, "words": words, "question": question}
    used = {name: v for name, v in found.items() if v is not None and target.signals[name]}
    signals = {name: sharpened(values, POWER[name]) for name, values in used.items()}
    if "question" in signals:
        signals["question"] = without_place(signals["question"])
    weights, counts = _mean(signals, target.signals, len(shift))
    weights = above_floor(weights)
    by_token = sharpened(np.maximum(fitted.token_weights, 0.0))
    return replace(
        fitted,
        normalized_weights=normalized(weights),
        weights=weights,
        token_weights=by_token * dependence if by_token.shape[1] else by_token,
        half_width=half_width(signals, counts, weights),
        signals=signals,
    )


def without_place(question: Floats, count: float = _LAST) -> Floats:
    """Shares of the question's shift, with less for the last part, which is next to the question."""
    left = question.copy()
    left[-1] *= count
    total = left.sum()
    return np.asarray(left / total) if total else question


def instant(scores: Scores, target: Instant, words: Floats | None) -> Attribution:
    """The shares of the features out of attention and words; nothing is fitted."""
    n = scores.masks.shape[1]
    signals: dict[str, Floats] = {}
    by_token = np.zeros((n, scores.logprob.shape[1]))
    if scores.attention is not None and target.attention:
        by_token = scores.attention.T / (scores.attention.sum() or 1.0)
        signals["attention"] = by_token.sum(1)
    if words is not None and target.words:
        signals["words"] = sharpened(words, POWER["words"])
    weights, counts = _mean(signals, target.signals, n)
    weights = above_floor(weights)
    return Attribution(
        normalized_weights=normalized(weights),
        weights=weights,
        token_weights=by_token,
        r2=float("nan"),
        effective_samples=1.0,
        half_width=half_width(signals, counts, weights),
        cv_correlation=float("nan"),
        signals=signals,
        from_masks=False,
    )


def _is_grouped(scores: Scores, target: Target) -> bool:
    """Whether features were removed in groups; attention may also be there for another target."""
    attends = isinstance(target, Evidence) and scores.attention is not None
    return attends and has_groups(scores.masks)


def half_width(signals: Mapping[str, Floats], counts: Mapping[str, float], weights: Floats) -> Floats:
    """(n,) half the width of the 90 % interval of each share; zero where there are no shares."""
    if not counts:
        return np.zeros(len(weights))
    differ = np.asarray(sum(counts[name] * (signals[name] - weights) ** 2 for name in counts))
    own = _OWN_SPREAD**2 * weights * (1 - weights).clip(0.0)
    least = _LEAST_WIDTH + _OF_EQUAL / len(weights)
    return np.asarray(np.sqrt(differ + least**2 + own))


def above_floor(shares: Floats) -> Floats:
    """Shares without what any feature would get, whatever the answer: that of the one in the middle.

    Most features do nothing for an answer. Where most do something, the one in the middle has about as
    much as all would have if they were equal, so at most half of that is taken away.
    """
    n = len(shares)
    if n < _FEW or not shares.any():
        return shares
    left = np.maximum(shares - min(float(np.median(shares)), 0.5 * float(shares.mean())), 0.0)
    return np.asarray(left / left.sum())


def sharpened(values: Floats, power: float = 2) -> Floats:
    """Shares by a power of what is above zero, in each column; all zero where nothing is."""
    largest = np.maximum(values.max(0, initial=0.0), 1e-300)
    raised = (np.maximum(values, 0.0) / largest) ** power
    total = raised.sum(0)
    return np.asarray(raised / np.where(total > 0, total, 1.0))


def _mean(
    signals: Mapping[str, Floats], counts: Mapping[str, float], n: int
) -> tuple[Floats, Mapping[str, float]]:
    """(n,) the mean of the signals that say something, and how much each of them counted for."""
    heard = {name: counts[name] for name, share in signals.items() if share.any() and counts[name]}
    total = sum(heard.values())
    if not total:
        return np.zeros(n), {}
    used = {name: count / total for name, count in heard.items()}
    return np.asarray(sum(used[name] * signals[name] for name in used)), used


def normalized(weights: Floats) -> Floats:
    """(n,) magnitudes that sum to 1; equal where every weight is zero."""
    size = np.abs(weights)
    total = size.sum()
    return np.asarray(size / total if total > 0 else np.full(len(size), 1 / len(size)))
