"""From a request to a kept explanation, within the limits of the server."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ropelime.errors import InputError, RopeLimeError
from ropelime.explain import Explanation, explain_many
from ropelime.progress import note
from ropelime.steps import Task
from ropelime.surrogate import Surrogate, is_served, load_surrogate
from ropelime.text.features import split
from ropelime.text.prompt import check_text, read_prompt
from ropelime.web.history import History
from ropelime.web.jobs import Job, Jobs
from ropelime.web.limits import (
    LimitedOptions,
    LimitedSurrogate,
    Refused,
    check_features,
    check_options,
    check_sampler,
    timed,
)
from ropelime.web.schema import ExplainRequest
from ropelime.web.settings import ServerSettings

__all__ = ["Order", "Refused", "Service", "snippet"]

_SNIPPET = 160  # characters of a text in the history's list
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # they make emoji and letters


@dataclass(frozen=True)
class Order:
    """A request that was accepted.

    Attributes:
        request: What was sent.
        labels: The surrogates that score it.
        task: The prompt, the answer and the options.
    """

    request: ExplainRequest
    labels: tuple[str, ...]
    task: Task


class Service:
    """The surrogates, the queue and the history of one server."""

    def __init__(self, settings: ServerSettings) -> None:
        """Open the history; surrogates are loaded when they are first needed."""
        self.settings = settings
        self.history = History(settings.history)
        self.jobs: Jobs[Order] = Jobs(
            self._work,
            waiting=settings.limits.waiting,
            streams=settings.limits.streams,
            patience=settings.patience,
            grace=settings.grace,
        )
        self._loaded: dict[str, Surrogate] = {}

    def load(self, label: str) -> Surrogate:
        """One of the surrogates that the operator named, loaded once."""
        if label not in self._loaded:
            name = self.settings.surrogates[label]
            running = {} if is_served(name) else self.settings.running
            self._loaded[label] = load_surrogate(name, **running)
        return self._loaded[label]

    def submit(self, request: ExplainRequest) -> Job:
        """Queue a request, or refuse it at once for what can be seen without a surrogate."""
        return self.jobs.submit(Order(request, self._labels(request), self._task(request)))

    def _labels(self, request: ExplainRequest) -> tuple[str, ...]:
        """The surrogates of a request."""
        named = request.surrogate
        if named is None:
            return (self.settings.default_surrogate,)
        labels = (named,) if isinstance(named, str) else tuple(named)
        if not labels or len(set(labels)) < len(labels):
            raise Refused("surrogate", "Name at least one surrogate, and none of them twice.")
        if not set(labels) <= set(self.settings.surrogates):
            known = ", ".join(self.settings.surrogates)
            raise Refused("surrogate", f"This server has no surrogate of that name. It has: {known}.")
        return labels

    def _task(self, request: ExplainRequest) -> Task:
        """What to explain and how, if that is within the limits."""
        limits = self.settings.limits
        given = request.options()
        with _refusing():
            check_sampler(given["sampler"])
            for name, value in given.items():
                if isinstance(value, str):
                    check_text(name, value, may_be_blank=True)
            options = LimitedOptions(**given, most=limits.budget)
            check_options(options, limits)
            prompt = read_prompt(request.prompt, request.context, request.question, request.messages)
            if len(prompt.text) > limits.characters:
                raise Refused(
                    prompt.kind,
                    f"The prompt has {len(prompt.text):,} characters and this server takes at most "
                    f"{limits.characters:,}.",
                )
            check_text("The answer", request.output, field="output")
        if options.features != "token":  # tokens are counted by the surrogate, when it is its turn
            with _refusing("features"):
                check_features(split(prompt, options.features), options, limits)
        return Task(prompt, request.output, options)

    def _work(self, job: Job, order: Order) -> None:
        surrogates = [self._loaded_for(job, label, order.task) for label in order.labels]
        job.stage = "scoring masked prompts"
        start = time.perf_counter()
        try:
            (explanation,) = explain_many(
                [order.task], surrogates, progress=timed(job, self.settings.limits.seconds)
            )
        except RopeLimeError as error:
            raise Refused(getattr(error, "field", None) or "", self._public(error, order)) from None
        assert isinstance(explanation, Explanation)
        job.stage = "saving it"
        summary = _summary(job.id, order, explanation, time.perf_counter() - start)
        named = order.request.surrogate or order.labels[0]
        self.history.add(
            job.id, summary, {**order.request.model_dump(), "surrogate": named}, explanation
        )

    def _loaded_for(self, job: Job, label: str, task: Task) -> Surrogate:
        """A surrogate with the limits of the server, for one job."""
        job.stage = f"loading {label}"
        try:
            inner = self.load(label)
        except RopeLimeError as error:
            note(f"ropelime: {error}")
            message = f"{label} could not be loaded; the server's log says why."
            raise Refused("surrogate", message) from None
        return LimitedSurrogate(inner, label, self.settings.limits, job, task)

    def _public(self, error: RopeLimeError, order: Order) -> str:
        """What an error says, without the paths and addresses of surrogates."""
        public = str(error)
        for label in order.labels:
            address = getattr(self._loaded[label], "base_url", label)
            for private in (self.settings.surrogates[label], address):
                public = public.replace(private, label)
        return public


@contextmanager
def _refusing(field: str = "") -> Iterator[None]:
    """Turn input errors into refusals, of this field where they name none."""
    try:
        yield
    except Refused:
        raise
    except InputError as error:
        raise Refused(error.field or field, str(error)) from None


def _summary(name: str, order: Order, explanation: Explanation, seconds: float) -> dict[str, Any]:
    (top,) = explanation.top(1)
    config = explanation.config
    return {
        "id": name,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
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


def snippet(text: str) -> str:
    """The beginning of a text on one line, without characters that would disturb the others."""
    line = " ".join(text[: 20 * _SNIPPET].split())
    line = "".join(c if c in _JOINERS or _visible(c) else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= _SNIPPET else line[: _SNIPPET - 1] + "…"


def _visible(c: str) -> bool:
    return c == " " or unicodedata.category(c)[0] not in "CZ"
