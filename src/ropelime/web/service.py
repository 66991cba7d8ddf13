"""From a request to a kept explanation, within the limits of the server."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from ropelime.errors import InputError, ModelError, NoTokenizerError, RopeLimeError
from ropelime.explain import Explanation, explain
from ropelime.method.scores import Scores
from ropelime.progress import Callback, note
from ropelime.surrogate import Ablation, Scorer, Surrogate, is_served, load_surrogate
from ropelime.text import prompt as prompts
from ropelime.text.features import Feature, split
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Ints, Masks
from ropelime.web.history import History
from ropelime.web.jobs import Job, Jobs
from ropelime.web.schema import ExplainRequest
from ropelime.web.settings import Limits, ServerSettings

_SNIPPET = 160  # characters of a text in the history's list
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # they make emoji and letters


class Refused(InputError):
    """A request that cannot be met, and the field of it that is the reason."""

    def __init__(self, field: str, message: str) -> None:
        """Name the field, if it is one, and say what is wrong."""
        super().__init__(message)
        self.field = field


class Service:
    """The models, the queue and the history of one server."""

    def __init__(self, settings: ServerSettings) -> None:
        """Open the history; models are loaded when they are first asked for."""
        self.settings = settings
        self.history = History(settings.history)
        self.jobs: Jobs[ExplainRequest] = Jobs(
            self._work,
            waiting=settings.limits.waiting,
            streams=settings.limits.streams,
            patience=settings.patience,
            grace=settings.grace,
        )
        self._loaded: dict[str, Surrogate] = {}

    def load(self, label: str) -> Surrogate:
        """One of the models that the operator named, loaded once."""
        if label not in self._loaded:
            name = self.settings.models[label]
            running = {} if is_served(name) else self.settings.running
            self._loaded[label] = load_surrogate(name, **running)
        return self._loaded[label]

    def submit(self, request: ExplainRequest) -> Job:
        """Queue a request, or refuse it at once for what can be seen without a model."""
        limits = self.settings.limits
        if request.model is not None and request.model not in self.settings.models:
            known = ", ".join(self.settings.models)
            raise Refused("model", f"This server has no model of that name. It has: {known}.")
        if request.budget is not None and request.budget > limits.budget:
            raise Refused("budget", f"This server reads at most {limits.budget:,} masked prompts.")
        asked = _prompt(request)
        if len(asked.text) > limits.characters:
            raise Refused(
                asked.kind,
                f"The prompt has {len(asked.text):,} characters and this server takes at most "
                f"{limits.characters:,}.",
            )
        try:
            prompts.check_text("The answer", request.output)
        except InputError as error:
            raise Refused("output", str(error)) from None
        if request.features != "token":  # tokens are counted by the model, when it is its turn
            try:
                _check_features(split(asked, request.features), limits)
            except Refused:
                raise
            except InputError as error:
                raise Refused("features", str(error)) from None
        return self.jobs.submit(request)

    def _work(self, job: Job, request: ExplainRequest) -> None:
        label = request.model or self.settings.default_model
        job.stage = f"loading {label}"
        try:
            model = self.load(label)
        except RopeLimeError as error:
            note(f"ropelime: {error}")
            raise Refused("model", f"{label} could not be loaded; the server's log says why.") from None
        job.stage = "reading masked prompts"
        start = time.perf_counter()
        asked = request.model_dump(exclude={"model"})
        try:
            explanation = explain(
                **asked,
                surrogate=_Limited(model, label, self.settings.limits, job),
                progress=_timed(job, self.settings.limits.seconds),
            )
        except RopeLimeError as error:  # where a model lies is nobody's business but the operator's
            public = str(error)
            for private in (self.settings.models[label], getattr(model, "base_url", label)):
                public = public.replace(private, label)
            raise Refused(getattr(error, "field", ""), public) from None
        summary = _summary(job.id, request, label, explanation, time.perf_counter() - start)
        job.stage = "keeping it"
        self.history.add(job.id, summary, {**request.model_dump(), "model": label}, explanation)


def _prompt(request: ExplainRequest) -> Prompt:
    """The prompt of a request, or which of its fields is wrong."""
    names = [n for n in ("prompt", "context", "messages") if getattr(request, n) is not None]
    if len(names) != 1:
        came = " and ".join(names) if names else "none of them"
        raise Refused(
            names[-1] if names else "prompt",
            f"Pass exactly one of prompt, context and messages; got {came}.",
        )
    if request.question is not None and request.context is None:
        raise Refused("question", "A question goes with documents; put it into the prompt otherwise.")
    field = names[0]
    try:
        if request.prompt is not None:
            prompts.check_text("The prompt", request.prompt)  # in words for a page
            return prompts.from_text(request.prompt)
        if request.messages is not None:
            return prompts.from_messages([m.model_dump() for m in request.messages])
        context = request.context or []
        for number, chunk in enumerate(context):
            field = f"context.{number}"
            prompts.check_text(f"Document {number + 1}", chunk)
        field = "context"
        prompts.from_context(context, None)
        field = "question"
        if request.question is not None:
            prompts.check_text("The question", request.question)
        return prompts.from_context(context, request.question)
    except InputError as error:
        raise Refused(field, str(error)) from None


def _check_features(features: Sequence[Feature], limits: Limits) -> None:
    if len(features) > limits.features:
        raise Refused(
            "features",
            f"The prompt has {len(features):,} features of this size and this server takes at most "
            f"{limits.features:,}. Choose larger ones, or a shorter prompt.",
        )


def _timed(job: Job, seconds: int) -> Callback:
    """The job's own report, which also ends it when its time is up."""
    end = time.monotonic() + seconds

    def report(done: int, total: int) -> None:
        job.report(done, total)
        if time.monotonic() > end and done < total:
            raise ModelError(
                f"It was stopped after {seconds:,} seconds, the limit of this server. Choose larger "
                "features, a smaller budget or cheap readings."
            )

    return report


