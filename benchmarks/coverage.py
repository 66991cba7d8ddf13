"""Indicators of trust, and whether intervals cover the weights that many more masks give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.evaluation.labels import Labels
from benchmarks.methods import Method
from ropelime.method.attribution import Attribution, Recipe, fit
from ropelime.method.samplers import SparseK, resolve_sampler
from ropelime.method.scores import Scores
from ropelime.results.trust import indicators
from ropelime.surrogate import Scorer
from ropelime.typing import Masks

if TYPE_CHECKING:
    from benchmarks.runner import Reader

_MANY = 450


def reference(n: int, seed: tuple[int, int], readers: dict[str, Reader]) -> dict[str, Attribution]:
    """Weights from many masks, by target.

    Random-half masks with exact scoring for log-probability; local ones with cached scoring for
    evidence.
    """
    rng = np.random.default_rng([*seed, 2])
    random_half = resolve_sampler(f"hadamard:{_MANY}").sample(n, budget=None, rng=rng).masks
    readers["exact"].read(random_half, fitted=False)
    nll = Recipe.of("nll", "uniform", "wls")
    local = [~np.eye(n, dtype=bool)]
    for size in (2, 4, "sqrt"):
        part = SparseK(size, active="removed", masks=_MANY // 3)
        local.append(part.sample(n, budget=None, rng=rng).masks)
    masks = np.concatenate(local)
    readers["cached"].read(masks)
    evidence = Recipe.of("evidence", "uniform", "wls")
    return {
        "nll": fit(readers["exact"].scores(random_half), nll, tokens=False),
        "evidence": fit(readers["cached"].scores(masks), evidence, tokens=False),
    }


def details(
    m: Method,
    fitted: Attribution,
    scores: Scores,
    gold: Labels,
    scorer: Scorer,
    known: dict[str, Attribution],
) -> dict[str, float | None]:
    """Indicators of trust, whether the first feature is gold, tokens run, and coverage of intervals."""
    row: dict[str, float | None] = {}
    if m.preset:  # only presets report trust
        row["first"] = float(gold[int(np.argmax(fitted.normalized_weights))])
        known_too = indicators(scores.fitted(), fitted)
        row |= {f"by_{name}": value for name, value in known_too.items()}
    if count := getattr(scorer, "count", None):
        exact = scores.exact & (np.arange(len(scores.masks)) > 0)
        parts = [count(scores.masks[rows], cached=cached) for rows, cached in _kinds(scores, exact)]
        row["run"] = float(sum(parts))
    target = getattr(m.recipe.target, "name", "")
    if target in known:
        # Normalised, because the unit of evidence is the mean shift of the masks that were scored.
        total, reference_fit = float(np.abs(fitted.weights).sum()), known[target]
        aim = reference_fit.weights * (total / max(float(np.abs(reference_fit.weights).sum()), 1e-300))
        if target == "nll":
            aim = reference_fit.weights
        off = np.abs(fitted.weights - aim) / np.maximum(fitted.half_width, 1e-300)
        row["covered"] = float((off <= 1).mean())
        row["reach"] = float(np.quantile(off, 0.9))  # half widths that would cover nine in ten
        row["halfwidth"] = float(
            fitted.half_width.mean() / max(float(np.abs(fitted.weights).max()), 1e-300)
        )
    return row


def _kinds(scores: Scores, exact: Masks) -> list[tuple[Masks, bool]]:
    """The rows with cached and with exact scores, each with the unmasked prompt."""
    first = np.arange(len(scores.masks)) == 0
    found = [(first | ~exact, True)] if not exact[1:].all() else []
    return [*found, (first | exact, False)] if exact.any() else found
