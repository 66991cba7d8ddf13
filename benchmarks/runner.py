"""Runs methods over examples: every mask that any of them needs is scored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks import coverage
from benchmarks.data import Example
from benchmarks.evaluation import Plan, agreement, chance, follow, held_out, plan, spearman
from benchmarks.memo import Memo, MemoScorer
from benchmarks.method import Method, options_of
from benchmarks.names import CHANCE
from benchmarks.store import Row, Store
from ropelime.explain import Explanation, explain_many
from ropelime.steps import Task
from ropelime.surrogate import Ablation, Surrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_text

_EVERY = 3  # one example in so many has its intervals compared with many more masks
UNLABELLED: Row = {"iou": None, "f1": None, "auroc": None}  # an example without gold
# A method that ranks features without the surrogate's scores: its row for one example.
Extra = Callable[[Example, np.random.Generator], Row]


def run(
    examples: Sequence[Example],
    methods: Sequence[Method],
    surrogate: Surrogate,
    store: Store,
    *,
    seed: int,
    curves: bool = True,
    detail: bool = False,
    intervals: bool = False,
    ablation: Ablation = Ablation(),  # noqa: B008 - it is frozen
    extras: dict[str, Extra] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run every example that the store does not hold yet.

    Args:
        examples: The examples.
        methods: The methods.
        surrogate: The model that scores.
        store: Where the rows go.
        seed: Seed of all masks; example i draws from (seed, i), whatever was run before.
        curves: Whether to compute the top-k drops and the insertion and deletion curves.
        detail: Whether to add the tokens run.
        intervals: Whether to score every third example under many more masks, and to add the coverage
            of the intervals.
        ablation: How features are removed.
        extras: Methods of another kind, by name.
        progress: Called with the examples done and in all.
    """
    for number, example in store.left(examples, progress):
        rows = rows_of(
            example,
            methods,
            surrogate,
            seed=(seed, number),
            ablation=ablation,
            curves=curves,
            detail=detail,
            intervals=intervals and number % _EVERY == 0,
        )
        rows.append({"method": CHANCE, **_rounded(_by_chance(example))})
        for name, extra in (extras or {}).items():
            rows.append({"method": name, **extra(example, np.random.default_rng([seed, number]))})
        store.add(example.id, [{**known(example), **row} for row in rows])


def known(example: Example) -> Row:
    """What every row of an example begins with."""
    return {
        "example": example.id,
        "group": example.group,
        "features": len(example.spans),
        "gold": int(example.gold.sum()),
    }


def rows_of(
    example: Example,
    methods: Sequence[Method],
    surrogate: Surrogate,
    *,
    seed: tuple[int, int],
    ablation: Ablation,
    curves: bool = False,
    detail: bool = False,
    intervals: bool = False,
) -> list[Row]:
    """Explain an example by all methods, then measure every explanation.

    Args:
        example: The example.
        methods: The methods.
        surrogate: The model that scores.
        seed: The seed of the run and the number of the example.
        ablation: How features are removed.
        curves: Whether to compute the top-k drops and the insertion and deletion curves.
        detail: Whether to add the tokens run.
        intervals: Whether to score many more masks, and to add the coverage of the intervals.
    """
    n, gold, prompt = len(example.spans), example.gold, from_text(example.prompt)
    memo = Memo(surrogate, [m.recipe for m in methods])
    features = split(prompt, example.spans, token_spans=memo.token_spans)
    scorer = memo.prepare(prompt, features, example.answer, ablation=ablation)
    chosen = options_of(methods, scorer, features=example.spans, ablation=ablation, entropy=seed)
    explained = explain_many([Task(prompt, example.answer, options) for options in chosen], [memo])
    found = [e for e in explained if isinstance(e, Explanation)]

    unseen = held_out(n, np.random.default_rng([*seed, 1]))
    true = scorer.logprob(unseen)
    plans = [plan(e.normalized_weights) for e in found] if curves else []
    if plans:  # all of them in the same forward passes
        scorer.logprob(np.concatenate([one.masks for one in plans]))
    many = coverage.reference(n, seed, scorer) if intervals else None

    rows: list[Row] = []
    for number, (m, e) in enumerate(zip(methods, found, strict=True)):
        row = asdict(agreement(e.normalized_weights, gold)) if gold.any() else dict(UNLABELLED)
        row["lds"] = spearman(unseen @ e.weights, true)
        if plans:
            row |= _followed(plans[number], scorer)
        if detail:
            row |= coverage.details(m, e, gold, scorer, many)
        rows.append({"method": m.name, **_rounded(row), **_cost(m, e, scorer)})
    return rows


def _by_chance(example: Example) -> Row:
    """What a random ranking is expected to reach."""
    gold = example.gold
    return asdict(chance(len(gold), int(gold.sum()))) if gold.any() else dict(UNLABELLED)


def _followed(curve: Plan, scorer: MemoScorer) -> dict[str, float | None]:
    """The figures of both curves."""
    full = float(scorer.logprob(np.ones((1, len(curve.order)), dtype=bool))[0])
    return follow(curve, scorer.logprob(curve.masks), full, len(scorer.output_spans))


def _cost(m: Method, e: Explanation, scorer: MemoScorer) -> Row:
    """Masks, tokens and seconds of a method, as if it had been run alone and without prefix sharing."""
    scores = m.scores(e)
    tokens = int(scores.tokens.sum())
    besides = (e.cost.seconds or 0.0) - e.surrogate_scores.seconds  # sampling, fit and diagnostics
    seconds = tokens * scorer.seconds_per_token(m.scoring == "cached") + besides
    return {"masks": len(scores.masks), "tokens": tokens, "seconds": round(seconds, 4)}


def _rounded(figures: dict[str, float | None]) -> dict[str, Any]:
    return {k: None if v is None else round(v, 6) for k, v in figures.items()}
