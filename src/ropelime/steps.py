"""The method on one screen: :func:`steps`. Below it, how masks are scored, and the one driver."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.method.attribution import Recipe, fit
from ropelime.method.interactions import candidates, interactions
from ropelime.method.schedule import Outcome, Round, Schedule
from ropelime.method.scores import Scores, join
from ropelime.options import PRESETS, Options
from ropelime.progress import Callback
from ropelime.registry import describe
from ropelime.results.explanation import Cost, ExplanationData, explained
from ropelime.surrogate.base import Scorer, ScoreRequest, Surrogate, check_only_output
from ropelime.text.features import Feature, split
from ropelime.text.lexical import shared_words
from ropelime.text.prompt import Prompt
from ropelime.typing import Ints, Masks

Steps = Generator[list[ScoreRequest], list[Scores], ExplanationData]
Errors = tuple[type[Exception], ...]
_CACHED = (
    "Scoring is cached: removed features were hidden in the KV cache from what follows the last one, "
    "but the kept features had attended to them. Masks that remove the very end of the prompt were "
    "scored exactly."
)
_NOT_CACHED = "{} no cached scoring of this prompt: every masked prompt was scored exactly."
_INSTEAD = "Weights say what supports this answer over {!r}: negative ones support that one."


@dataclass(frozen=True)
class Task:
    """A prompt and an answer to explain.

    Attributes:
        prompt: The prompt.
        output: The answer.
        options: How to explain it.
        before: An explanation of the same whose scores are to be extended, if any,
        more: by how many masks.
        continues: Whether its prompt begins as that of the task before it: the prefix that both share
            is counted as the cost of that one.
    """

    prompt: Prompt
    output: str
    options: Options
    before: ExplanationData | None = None
    more: int = 0
    continues: bool = False


def steps(task: Task, surrogate: Surrogate) -> Steps:
    """Explain one answer by one surrogate: yields what to score, is sent the scores."""
    prompt, output, options, before = task.prompt, task.output, task.options, task.before
    # Split the prompt into features, and tokenise it once for the surrogate.
    features = split(prompt, options.features, token_spans=surrogate.token_spans)
    prepared = prepare(surrogate, prompt, features, output, options, continues=task.continues)
    # Sample masks and score the output under each, round after round.
    schedule = options.schedule(cached=prepared.cached)
    scores, outcome = yield from collect(schedule, prepared, len(features), before, task.more)
    # Fit: how much does each feature contribute to the target?
    words = shared_words(prompt, features, output) if options.recipe.uses_words else None
    attribution = fit(scores.fitted(), options.recipe, words=words)
    masks, tokens = scores.distinct(), scores.tokens_run
    pairs = () if before is None else before.interactions
    if before is not None:  # what was scored besides the fit, such as interactions
        masks += before.cost.masks - before.surrogate_scores.distinct()
        tokens += before.cost.tokens - before.surrogate_scores.tokens_run
    if options.interactions:
        fitted = options.recipe.target.needs_masks  # else as many masks as leave-one-out has
        most = len(scores.masks) if fitted else len(features) + 2
        wanted = candidates(attribution.weights, most)
        paired = yield from prepared.score(Round(wanted, prepared.cached))
        pairs = interactions(paired)
        masks, tokens = masks + len(wanted), tokens + paired.tokens_run
    # Diagnose the fit, and put everything together.
    return explained(
        attribution, scores, requested=outcome.requested,
        notes=tuple(filter(None, (*outcome.notes, scores.note, *prepared.notes))),
        prompt=prompt, output=output, features=features, span=(0, len(output)),
        output_spans=prepared.scorer.output_spans, cost=Cost(masks, tokens), interactions=pairs,
        recipe=options.recipe, config=_config(task, surrogate, prepared, schedule, outcome),
    )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """One prompt with one output, tokenised for one surrogate: from here on it needs masks only.

    Attributes:
        scorer: Scores the output.
        alternative: Scores the alternative answer, if there is one.
        recipe: How the scores will be fitted, and so which are needed.
        cached: Whether masks are scored from the KV cache.
        question: Whether the question is scored too.
        notes: What the reader of the result should know about it.
        continues: As in :class:`Task`.
    """

    scorer: Scorer
    alternative: Scorer | None
    recipe: Recipe
    cached: bool
    question: bool
    notes: tuple[str, ...]
    continues: bool = False

    def cost(self, masks: Masks) -> Ints:
        """(N,) tokens that scoring each mask takes, for the alternative answer too."""
        cost = self.scorer.cost(masks, cached=self.cached)
        more = self.alternative
        return cost if more is None else cost + more.cost(masks, cached=self.cached)

    def score(self, wanted: Round) -> Generator[list[ScoreRequest], list[Scores], Scores]:
        """Have a round scored, the full prompt first."""
        masks = np.concatenate([np.ones((1, wanted.masks.shape[1]), bool), wanted.masks])
        space = self.recipe.kernel.space
        request = ScoreRequest(
            self.scorer,
            masks,
            kl=self.recipe.target.needs_kl,
            spaces=() if space is None else (space,),
            cached=wanted.cached,
            question=self.question,
            shares_previous=self.continues,
            attention=self.recipe.target.needs_attention,
        )
        if self.alternative is None:
            (scores,) = yield [request]
            return scores
        other = ScoreRequest(self.alternative, masks, cached=wanted.cached, shares_previous=True)
        scores, others = yield [request, other]
        return scores.against(others)


def prepare(
    surrogate: Surrogate,
    prompt: Prompt,
    features: tuple[Feature, ...],
    output: str,
    options: Options,
    *,
    continues: bool = False,
) -> Prepared:
    """Tokenise a prompt and its output, and decide how masks are scored."""
    check_capabilities(surrogate, options)
    scorer = surrogate.prepare(prompt, features, output, ablation=options.ablation)
    alternative, instead = None, ""
    if options.instead_of is not None:
        alternative = surrogate.prepare(prompt, features, options.instead_of, ablation=options.ablation)
        instead = _INSTEAD.format(options.instead_of)
    cached, how = _scoring(options, [scorer] if alternative is None else [scorer, alternative])
    weight = options.recipe.target.question_weight if scorer.has_question else 0.0
    notes = tuple(filter(None, (how, instead, *scorer.notes)))
    return Prepared(scorer, alternative, options.recipe, cached, bool(weight), notes, continues)


def check_capabilities(surrogate: Surrogate, options: Options) -> None:
    """Refuse options that need scores which the surrogate does not give."""
    for each in [options] if options.also is None else [options, options.second()]:
        if surrogate.only_output:
            check_only_output(
                kl=each.recipe.target.needs_kl,
                spaces=each.recipe.kernel.space is not None,
                attention=each.recipe.target.needs_attention,
                cached=each.scoring == "cached",
            )
    if options.instead_of is not None and not surrogate.sees_output:
        raise InputError(
            "A function of masks does not see the answer, so it cannot tell this one from instead_of. "
            "Use a model, or a Surrogate whose prepare() is given the output."
        )


def _scoring(options: Options, scorers: Sequence[Scorer]) -> tuple[bool, str]:
    """Whether masks are scored from the KV cache, and what to say about it."""
    ablates = options.recipe.target.needs_masks or options.interactions
    if (options.scoring or PRESETS[options.preset].scoring) != "cached":
        return False, ""
    if options.scoring is None and options.ablation.how != "delete":
        how = f"With ablation={str(options.ablation)!r} there is"
        return False, _NOT_CACHED.format(how) if ablates else ""
    if options.scoring is None and not all(scorer.supports_cached for scorer in scorers):
        return False, _NOT_CACHED.format("The surrogate has") if ablates else ""
    return True, _CACHED if ablates else ""


def collect(
    schedule: Schedule, prepared: Prepared, n: int, before: ExplanationData | None, more: int
) -> Generator[list[ScoreRequest], list[Scores], tuple[Scores, Outcome]]:
    """Sample masks over n features and have them scored, until the schedule is satisfied.

    With ``before``, the scores of that explanation are extended by ``more`` masks.
    """
    if before is None:
        scores, rounds = None, schedule.rounds(n, prepared.cost)
    else:
        scores = before.surrogate_scores
        rounds = schedule.more_rounds(scores, before.config["masks"], more)
    wanted = next(rounds)
    while True:
        new = yield from prepared.score(wanted)
        scores = new if scores is None else join(scores, new.ablations)
        try:
            wanted = rounds.send(scores)
        except StopIteration as stop:
            return scores, stop.value


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


@dataclass
class _Run:
    """An explanation that is under way."""

    surrogate: Surrogate
    steps: Steps
    waiting: list[ScoreRequest] | None = None  # None when it is over
    result: ExplanationData | Exception | None = None
    seconds: float = 0.0

    def advance(self, scores: list[Scores] | None, forgive: Errors) -> None:
        """Hand over what it waited for."""
        start = time.perf_counter()
        self.seconds += sum(each.seconds for each in scores or ())
        try:
            self.waiting = next(self.steps) if scores is None else self.steps.send(scores)
        except StopIteration as stop:
            e: ExplanationData = stop.value
            seconds = self.seconds + time.perf_counter() - start
            self.waiting, self.result = None, replace(e, cost=replace(e.cost, seconds=seconds))
        except forgive as error:
            self.waiting, self.result = None, error
        self.seconds += time.perf_counter() - start


def drive(
    under_way: Sequence[tuple[Surrogate, Steps]],
    *,
    progress: Callback | None = None,
    forgive: Errors = (),
) -> list[ExplanationData | Exception]:
    """Run explanations to their end; what they wait for is scored in one call of each surrogate.

    Args:
        under_way: Surrogates, and the steps of an explanation by each.
        progress: Called with the tokens done and in all, in each call of a surrogate.
        forgive: Errors that are returned in the place of the explanation that they are about.
    """
    runs = [_Run(surrogate, steps) for surrogate, steps in under_way]
    for run in runs:
        run.advance(None, forgive)
    while waiting := [run for run in runs if run.waiting is not None]:
        for surrogate in dict.fromkeys(id(run.surrogate) for run in waiting):
            some = [run for run in waiting if id(run.surrogate) == surrogate]
            for run, scores in zip(some, _score(some, progress, forgive), strict=True):
                if isinstance(scores, Exception):
                    run.waiting, run.result = None, scores
                else:
                    run.advance(scores, forgive)
    return [run.result for run in runs if run.result is not None]


def _score(
    some: Sequence[_Run], progress: Callback | None, forgive: Errors
) -> list[list[Scores] | Exception]:
    """What explanations by one surrogate wait for: all at once, or one by one where that fails."""
    requests = [run.waiting or [] for run in some]
    try:
        flat = [request for own in requests for request in own]
        scores = iter(some[0].surrogate.score_all(flat, progress=progress))
    except forgive as error:
        if len(some) == 1:
            return [error]
        return [each for run in some for each in _score([run], progress, forgive)]
    return [[next(scores) for _ in own] for own in requests]
