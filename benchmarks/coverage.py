"""Whether intervals cover the weights that many more masks give, and what they cost."""

from __future__ import annotations

import numpy as np

from benchmarks.evaluation.labels import Labels
from benchmarks.hardware import packed
from benchmarks.memo import MemoScorer
from benchmarks.method import Method
from ropelime.method.attribution import Attribution, Recipe, fit
from ropelime.method.samplers import SparseK, resolve_sampler
from ropelime.method.scores import Scores
from ropelime.results.explanation import ExplanationData
from ropelime.surrogate.local import LocalScorer
from ropelime.typing import Floats, Masks

_MANY = 450


def reference(n: int, seed: tuple[int, int], scorer: MemoScorer) -> dict[str, Attribution]:
    """Weights from many masks, by target.

    Random-half masks with exact scoring for log-probability; local ones with cached scoring for
    evidence.
    """
    rng, full = np.random.default_rng([*seed, 2]), np.ones((1, n), dtype=bool)
    random_half = resolve_sampler(f"hadamard:{_MANY}").sample(n, budget=None, rng=rng).masks
    local = [~np.eye(n, dtype=bool)]
    for size in (2, 4, "sqrt"):
        part = SparseK(size, active="removed", masks=_MANY // 3)
        local.append(part.sample(n, budget=None, rng=rng).masks)
    exact = scorer.score(np.concatenate([full, random_half]), kl=False)
    cached = scorer.score(
        np.concatenate([full, *local]), kl=True, cached=True, question=scorer.has_question
    )
    return {
        "nll": fit(exact, Recipe.of("nll", "uniform", "wls"), tokens=False),
        "evidence": fit(cached, Recipe.of("evidence", "uniform", "wls"), tokens=False),
    }


def details(
    m: Method, e: ExplanationData, gold: Labels, scorer: MemoScorer, known: dict[str, Attribution]
) -> dict[str, float | None]:
    """Whether the first feature is gold, the tokens run, and the coverage of intervals."""
    row: dict[str, float | None] = {}
    if m.preset:
        row["first"] = float(gold[int(np.argmax(e.normalized_weights))])
    if isinstance(scorer.scorer, LocalScorer):
        kinds = _kinds(m.scores(e))
        row["run"] = float(sum(packed(scorer.scorer, z, cached=cached).tokens for z, cached in kinds))
    target = getattr(m.recipe.target, "name", "")
    if target in known:
        row |= _covered(e, known[target].weights, same_unit=target == "nll")
    return row


def _covered(e: ExplanationData, aim: Floats, *, same_unit: bool) -> dict[str, float | None]:
    """How many weights of a reference the intervals cover, and how wide they are."""
    assert e.intervals is not None
    half_width = np.ptp(e.intervals, axis=1) / 2
    if not same_unit:  # the unit of evidence is the mean shift of the masks that were scored
        aim = aim * (float(np.abs(e.weights).sum()) / max(float(np.abs(aim).sum()), 1e-300))
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
