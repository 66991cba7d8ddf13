"""From a request to a kept explanation, within the limits of the server."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from ropelime.errors import InputError, RopeLimeError
from ropelime.explain import Explanation, explain_many, stream_one
from ropelime.steps import Task
from ropelime.stepwise import ExplainedStep, decided, explain_steps, prompt_of, refuse
from ropelime.surrogate import Surrogate, is_served, load_surrogate
from ropelime.text.display import plain, shorten
from ropelime.text.features import PARTS, split
from ropelime.text.prompt import check_text, naming_field, read_prompt
from ropelime.traces.reading import read_text
from ropelime.traces.steps import Step, TraceData
from ropelime.web.history import History
from ropelime.web.jobs import Job, Jobs
from ropelime.web.limits import (
    SOON,
    LimitedOptions,
    LimitedSurrogate,
    check_count,
    check_features,
    check_limit,
    check_options,
)
from ropelime.web.schema import ExplainRequest, Given, RankedView, StepRequest, TopFeature
from ropelime.web.settings import ServerSettings

_LOG = logging.getLogger(__name__)
_PARSED = 2  # requests that are parsed at once
_STEPS = 2000  # of a run
_SCORING = "scoring masked prompts"
_TOP = 3  # parts that are named for a sentence which was ranked at once
_ROOM = 32_000_000  # bytes for what a run repeats, such as the messages that each step is given
_WRITTEN = 16_000_000  # characters that the steps of a run write in all, which the page is sent
_SAMPLER = 200  # characters that name a sampler; a mixed one draws all masks of each of its parts


@dataclass(frozen=True)
class Order:
    """A request that was accepted, the surrogates that score it, and what they explain."""

    request: ExplainRequest
    labels: tuple[str, ...]
    task: Task
    step: tuple[str, Step] | None = None  # the run and the step that it is of
    stream: bool = False  # whether sentences are ranked before the explanation is made


class Service:
    """The queue, the history and the surrogates of one server, loaded when they are first needed."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.history = History(settings.history)
        self.jobs: Jobs[Order] = Jobs(
            self._work,
            waiting=settings.limits.waiting,
            streams=settings.limits.streams,
            patience=settings.patience,
            grace=settings.grace,
        )
        self.parsing = asyncio.Semaphore(_PARSED)
        self._loaded: dict[str, Surrogate] = {}

    def load(self, label: str) -> Surrogate:
        """One of the surrogates that the operator named, loaded once."""
        if label not in self._loaded:
            name = self.settings.surrogates[label]
            running = {} if is_served(name) else self.settings.running
            self._loaded[label] = load_surrogate(name, **running)
        return self._loaded[label]

    def submit(self, request: ExplainRequest, *, stream: bool = False) -> Job:
        """Queue a request, or refuse it at once for what can be seen without a surrogate."""
        with naming_field(""):  # an error that names no field is about the request, too
            labels = self._labels(request.surrogate)
            order = Order(request, labels, self._task(request), stream=stream)
        return self.jobs.submit(order)

    def submit_step(self, run: str, number: int, request: StepRequest) -> Job:
        """Queue the explanation of a step of a stored run."""
        trace = self.trace(run)
        with naming_field("step"):
            step = trace[number]
            refuse(step, trace.model_steps)
            given = {**request.model_dump(exclude_unset=True), "preset": request.preset}
            sent = {**given, "messages": prompt_of(step), "output": step.output}
            try:
                whole = ExplainRequest.model_validate(sent)
            except ValidationError:
                raise InputError(f"Step {number} has a message that is not text.") from None
        with naming_field(""):
            order = Order(whole, self._labels(whole.surrogate), self._task(whole), (run, step))
        return self.jobs.submit(order)

    def trace(self, run: str) -> TraceData:
        """A stored run."""
        found = self.history.run(run)
        if found is None:
            raise HTTPException(404, "There is no run of that name.")
        return self.read_run(found[0]["name"], found[1])

    def store_run(self, name: str, text: str) -> str:
        """Store a run that was sent, if it can be read; returns its name in the history."""
        shown, run = snippet(name) or "run", secrets.token_hex(16)
        check_text("text", text)
        trace = self.read_run(shown, text)
        summary = {
            "id": run,
            "created": _now(),
            "name": shown,
            "form": trace.form,
            "steps": len(trace.steps),
            "models": len(trace.model_steps),
        }
        self.history.add_run(run, summary, text)
        return run

    def read_run(self, name: str, text: str) -> TraceData:
        """The steps of a run that was sent, if that is within the limits."""
        with naming_field("text"):
            trace = read_text(name, text, room=_ROOM)
        message = "The run has {given:,} steps and this server takes at most {most:,}."
        check_limit("text", len(trace.steps), _STEPS, message)
        written = sum(len(step.output) + len(step.reasoning) for step in trace.steps)
        message = "The steps write {given:,} characters and this server takes at most {most:,}."
        check_limit("text", written, _WRITTEN, message)
        return trace

    def explained(self, run: str, trace: TraceData) -> list[ExplainedStep]:
        """The steps of a run that were explained."""
        made = []
        for number, name in sorted(self.history.steps(run).items()):
            if (why := self.history.explanation(name)) is not None:
                made.append(decided(trace[number], why))
        return made

    def _labels(self, named: str | list[str] | None) -> tuple[str, ...]:
        known = self.settings.surrogates
        if named is None:
            return (self.settings.default_surrogate,)
        labels = (named,) if isinstance(named, str) else tuple(named)
        with naming_field("surrogate"):
            if not labels or len(set(labels)) < len(labels):
                raise InputError("Name at least one surrogate, and none of them twice.")
            if not set(labels) <= set(known):
                raise InputError(
                    f"This server has no surrogate of that name. It has: {', '.join(known)}."
                )
        return labels

    def _task(self, request: ExplainRequest) -> Task:
        """What to explain and how, if that is within the limits."""
        limits = self.settings.limits
        given = request.model_dump(exclude=set(Given.model_fields))
        message = "The name of a sampler has at most {most} characters here."
        check_limit("sampler", len(given["sampler"] or ""), _SAMPLER, message)
        for name, value in given.items():
            if isinstance(value, str):
                check_text(name, value, may_be_blank=True)
        options = LimitedOptions(**given, most=limits.budget)
        check_options(options, limits)
        prompt = read_prompt(request.prompt, request.context, request.question, request.messages)
        message = "The prompt has {given:,} characters and this server takes at most {most:,}."
        check_limit(prompt.kind, len(prompt.text), limits.characters, message)
        check_text("The answer", request.output, field="output")
        # Texts are cut when their turn comes, where that can be cancelled.
        if not isinstance(options.features, str):
            check_count(len(options.features), limits)
            check_features(split(prompt, options.features), options, limits)
        elif options.features in PARTS:
            check_features(split(prompt, options.features), options, limits)
        return Task(prompt, request.output, options)

    def _work(self, job: Job, order: Order) -> None:
        surrogates = [self._loaded_for(job, label, order.task) for label in order.labels]
        job.check()
        job.stage = _SCORING
        start = time.perf_counter()
        job.start_clock(self.settings.limits.seconds)
        job.patience = SOON
        try:
            explanation = _made(order, surrogates, job)
        except RopeLimeError as error:
            field = getattr(error, "field", None)
            raise InputError(self._public(error, order), field=field) from None
        self.jobs.settle(job)
        job.check()
        job.stage = "saving it"
        summary = _summary(job.id, order, explanation, time.perf_counter() - start)
        sent = order.request.model_dump() | {"surrogate": order.request.surrogate or order.labels[0]}
        of = None if order.step is None else (order.step[0], order.step[1].number)
        self.history.add(job.id, summary, sent, explanation, step=of)

    def _loaded_for(self, job: Job, label: str, task: Task) -> Surrogate:
        """A surrogate with the limits of the server, for one job."""
        job.stage = f"loading {label}"
        try:
            inner = self.load(label)
        except RopeLimeError as error:
            _LOG.error("%s", error)
            message = f"{label} could not be loaded; the server's log says why."
            raise InputError(message, field="surrogate") from None
        return LimitedSurrogate(inner, label, self.settings.limits, job, task)

    def _public(self, error: RopeLimeError, order: Order) -> str:
        """What an error says, without the paths and addresses of surrogates."""
        public = str(error)
        for label in order.labels:
            address = getattr(self._loaded[label], "base_url", label)
            for private in (self.settings.surrogates[label], address):
                public = public.replace(private, label)
        return public


