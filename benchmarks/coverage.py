"""Whether intervals cover the weights that many more masks give, and what they cost."""

from __future__ import annotations

import numpy as np

from benchmarks.evaluation.labels import Labels
from benchmarks.hardware import packed
from benchmarks.memo import MemoScorer
from benchmarks.method import Method
from ropelime.method.attribution import Recipe, fit
from ropelime.method.samplers import resolve_sampler
from ropelime.method.scores import Scores
from ropelime.results.explanation import ExplanationData
from ropelime.surrogate.local import LocalScorer
from ropelime.typing import Floats, Masks

_MANY = 450


def reference(n: int, seed: tuple[int, int], scorer: MemoScorer) -> Floats:
    """(n,) weights for log-probability from many random-half masks, scored exactly."""
    rng, full = np.random.default_rng([*seed, 2]), np.ones((1, n), dtype=bool)
    random_half = resolve_sampler(f"hadamard:{_MANY}").sample(n, budget=None, rng=rng).masks
    scores = scorer.score(np.concatenate([full, random_half]), kl=False)
    return fit(scores, Recipe.of("nll", "uniform", "wls"), tokens=False).weights


def details(
    m: Method, e: ExplanationData, gold: Labels, scorer: MemoScorer, aim: Floats | None
) -> dict[str, float | None]:
    """Whether the first feature is gold, the tokens run, and the coverage of intervals."""
    row: dict[str, float | None] = {}
    if m.preset:
        row["first"] = float(gold[int(np.argmax(e.normalized_weights))])
    if isinstance(scorer.scorer, LocalScorer):
        kinds = _kinds(m.scores(e))
        row["run"] = float(sum(packed(scorer.scorer, z, cached=cached).tokens for z, cached in kinds))
    if aim is not None and getattr(m.recipe.target, "name", "") == "nll":
        row |= _covered(e, aim)
    return row


def _covered(e: ExplanationData, aim: Floats) -> dict[str, float | None]:
    """How many weights of a reference the intervals cover, and how wide they are."""
    assert e.intervals is not None
    half_width = np.ptp(e.intervals, axis=1) / 2
    off = np.abs(e.weights - aim) / np.maximum(half_width, 1e-300)
    return {
        "covered": float((off <= 1).mean()),
        "reach": float(np.quantile(off, 0.9)),  # half widths that would cover nine in ten
        "halfwidth": float(half_width.mean() / max(float(np.abs(e.weights).max()), 1e-300)),
    }


def _kinds(scores: Scores) -> list[tuple[Masks, bool]]:
    """The masks with cached and with exact scores, each after the full prompt."""
    first = np.arange(len(scores.masks)) == 0
    exact = scores.exact & ~first
    found = [(scores.masks[first | ~exact], True)] if not exact[1:].all() else []
    return [*found, (scores.masks[first | exact], False)] if exact.any() else found
