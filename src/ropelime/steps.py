"""The method on one screen: :func:`steps`. Below it, how masks are scored, and the one driver."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ropelime._version import __version__
from ropelime.errors import InputError, Interrupted
from ropelime.method.attribution import Recipe, fit
from ropelime.method.interactions import candidates, interactions
from ropelime.method.schedule import Outcome, Round, Schedule
from ropelime.method.scores import Scores, join
from ropelime.method.targets import Evidence
from ropelime.options import PRESETS, Options
from ropelime.progress import Callback
from ropelime.registry import describe
from ropelime.results.explanation import Cost, ExplanationData, explained
from ropelime.surrogate.base import Load, Scorer, ScoreRequest, Surrogate, check_only_output
from ropelime.text.features import Feature, split
from ropelime.text.lexical import shared_words
from ropelime.text.prompt import Prompt
from ropelime.typing import Floats, Ints, Masks

Steps = Generator[list[ScoreRequest], list[Scores], ExplanationData]
Errors = tuple[type[Exception], ...]
INTERRUPTED = "interrupted"  # in the config of an explanation of what was scored before Ctrl-C
_CACHED = (
    "Scoring is cached: removed features were hidden in the KV cache from what follows the last one, "
    "but the kept features had attended to them. Masks that remove the very end of the prompt were "
    "scored exactly."
)
_NOT_CACHED = "{} no cached scoring of this prompt: every masked prompt was scored exactly."
_STOPPED = "Scoring was interrupted: {} of {} masks were scored, and the ranking is made of those."
_NOTHING = "interrupted before enough was scored for a result"
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
    words = shared_words(prompt, features, output) if options.recipe.uses_words else None
    # Sample masks and score the output under each, round after round.
    schedule = options.schedule(cached=prepared.cached)
    scores, outcome = yield from collect(schedule, prepared, words, len(features), before, task.more)
    # Fit: how much does each feature contribute to the target?
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
        paired = yield from prepared.score(Round(wanted, prepared.cached), last=True)
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
        groups: Whether features may be removed in groups, which needs attention.
        pairs: Whether pairs of features will be scored at the end.
        notes: What the reader of the result should know about it.
        continues: As in :class:`Task`.
    """

    scorer: Scorer
    alternative: Scorer | None
    recipe: Recipe
    cached: bool
    question: bool
    groups: bool
    pairs: bool
    notes: tuple[str, ...]
    continues: bool = False

    def cost(self, masks: Masks) -> Ints:
        """(N,) tokens that scoring each mask takes, for the alternative answer too."""
        cost = self.scorer.cost(masks, cached=self.cached)
        more = self.alternative
        return cost if more is None else cost + more.cost(masks, cached=self.cached)

    def load_of_pairs(self, masks: Masks) -> Load:
        """About what the pairs will take after a round of these masks."""
        n = masks.shape[1]
        wanted = candidates(np.zeros(n), max(len(masks), n + 2))
        scorers = filter(None, (self.scorer, self.alternative))
        return Load.total(each.load(wanted, cached=self.cached) for each in scorers)

    def score(
        self, wanted: Round, *, last: bool = False
    ) -> Generator[list[ScoreRequest], list[Scores], Scores]:
        """Have a round scored, the full prompt first; ``last`` says that no pairs will follow."""
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
            attention=self.recipe.target.needs_attention or wanted.attention,
            later=partial(self.load_of_pairs, masks) if self.pairs and not last else Load,
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
    groups = scorer.shows_attention and isinstance(options.recipe.target, Evidence)
    return Prepared(
        scorer, alternative, options.recipe, cached, bool(weight), groups, options.interactions, notes,
        continues,
    )  # fmt: skip


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
    schedule: Schedule,
    prepared: Prepared,
    words: Floats | None,
    n: int,
    before: ExplanationData | None,
    more: int,
) -> Generator[list[ScoreRequest], list[Scores], tuple[Scores, Outcome]]:
    """Sample masks over n features and have them scored, until the schedule is satisfied.

    With ``before``, the scores of that explanation are extended by ``more`` masks. ``words`` (n,) says
    what the features share with the answer, where that is used.
    """
    if before is None:
        rounds = schedule.rounds(n, prepared.cost, words if prepared.groups else None)
        scores = None
    else:
        scores = before.surrogate_scores
        rounds = schedule.more_rounds(scores, before.config["masks"], more)
    wanted = next(rounds)
    while True:
        try:
            new = yield from prepared.score(wanted)
        except Interrupted as stop:
            if before is not None or prepared.alternative is not None:
                raise
            return _kept(scores, stop, wanted)
        scores = new if scores is None else join(scores, new.ablations)
        try:
            wanted = rounds.send(scores)
        except StopIteration as stop:
            return scores, stop.value


