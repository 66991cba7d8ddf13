"""The method on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ropelime._version import __version__
from ropelime.method.attribution import fit
from ropelime.method.interactions import candidates, interactions
from ropelime.method.schedule import Outcome, Round, Schedule
from ropelime.options import Options
from ropelime.registry import describe
from ropelime.results.explanation import Cost, ExplanationData, explained
from ropelime.rounds import Prepared, Steps, collect, prepare
from ropelime.surrogate.base import Surrogate
from ropelime.text.features import split
from ropelime.text.prompt import Prompt


@dataclass(frozen=True)
class Task:
    """A prompt and an answer to explain.

    Attributes:
        prompt: The prompt.
        output: The answer.
        options: How to explain it.
        before: An explanation of the same whose scores are to be extended, if any,
        more: by how many masks.
    """

    prompt: Prompt
    output: str
    options: Options
    before: ExplanationData | None = None
    more: int = 0


def steps(task: Task, surrogate: Surrogate) -> Steps:
    """Explain one answer by one surrogate: yields what to score, is sent the scores.

    Args:
        task: The prompt, the answer and the options.
        surrogate: The model that scores the answer.
    """
    prompt, output, options, before = task.prompt, task.output, task.options, task.before
    # Split the prompt into features, and tokenise it once for the surrogate.
    features = split(prompt, options.features, token_spans=surrogate.token_spans)
    prepared = prepare(surrogate, prompt, features, output, options)
    # Sample masks and score the output under each, round after round.
    schedule = options.schedule(cached=prepared.cached)
    scores, outcome = yield from collect(schedule, prepared, len(features), before, task.more)
    # Fit: how much does each feature contribute to the target?
    attribution = fit(scores.fitted(), options.recipe)
    masks, tokens = scores.distinct(), scores.tokens_run
    pairs = () if before is None else before.interactions
    if before is not None:  # what was scored besides the fit, such as interactions
        masks += before.cost.masks - before.surrogate_scores.distinct()
        tokens += before.cost.tokens - before.surrogate_scores.tokens_run
    if options.interactions:
        wanted = candidates(attribution.weights, len(scores.masks))
        paired = yield from prepared.score(Round(wanted.masks, prepared.cached))
        pairs = interactions(wanted, paired)
        masks, tokens = masks + len(wanted.masks), tokens + paired.tokens_run
    # Diagnose the fit, and put everything together.
    return explained(
        attribution, scores, requested=outcome.requested,
        notes=tuple(filter(None, (*outcome.notes, scores.note, *prepared.notes))),
        prompt=prompt, output=output, features=features, span=(0, len(output)),
        output_spans=prepared.scorer.output_spans, cost=Cost(masks, tokens), interactions=pairs,
        recipe=options.recipe, config=_config(task, surrogate, prepared, schedule, outcome),
    )  # fmt: skip


def _config(
    task: Task, surrogate: Surrogate, prepared: Prepared, schedule: Schedule, outcome: Outcome
) -> dict[str, Any]:
    """Every choice that was made."""
    options = task.options
    return {
        "ropelime": __version__,
        "preset": options.preset,
        "features": options.features if isinstance(options.features, str) else "spans",
        "surrogate": surrogate.describe(),
        "sampler": describe(schedule.sampler),
        **options.recipe.describe(),
        "unit": options.recipe.target.unit,
        "ablation": str(options.ablation),
        "scoring": "cached" if prepared.cached else "exact",
        "budget": str(options.budget),
        "masks": dict(outcome.counts),
        "seed": options.seed,
        "interactions": options.interactions,
        "instead_of": options.instead_of,
    }
