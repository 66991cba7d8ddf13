"""The contenders of the speed contest: our engine, plain loops and the peers, on the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.data import Example
from benchmarks.hardware import packed
from benchmarks.loop import Loop
from benchmarks.speed import peers
from benchmarks.speed.measure import Absent, Contender, Lengths, Run
from benchmarks.speed.names import (
    CACHED,
    CAPTUM_LOO,
    CAPTUM_SHAPLEY,
    CONTENDERS,
    CONTEXTCITE,
    DEFAULT,
    LEAVE_ONE_OUT,
    LOOP,
    LOOP_ANSWER,
    ONE_AT_A_TIME,
    OURS,
    RANDOM_HALF,
    SHAPIQ,
    SPARSE,
)
from benchmarks.store import Row
from ropelime.explain import explain
from ropelime.method.attribution import Recipe, fit
from ropelime.method.samplers import resolve_sampler
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_text
from ropelime.typing import Masks

MASKS = 64


@dataclass(frozen=True)
class Task:
    """What every contender scores.

    Attributes:
        name: ``RANDOM_HALF`` or ``LEAVE_ONE_OUT``.
        example: The prompt, its features and its answer.
        masks: (N, n) without the full prompt.
    """

    name: str
    example: Example
    masks: Masks

    @classmethod
    def of(cls, name: str, example: Example) -> Task:
        """Draw its masks."""
        n = len(example.spans)
        loo = ~np.eye(n, dtype=bool)
        return cls(name, example, random_half(n, MASKS) if name == RANDOM_HALF else loo)


def random_half(n: int, count: int) -> Masks:
    """Masks with p = ½ from ContextCite's own seeds, because it does not accept masks."""
    draws = [
        np.random.RandomState(seed).choice([False, True], n, p=[0.5, 0.5]) for seed in range(count)
    ]
    return np.array(draws)


def contenders(
    task: Task, surrogate: LocalSurrogate, batch: peers.BatchSize
) -> list[Contender | Absent]:
    """All contenders of a task, and those that do not take part with the reason.

    Args:
        task: The task.
        surrogate: The model that all of them run.
        batch: Finds the best batch size for ContextCite.
    """
    example = task.example
    scorer = prepare(surrogate, example)
    loops = {
        name: Loop(surrogate.model, scorer, everywhere=everywhere)
        for name, everywhere in ((LOOP, True), (LOOP_ANSWER, False))
    }

    def ours() -> Lengths:
        ones = np.ones((1, len(example.spans)), dtype=bool)
        scores = prepare(surrogate, example).score(np.concatenate([ones, task.masks]), kl=False)
        return [int(tokens) for tokens in scores.tokens]

    def default() -> Lengths:
        e = explain(
            example.prompt,
            example.answer,
            features=example.spans,
            surrogate=surrogate,
            progress=False,
        )
        return [int(tokens) for tokens in e.surrogate_scores.tokens]

    found: list[Contender | Absent] = [Run(OURS, ours), Run(DEFAULT, default)]
    for name, loop in loops.items():
        found.append(peers.Single(name, lambda loop=loop: loop.score(task.masks)))  # type: ignore[misc]
    found += [
        peers.captum_loo(surrogate, example)
        if task.name == LEAVE_ONE_OUT
        else Absent(CAPTUM_LOO, "skipped", "removes one feature at a time")
    ]
    if task.name == LEAVE_ONE_OUT:
        own = "draws its own masks"
        found += [Absent(name, "skipped", own) for name in (CONTEXTCITE, CAPTUM_SHAPLEY, SHAPIQ)]
    else:
        found += [
            peers.contextcite(surrogate, example, task.masks, batch),
            peers.captum_shapley(surrogate, example),
            peers.shapiq(example, loops[LOOP].score),
        ]
    order = {name: number for number, name in enumerate(CONTENDERS)}
    return sorted(found, key=lambda contender: order[contender.name])


def explanation(
    name: str,
    scorer: LocalScorer,
    masks: Masks,
    recipe: Recipe,
    *,
    cached: bool = False,
    count: bool = False,
) -> Run:
    """All that an explanation computes: scores, divergences, the kernel and the weighted fit.

    Args:
        name: What the tables call it.
        scorer: The prompt.
        masks: (N, n) masks, the full prompt first.
        recipe: The target, kernel and regressor.
        cached: Whether scoring is cached.
        count: Whether to count operations with prefix sharing.
    """
    more: Row = {"pairs": packed(scorer, masks, cached=cached).pairs} if count else {}

    def work() -> Lengths:
        spaces = [recipe.kernel.space] if recipe.kernel.space else []
        scores = scorer.score(masks, kl=recipe.target.needs_kl, spaces=spaces, cached=cached)
        fit(scores, recipe)
        more["scoring"] = round(scores.seconds, 5)
        if scores.note:
            more["note"] = scores.note
        return [int(tokens) for tokens in scores.tokens]

    return Run(name, work, more)


def explained(n: int, sampler: str, seed: int) -> Masks:
    """The masks of an explanation: the full prompt, the empty one, and those of a sampler."""
    drawn = resolve_sampler(sampler).sample(n, budget=None, rng=np.random.default_rng(seed))
    return np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool), drawn.masks])


def synthetic(
    surrogate: LocalSurrogate, scorer: LocalScorer, masks: Masks
) -> Sequence[Contender | Absent]:
    """A whole explanation, and a loop that only scores."""
    loop = Loop(surrogate.model, scorer, everywhere=True)
    recipe = Recipe.of("kl", "rope-rwmd", "wls")
    return [
        explanation(OURS, scorer, masks, recipe),
        peers.Single(LOOP, lambda: loop.score(masks)),
    ]


def scaled(scorer: LocalScorer, count: int, seed: int, *, whole: bool) -> Sequence[Contender | Absent]:
    """Explanations of one prompt from different masks, all with the same recipe.

    Args:
        scorer: The prompt.
        count: How many masks keep √M of the features.
        seed: Seed of the masks.
        whole: Whether to run one-at-a-time and leave-one-out masks as well.
    """
    n = scorer.tokenized.n_features
    recipe = Recipe.of("nll", "rope-rwmd", "ridge")
    sparse = f"sparse-k:sqrt:M:kept:{count}"
    samplers = {SPARSE: sparse, ONE_AT_A_TIME: "one-at-a-time", CACHED: "leave-one-out"}
    found: list[Contender | Absent] = []
    for name, sampler in samplers.items():
        if name == SPARSE or whole:
            masks = explained(n, sampler, seed)
            cached = name == CACHED
            found.append(explanation(name, scorer, masks, recipe, cached=cached, count=True))
        else:
            found.append(Absent(name, "skipped", "has as many masks as there are features"))
    return found


def prepare(surrogate: LocalSurrogate, example: Example) -> LocalScorer:
    """Prepare a prompt for scoring."""
    prompt = from_text(example.prompt)
    features = split(prompt, example.spans, token_spans=surrogate.token_spans)
    return surrogate.prepare(prompt, features, example.answer, ablation=Ablation())