def _kept(scores: Scores | None, stop: Interrupted, wanted: Round) -> tuple[Scores, Outcome]:
    """What an interrupted round leaves, besides the scores of those before it."""
    done: Scores | None = stop.kept[0]
    if done is not None:
        scores = done if scores is None else join(scores, done.ablations)
    if scores is None:
        raise stop
    counts = {"cached" if wanted.cached else "exact": len(scores.masks) - 2}
    all_of_them = len(scores.masks) - (0 if done is None else len(done.masks) - 1) + len(wanted.masks)
    note = _STOPPED.format(len(scores.masks) - 2, all_of_them - 2)
    return scores, Outcome(all_of_them - 2, counts, (note,))


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
    interrupted: bool = False

    def advance(self, scores: list[Scores] | Interrupted | None, forgive: Errors) -> None:
        """Hand over what it waited for, or what is left of that."""
        start = time.perf_counter()
        known = scores.kept if isinstance(scores, Interrupted) else scores or ()
        self.seconds += sum(each.seconds for each in known if each is not None)
        try:
            if isinstance(scores, Interrupted):
                self.interrupted = True
                self.waiting = self.steps.throw(scores)
            else:
                self.waiting = next(self.steps) if scores is None else self.steps.send(scores)
        except StopIteration as stop:
            e: ExplanationData = stop.value
            if self.interrupted:
                e = replace(e, config={**e.config, INTERRUPTED: True})
            seconds = self.seconds + time.perf_counter() - start
            self.waiting, self.result = None, replace(e, cost=replace(e.cost, seconds=seconds))
        except Interrupted:
            raise KeyboardInterrupt(_NOTHING) from None
        except forgive as error:
            self.waiting, self.result = None, error
        self.seconds += time.perf_counter() - start


def drive(
    under_way: Sequence[tuple[Surrogate, Steps]],
    *,
    progress: Callback | None = None,
    forgive: Errors = (),
    keep: bool = False,
) -> list[ExplanationData | Exception]:
    """Run explanations to their end; what they wait for is scored in one call of each surrogate.

    Args:
        under_way: Surrogates, and the steps of an explanation by each.
        progress: Called with the tokens done and in all, as far as they are known. Those done are the
            part of all that stands for the time taken, and never fall.
        forgive: Errors that are returned in the place of the explanation that they are about.
        keep: Whether Ctrl-C leaves explanations of what was scored; ``config["interrupted"]`` says so.
    """
    tally = _Tally(progress)
    runs = [_Run(surrogate, steps) for surrogate, steps in under_way]
    for run in runs:
        run.advance(None, forgive)
    while waiting := [run for run in runs if run.waiting is not None]:
        for surrogate in dict.fromkeys(id(run.surrogate) for run in waiting):
            some = [run for run in waiting if id(run.surrogate) == surrogate]
            others = [run for run in runs if run.waiting and id(run.surrogate) != surrogate]
            try:
                found = _score(some, others, tally, forgive)
            except KeyboardInterrupt as stop:
                if not keep:
                    raise
                found = _left(some, stop)
            for run, scores in zip(some, found, strict=True):
                if isinstance(scores, Exception):
                    run.waiting, run.result = None, scores
                else:
                    run.advance(scores, forgive)
    return [run.result for run in runs if run.result is not None]


class _Tally:
    """Counts tokens over all calls of surrogates, with those that are yet to come."""

    def __init__(self, progress: Callback | None) -> None:
        self._progress, self._before, self._done = progress, Load(), 0
        self._until_call = self._before

    def call(
        self, some: Sequence[_Run], others: Sequence[_Run], scored: Sequence[_Run] = ()
    ) -> Callback | None:
        """A callback for the next call.

        Args:
            some: The explanations that continue by it.
            others: Those that wait for another call.
            scored: Those whose scores are there, but that were not handed over yet.
        """
        before, report = self._before, self._progress
        self._until_call = before
        if report is None:
            return None
        now = Load.total(request.load() for run in some for request in run.waiting or ())
        under_way = (*some, *others, *scored)
        later = Load.total(request.later() for run in under_way for request in run.waiting or ())
        later += Load.total(request.load() for run in others for request in run.waiting or ())

        def count(done: int, total: int) -> None:
            self._before = before + now.of(total)
            whole = self._before + later
            time = before.time + now.of(total).time * done / max(total, 1)
            self._done = max(self._done, round(whole.tokens * time / max(whole.time, 1)))
            report(self._done, max(self._done, round(whole.tokens)))

        return count

    def failed(self) -> None:
        """Forget what the last call has counted: its tokens are scored again, or not at all."""
        self._before = self._until_call


def _left(
    some: Sequence[_Run], stop: KeyboardInterrupt
) -> list[list[Scores] | Exception | Interrupted]:
    """What an interrupted call leaves to each explanation."""
    kept = iter(stop.kept if isinstance(stop, Interrupted) else ())
    return [Interrupted([next(kept, None) for _ in run.waiting or ()]) for run in some]


def _score(
    some: Sequence[_Run],
    others: Sequence[_Run],
    tally: _Tally,
    forgive: Errors,
    scored: Sequence[_Run] = (),
) -> list[list[Scores] | Exception | Interrupted]:
    """What explanations by one surrogate wait for: all at once, or one by one where that fails."""
    requests = [run.waiting or [] for run in some]
    try:
        flat = [request for own in requests for request in own]
        progress = tally.call(some, others, scored)
        scores = iter(some[0].surrogate.score_all(flat, progress=progress))
    except forgive as error:
        tally.failed()
        if len(some) == 1:
            return [error]
        found: list[list[Scores] | Exception | Interrupted] = []
        for i, run in enumerate(some):
            known = [r for r, each in zip(some, found, strict=False) if not isinstance(each, Exception)]
            found += _score([run], [*some[i + 1 :], *others], tally, forgive, known)
        return found
    return [[next(scores) for _ in own] for own in requests]