class _Limited(Surrogate):
    """A model that refuses what is too much, before it costs anything, and keeps its path private."""

    def __init__(self, inner: Surrogate, name: str, limits: Limits, job: Job) -> None:
        self.inner, self.name, self.limits, self.job = inner, name, limits, job
        self.only_output, self.sees_output = inner.only_output, inner.sees_output

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        try:
            return self.inner.token_spans(prompt)
        except NoTokenizerError:
            raise
        except InputError as error:  # mostly that the chat template refuses the messages
            raise Refused(prompt.kind, str(error)) from None

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        self.job.check()
        _check_features(features, self.limits)
        try:
            scorer = self.inner.prepare(prompt, features, output, ablation=ablation)
        except InputError as error:  # mostly that it is too long for the model
            raise Refused(prompt.kind, str(error)) from None
        tokens, most = len(scorer.output_spans), self.limits.answer_tokens
        if tokens > most:
            raise Refused(
                "output", f"The answer has {tokens:,} tokens and this server takes at most {most:,}."
            )
        return _LimitedScorer(scorer, self.limits, self.job)

    def describe(self) -> dict[str, Any]:
        return {**self.inner.describe(), "name": self.name}


class _LimitedScorer(Scorer):
    def __init__(self, inner: Scorer, limits: Limits, job: Job) -> None:
        self.output_spans = inner.output_spans
        self.supports_cached, self.has_question = inner.supports_cached, inner.has_question
        self._inner, self._limits, self._job = inner, limits, job

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        return self._inner.cost(masks, cached=cached)

    def score(self, masks: Masks, **options: Any) -> Scores:
        asked = len(masks) - 2  # the full and the empty prompt are always read
        if asked > self._limits.budget:
            raise Refused(
                "budget",
                f"It would read {asked:,} masked prompts and this server reads at most "
                f"{self._limits.budget:,}. Set a budget up to that, or choose larger features.",
            )
        self._job.check()
        return self._inner.score(masks, **options)


def _summary(
    name: str, request: ExplainRequest, label: str, explanation: Explanation, seconds: float
) -> dict[str, Any]:
    (top,) = explanation.top(1)
    return {
        "id": name,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "kind": explanation.prompt.kind,
        "model": label,
        "features": request.features,
        "count": len(explanation.features),
        "preset": request.preset,
        "scoring": explanation.config["scoring"],
        "seconds": round(seconds, 2),
        "answer": snippet(explanation.output),
        "prompt": snippet(request.question or explanation.prompt.text),
        "top": {"text": snippet(top.text), "score": top.normalized_weight},
    }


def snippet(text: str) -> str:
    """The beginning of a text on one line, without characters that would disturb the others."""
    line = " ".join(text[: 20 * _SNIPPET].split())
    line = "".join(c if c in _JOINERS or _visible(c) else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= _SNIPPET else line[: _SNIPPET - 1] + "…"


def _visible(c: str) -> bool:
    return c == " " or unicodedata.category(c)[0] not in "CZ"
