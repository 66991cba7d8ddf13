"""What one request may cost: refused before the cost arises, or stopped in its course."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from ropelime.errors import InputError
from ropelime.method.regression import Regressor
from ropelime.method.samplers import Sample, Sampler
from ropelime.method.schedule import Schedule
from ropelime.method.scores import Scores
from ropelime.options import Options
from ropelime.registry import describe
from ropelime.steps import Task
from ropelime.surrogate.base import Ablation, Lengths, Progress, Scorer, ScoreRequest, Surrogate
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span, naming_field
from ropelime.web.jobs import Job
from ropelime.web.settings import Limits

_REPETITIONS = 20  # of a fit
SOON = 2.0  # seconds until a job that has to stop is interrupted, if it has not stopped by itself
_LATER = 30.0  # the same while a model runs: it looks between two forward passes


def check_limit(field: str, given: float, most: float, message: str) -> None:
    """Refuse a field that exceeds a limit; the message may quote ``{given}`` and ``{most}``."""
    if given > most:
        raise InputError(message.format(given=given, most=most), field=field)


@dataclass(frozen=True, kw_only=True)
class LimitedOptions(Options):
    """Options whose schedule draws at most ``most`` masks, which is not an option of a request."""

    most: int = field(metadata={"parse": int})

    def schedule(self, *, cached: bool) -> LimitedSchedule:
        """That of the options, with the limit."""
        return LimitedSchedule(**vars(super().schedule(cached=cached)), most=self.most)


@dataclass(frozen=True)
class LimitedSchedule(Schedule):
    """A schedule that draws at most ``most`` masks, besides those that it adds by itself."""

    most: int = 0

    def draw(self, n: int, count: int | None) -> Sample:
        """Refuse too many masks: before they are drawn, or before they are scored."""
        if count is not None and self.budget.tokens is not None:
            self._check(count)
        drawn = super().draw(n, count)
        if count is None and self.budget.tokens is None:
            self._check(len(drawn.masks))
        return drawn

    def _check(self, count: int) -> None:
        message = (
            "This would score {given:,} masked prompts and this server scores at most {most:,}. Set a "
            "budget up to that, or choose larger features."
        )
        check_limit("budget", count, self.most, message)


def check_options(options: Options, limits: Limits) -> None:
    """Refuse options that are too much, whatever the prompt."""
    budget, masks = options.budget, "This server scores at most {most:,} masked prompts"
    check_limit("budget", budget.masks or 0, limits.budget, f"{masks}.")
    check_limit(
        "budget", budget.seconds or 0, limits.seconds, "This server takes at most {most:,} seconds."
    )
    if options.sampler is not None:
        check_limit(
            "sampler", _largest(options.sampler), limits.budget, f"{masks}; use smaller numbers."
        )
    repeats = _repetitions(options.recipe.regressor)
    check_limit("regressor", repeats, _REPETITIONS, "This server repeats a fit at most {most} times.")


def _largest(sampler: Sampler) -> float:
    """The largest parameter of a sampler, or of a part of it; none draws many more masks than that."""
    largest = 0.0
    for word in re.split(r"[+/]", "/".join(str(value) for value in describe(sampler).values())):
        with suppress(ValueError):
            largest = max(largest, float(word))
    return largest


def _repetitions(regressor: Regressor) -> int:
    """How often a regressor repeats its fit: rounds or folds, its parameters that are whole numbers."""
    known = fields(regressor)  # type: ignore[arg-type]
    return max((getattr(regressor, f.name) for f in known if isinstance(f.default, int)), default=1)


def check_count(features: int, limits: Limits) -> None:
    """Refuse too many features."""
    message = (
        "The prompt has {given:,} features of this size and this server takes at most {most:,}. Choose "
        "larger ones, or a shorter prompt."
    )
    check_limit("features", features, limits.features, message)


def check_features(features: Sequence[Feature], options: Options, limits: Limits) -> None:
    """Refuse too many features, or placeholders that make the prompt too long."""
    check_count(len(features), limits)
    if options.ablation.how == "placeholder":
        grown = len(options.ablation.text) * len(features)
        message = (
            "The placeholders of all features have {given:,} characters and this server takes at most "
            "{most:,}."
        )
        check_limit("ablation", grown, limits.characters, message)


class LimitedSurrogate(Surrogate):
    """A surrogate for one job that refuses what is too much, and stops when the job is cancelled.

    It is called by its label: where it lies stays private.
    """

    def __init__(self, inner: Surrogate, label: str, limits: Limits, job: Job, task: Task) -> None:
        self.name = label
        self.only_output, self.sees_output = inner.only_output, inner.sees_output
        self._inner, self._limits, self._job, self._task = inner, limits, job, task

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Those of the surrogate; an error names the prompt."""
        self._job.check()
        with naming_field(prompt.kind):  # mostly that the chat template refuses the messages
            return self._inner.token_spans(prompt)

    def fits(self, prompt: Prompt, output: str) -> bool:
        """Whether the surrogate can read both at once; an error names the prompt."""
        self._job.check()
        with naming_field(prompt.kind):
            return self._inner.fits(prompt, output)

    def lengths(self, prompt: Prompt, features: tuple[Feature, ...], output: str) -> Lengths:
        """How long a prompt is that does not fit, unless it has too many features."""
        self._job.check()
        check_features(features, self._task.options, self._limits)
        return self._inner.lengths(prompt, features, output)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        """Tokenise, unless there are too many features or tokens of the answer."""
        self._job.check()
        check_features(features, self._task.options, self._limits)
        answer = "output" if output == self._task.output else "instead_of"
        with naming_field(prompt.kind if answer == "output" else answer):  # mostly that it is too long
            scorer = self._inner.prepare(prompt, features, output, ablation=ablation)
        message = "The answer has {given:,} tokens and this server takes at most {most:,}."
        check_limit(answer, len(scorer.output_spans), self._limits.answer_tokens, message)
        return scorer

    def describe(self) -> dict[str, Any]:
        """What the surrogate records, under its label."""
        return {**self._inner.describe(), "name": self.name}

    def score_all(
        self, requests: Sequence[ScoreRequest], *, progress: Progress | None = None
    ) -> list[Scores]:
        """Have the surrogate score them, packed together where it does that."""
        self._job.check()
        self._job.patience = _LATER
        try:
            return self._inner.score_all(requests, progress=progress)
        finally:
            self._job.patience = SOON
