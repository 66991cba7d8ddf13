"""From masks to scores: one output made ready for one surrogate, and the driver of all explanations."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ropelime.errors import InputError
from ropelime.method.attribution import Recipe
from ropelime.method.schedule import Outcome, Round, Schedule
from ropelime.method.scores import Scores, join
from ropelime.options import PRESETS, Options
from ropelime.progress import Callback
from ropelime.results.explanation import ExplanationData
from ropelime.surrogate.base import Scorer, ScoreRequest, Surrogate, check_only_output
from ropelime.text.features import Feature
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
_QUESTION = (
    "A feature counts for its effect on the answer and{} for its effect on the question before it. "
    "For the answer alone: target='shift'."
)
_INSTEAD = "Weights say what supports this answer over {!r}: negative ones support that one."


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
    """

    scorer: Scorer
    alternative: Scorer | None
    recipe: Recipe
    cached: bool
    question: bool
    notes: tuple[str, ...]

    def cost(self, masks: Masks, *, cached: bool) -> Ints:
        """(N,) tokens that scoring each mask takes, for the alternative answer too."""
        cost = self.scorer.cost(masks, cached=cached)
        return cost if self.alternative is None else cost + self.alternative.cost(masks, cached=cached)

    def score(self, wanted: Round) -> Generator[list[ScoreRequest], list[Scores], Scores]:
        """Have a round scored, the full prompt first."""
        masks = np.concatenate([np.ones((1, wanted.masks.shape[1]), bool), wanted.masks])
        space = self.recipe.kernel.space
        requests = [
            ScoreRequest(
                self.scorer,
                masks,
                kl=self.recipe.target.needs_kl,
                spaces=() if space is None else (space,),
                cached=wanted.cached,
                question=self.question,
            )
        ]
        if self.alternative is not None:
            requests.append(
                ScoreRequest(self.alternative, masks, cached=wanted.cached, shares_previous=True)
            )
        scores, *others = yield requests
        return scores.against(others[0]) if others else scores


def prepare(
    surrogate: Surrogate, prompt: Prompt, features: tuple[Feature, ...], output: str, options: Options
) -> Prepared:
    """Tokenise a prompt and its output, and decide how masks are scored.

    Args:
        surrogate: The model.
        prompt: The prompt.
        features: The parts of it that masks remove.
        output: The answer to explain.
        options: How to explain it.
    """
    check_capabilities(surrogate, options)
    scorer = surrogate.prepare(prompt, features, output, ablation=options.ablation)
    alternative, notes = None, []
    if options.instead_of is not None:
        alternative = surrogate.prepare(prompt, features, options.instead_of, ablation=options.ablation)
    cached, note = _scoring(options, [scorer] if alternative is None else [scorer, alternative])
    notes.append(note)
    weight = options.recipe.target.question_weight if scorer.has_question else 0.0
    if weight:
        notes.append(_QUESTION.format(", as much," if weight == 1 else f", times {weight:g},"))
    if options.instead_of is not None:
        notes.append(_INSTEAD.format(options.instead_of))
    kept = tuple(filter(None, notes))
    return Prepared(scorer, alternative, options.recipe, cached, bool(weight), kept)


def check_capabilities(surrogate: Surrogate, options: Options) -> None:
    """Refuse options that need scores which the surrogate does not give."""
    for each in [options] if options.also is None else [options, options.second()]:
        if surrogate.only_output:
            check_only_output(
                kl=each.recipe.target.needs_kl,
                spaces=each.recipe.kernel.space is not None,
                cached=each.scoring == "cached",
            )
    if options.instead_of is not None and not surrogate.sees_output:
        raise InputError(
            "A function of masks does not see the answer, so it cannot tell this one from instead_of. "
            "Use a model, or a Surrogate whose prepare() is given the output."
        )


def _scoring(options: Options, scorers: Sequence[Scorer]) -> tuple[bool, str]:
    """Whether masks are scored from the KV cache, and what to say about it."""
    if (options.scoring or PRESETS[options.preset].scoring) != "cached":
        return False, ""
    if options.scoring is None and options.ablation.how != "delete":
        return False, _NOT_CACHED.format(f"With ablation={str(options.ablation)!r} there is")
    if options.scoring is None and not all(scorer.supports_cached for scorer in scorers):
        return False, _NOT_CACHED.format("The surrogate has")
    return True, _CACHED


def collect(
    schedule: Schedule, prepared: Prepared, n: int, before: ExplanationData | None, more: int
) -> Generator[list[ScoreRequest], list[Scores], tuple[Scores, Outcome]]:
    """Sample masks and have them scored, round after round, until the schedule is satisfied.

    Args:
        schedule: Decides which masks to score next.
        prepared: What is scored.
        n: How many features there are.
        before: An explanation whose scores are to be extended, if any,
        more: by how many masks.
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


@dataclass
class _Run:
    """An explanation that is under way.

    Attributes:
        surrogate: Its surrogate.
        steps: Its steps.
        waiting: The requests that it waits for; None when it is over.
        result: Its explanation, or the error that ended it.
        seconds: Time spent on it so far.
    """

    surrogate: Surrogate
    steps: Steps
    waiting: list[ScoreRequest] | None = None
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
        forgive: Errors that end the explanation that they are about and no other. They are returned in
            its place; all others are raised.
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
        scores = iter(
            some[0].surrogate.score_all([r for own in requests for r in own], progress=progress)
        )
    except forgive as error:
        if len(some) == 1:
            return [error]
        return [each for run in some for each in _score([run], progress, forgive)]
    return [[next(scores) for _ in own] for own in requests]
