"""The same prompts for everybody: our engine, plain loops and the peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ropelime.attribution import Recipe, attribute
from ropelime.bench.data import Example
from ropelime.bench.speed import peers
from ropelime.bench.speed.measure import Absent, Contender, Lengths, Run
from ropelime.passes import Masks
from ropelime.prompt import from_text
from ropelime.samplers import resolve_sampler
from ropelime.surrogate import Removal
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.loop import Loop

OURS, LOOP, LOOP_ANSWER = "ropelime", "loop", "loop, logits at the answer"
HALVES, LEAVE_ONE_OUT = "64 masks, p = ½", "leave-one-out"
TASKS = (HALVES, LEAVE_ONE_OUT)
MASKS = 64
NAMES = (OURS, LOOP, LOOP_ANSWER, *peers.NAMES)


@dataclass(frozen=True)
class Task:
    """What everybody scores.

    Attributes:
        name: One of ``TASKS``.
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
        return cls(name, example, halves(n, MASKS) if name == HALVES else ~np.eye(n, dtype=bool))


def halves(n: int, count: int) -> Masks:
    """Masks with p = ½, drawn as ContextCite draws them: it takes none from outside."""
    draws = [
        np.random.RandomState(seed).choice([False, True], n, p=[0.5, 0.5]) for seed in range(count)
    ]
    return np.array(draws)


def contenders(
    task: Task, surrogate: LocalSurrogate, batch: peers.BatchSize
) -> list[Contender | Absent]:
    """Everybody who takes part in a task, and who does not and why."""
    example = task.example
    scorer = prepare(surrogate, example)
    loops = {
        name: Loop(surrogate.model, scorer, everywhere=everywhere)
        for name, everywhere in ((LOOP, True), (LOOP_ANSWER, False))
    }

    def ours() -> Lengths:
        ones = np.ones((1, len(example.spans)), dtype=bool)
        passes = prepare(surrogate, example).score(np.concatenate([ones, task.masks]), kl=False)
        return [int(tokens) for tokens in passes.tokens]

    found: list[Contender | Absent] = [Run(OURS, ours)]
    for name, loop in loops.items():
        found.append(peers.Single(name, lambda loop=loop: loop.score(task.masks)))  # type: ignore[misc]
    found += [
        peers.captum_loo(surrogate, example)
        if task.name == LEAVE_ONE_OUT
        else Absent(peers.CAPTUM_LOO, "skipped", "removes one feature at a time")
    ]
    if task.name == LEAVE_ONE_OUT:
        own = "draws its own masks"
        found += [Absent(name, "skipped", own) for name in (peers.CONTEXTCITE, *peers.SAMPLED)]
    else:
        found += [
            peers.contextcite(surrogate, example, task.masks, batch),
            peers.captum_shapley(surrogate, example),
            peers.shapiq(example, loops[LOOP].score),
        ]
    order = {name: number for number, name in enumerate(NAMES)}
    return sorted(found, key=lambda contender: order[contender.name])


def explanation(
    surrogate: LocalSurrogate, scorer: LocalScorer, masks: Masks, *, cheap: bool = False
) -> Run:
    """All that an explanation computes: readings, divergences, the kernel and the weighted fit."""
    recipe = Recipe.of("kl", "rope-rwmd", "wls")
    space = recipe.kernel.space
    assert space is not None

    def work() -> Lengths:
        passes = scorer.score(masks, kl=True, spaces=[space], cheap=cheap)
        attribute(passes, recipe)
        return [int(tokens) for tokens in passes.tokens]

    return Run(OURS, work)


def explained(n: int, sampler: str, seed: int) -> Masks:
    """The masks of an explanation: the full prompt, the empty one, and those of a sampler."""
    drawn = resolve_sampler(sampler).sample(n, budget=None, rng=np.random.default_rng(seed))
    return np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool), drawn.masks])


def synthetic(surrogate: LocalSurrogate, scorer: LocalScorer, masks: Masks) -> Sequence[Contender]:
    """A whole explanation of ours, and a plain loop that only reads."""
    loop = Loop(surrogate.model, scorer, everywhere=True)
    return [explanation(surrogate, scorer, masks), peers.Single(LOOP, lambda: loop.score(masks))]


def prepare(surrogate: LocalSurrogate, example: Example) -> LocalScorer:
    """Make a prompt ready for scoring."""
    return surrogate.prepare(
        from_text(example.prompt), example.spans, example.answer, removal=Removal()
    )