def _made(order: Order, surrogates: list[Surrogate], job: Job) -> Explanation:
    if order.stream and not surrogates[0].only_output:
        return _streamed(order.task, surrogates, job)
    if order.step is None:
        (found,) = explain_many([order.task], surrogates, progress=job.report)
        assert isinstance(found, Explanation)
        return found
    (step,) = explain_steps([order.step[1]], surrogates, order.task.options, progress=job.report)
    assert isinstance(step, ExplainedStep)
    return step.explanation


def _streamed(task: Task, surrogates: list[Surrogate], job: Job) -> Explanation:
    """The same, with the sentences of the answer ranked at once, for those who watch the job."""
    job.stage = "ranking sentences"
    for item in stream_one(task, surrogates, job.report):
        if isinstance(item, Explanation):
            return item
        job.stage = _SCORING
        top = item.explanation.top(_TOP)
        job.sentences.append(
            RankedView(
                text=snippet(item.text),
                top=[
                    TopFeature(text=snippet(r.text), normalized_weight=r.normalized_weight) for r in top
                ],
            )
        )
    raise AssertionError("a stream ends with the explanation")


def _summary(name: str, order: Order, explanation: Explanation, seconds: float) -> dict[str, Any]:
    (top,) = explanation.top(1)
    config = explanation.config
    return {
        "id": name,
        "created": _now(),
        "kind": explanation.prompt.kind,
        "surrogate": list(order.labels),
        "features": config["features"],
        "count": len(explanation.features),
        "preset": config["preset"],
        "scoring": config["scoring"],
        "seconds": round(seconds, 2),
        "answer": snippet(explanation.output),
        "prompt": snippet(order.request.question or explanation.prompt.text),
        "top": {"text": snippet(top.text), "normalized_weight": top.normalized_weight},
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def snippet(text: str) -> str:
    """The beginning of a text on one line, without characters that would disturb the others."""
    return plain(shorten(text, 160))
