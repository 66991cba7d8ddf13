"""What one request may cost: refused before the cost arises, or stopped when the time is up."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from ropelime.errors import InputError, ModelError, NoTokenizerError
from ropelime.method.regression import Regressor
from ropelime.method.samplers import Sample, Sampler
from ropelime.method.schedule import Schedule
from ropelime.method.scores import Scores
from ropelime.options import Options
from ropelime.progress import Callback
from ropelime.registry import describe
from ropelime.steps import Task
from ropelime.surrogate.base import Ablation, Progress, Scorer, ScoreRequest, Surrogate
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.web.jobs import Job
from ropelime.web.settings import Limits

_REPETITIONS = 20  # of a fit, which cannot be stopped in between
_SAMPLER = 200  # characters that name a sampler; a mixed one draws all masks of each of its parts


class Refused(InputError):
    """A request that cannot be met; its ``field`` is empty where no field is the reason."""

    field: str

    def __init__(self, field: str, message: str) -> None:
        """Name the field, if it is one, and say what is wrong."""
        super().__init__(message, field=field)


@dataclass(frozen=True, kw_only=True)
class LimitedOptions(Options):
    """Options whose schedule draws no more masks than the server allows.

    Attributes:
        most: How many; no option of a request.
    """

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
        if count > self.most:
            raise Refused(
                "budget",
                f"This would score {count:,} masked prompts and this server scores at most "
                f"{self.most:,}. Set a budget up to that, or choose larger features.",
            )


def check_options(options: Options, limits: Limits) -> None:
    """Refuse options that are too much, whatever the prompt."""
    budget = options.budget
    if budget.masks is not None and budget.masks > limits.budget:
        raise Refused("budget", f"This server scores at most {limits.budget:,} masked prompts.")
    if budget.seconds is not None and budget.seconds > limits.seconds:
        raise Refused("budget", f"This server takes at most {limits.seconds:,} seconds.")
    if options.sampler is not None and _largest(options.sampler) > limits.budget:
        raise Refused(
            "sampler",
            f"This server scores at most {limits.budget:,} masked prompts; use smaller numbers.",
        )
    if options.regressor is not None and _repetitions(options.regressor) > _REPETITIONS:
        raise Refused("regressor", f"This server repeats a fit at most {_REPETITIONS} times.")


def check_sampler(name: str | None) -> None:
    """Refuse a sampler with too many parts, before they are made."""
    if name is not None and len(name) > _SAMPLER:
        raise Refused("sampler", f"The name of a sampler has at most {_SAMPLER} characters here.")


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


def check_features(features: Sequence[Feature], options: Options, limits: Limits) -> None:
    """Refuse too many features, or placeholders that make the prompt too long."""
    if len(features) > limits.features:
        raise Refused(
            "features",
            f"The prompt has {len(features):,} features of this size and this server takes at most "
            f"{limits.features:,}. Choose larger ones, or a shorter prompt.",
        )
    if options.ablation.how == "placeholder":
        grown = len(options.ablation.text) * len(features)
        if grown > limits.characters:
            raise Refused(
                "ablation",
                f"The placeholders of all features have {grown:,} characters and this server takes at "
                f"most {limits.characters:,}.",
            )


def timed(job: Job, seconds: int) -> Callback:
    """The job's own report, which also ends it when its time is up."""
    end = time.monotonic() + seconds

    def report(done: int, total: int) -> None:
        job.report(done, total)
        if time.monotonic() > end and done < total:
            raise ModelError(
                f"It was stopped after {seconds:,} seconds, the limit of this server. Choose larger "
                "features, a smaller budget or cached scoring."
            )

    return report


class LimitedSurrogate(Surrogate):
    """A surrogate that refuses what is too much, and is called by its label."""

    def __init__(self, inner: Surrogate, label: str, limits: Limits, job: Job, task: Task) -> None:
        """Wrap a surrogate for one job.

        Args:
            inner: Does the work.
            label: What users call it; where it lies stays private.
            limits: What is too much.
            job: Stops between two calls when it is cancelled.
            task: What is explained.
        """
        self.name = label
        self.only_output, self.sees_output = inner.only_output, inner.sees_output
        self._inner, self._limits, self._job, self._task = inner, limits, job, task

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Those of the surrogate; an error names the prompt."""
        try:
            return self._inner.token_spans(prompt)
        except NoTokenizerError:
            raise
        except InputError as error:  # mostly that the chat template refuses the messages
            raise Refused(prompt.kind, str(error)) from None

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        """Tokenise, unless there are too many features or tokens of the answer."""
        self._job.check()
        check_features(features, self._task.options, self._limits)
        answer = "output" if output == self._task.output else "instead_of"
        try:
            scorer = self._inner.prepare(prompt, features, output, ablation=ablation)
        except InputError as error:  # mostly that it is too long for the model
            raise Refused(prompt.kind if answer == "output" else answer, str(error)) from None
        tokens, most = len(scorer.output_spans), self._limits.answer_tokens
        if tokens > most:
            raise Refused(
                answer, f"The answer has {tokens:,} tokens and this server takes at most {most:,}."
            )
        return scorer

    def describe(self) -> dict[str, Any]:
        """What the surrogate records, under its label."""
        return {**self._inner.describe(), "name": self.name}

    def score_all(
        self, requests: Sequence[ScoreRequest], *, progress: Progress | None = None
    ) -> list[Scores]:
        """Have the surrogate score them, packed together where it does that."""
        self._job.check()
        return self._inner.score_all(requests, progress=progress)
