"""Read a run of an agent as another tool has stored it, and explain its steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelime.errors import FORGIVEN, InputError
from ropelime.explain import SCORING_MASKS
from ropelime.files import write_text
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.progress import Option as ProgressOption
from ropelime.progress import note, reporting
from ropelime.results.decisions import Hop
from ropelime.results.explanation import ExplanationData
from ropelime.stepwise import ExplainedStep, explain_steps, prompt_of, refuse
from ropelime.surrogate import resolve_surrogates
from ropelime.surrogate.base import Surrogate
from ropelime.traces.reading import read
from ropelime.traces.steps import Message, Step, TraceData
from ropelime.views.timeline import timeline_page

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LEAST = 0.1  # a share from which on a message is followed back


class Trace(TraceData):
    """The steps of a run; see :class:`TraceData` for its fields."""

    def __repr__(self) -> str:
        counts = f"{len(self.steps)} steps, {len(self.model_steps)} of models"
        problems = f"; {len(self.problems)} problems" if self.problems else ""
        return f"<Trace {self.name!r}, {self.form}: {counts}{problems}>"

    @takes_options
    def explain(
        self,
        step: int | str | Step,
        *,
        surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
        progress: ProgressOption = False,
        **options: Unpack[OptionKeywords],
    ) -> ExplainedStep:
        """Explain what a model did in a step: its text and its tool calls.

        Args:
            step: The step, its number or its id.
            surrogate: See :func:`ropelime.explain`.
            progress: See :func:`ropelime.explain`.
            **options: See :class:`ropelime.options.Options`; the preset is ``"instant"`` if not given.
        """
        step = step if isinstance(step, Step) else self[step]
        refuse(step, self.model_steps)
        (made,) = _explained([step], surrogate, progress, options)
        if isinstance(made, Exception):
            raise made
        return made

    @takes_options
    def explain_all(
        self,
        *,
        surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
        progress: ProgressOption = False,
        **options: Unpack[OptionKeywords],
    ) -> tuple[list[ExplainedStep], list[str]]:
        """Explain every step of a model, with prefixes that prompts share run once.

        Args:
            surrogate: See :func:`ropelime.explain`.
            progress: See :func:`ropelime.explain`.
            **options: As for :meth:`explain`; the budget is that of each step.

        Returns:
            The explained steps, and why the others could not be explained.
        """
        able, wrong = [], []
        for step in self.model_steps:
            try:
                refuse(step, self.model_steps)
                able.append(step)
            except InputError as error:
                wrong.append(str(error))
        found = _explained(able, surrogate, progress, options, forgive=FORGIVEN) if able else []
        made = [each for each in found if isinstance(each, ExplainedStep)]
        for step, each in zip(able, found, strict=True):
            if isinstance(each, Exception):
                wrong.append(f"Step {step.number} could not be explained: {each}")
        return made, wrong

    @takes_options
    def follow(
        self,
        step: int | str | Step,
        *,
        hops: int = 3,
        surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
        **options: Unpack[OptionKeywords],
    ) -> tuple[Hop, ...]:
        """Trace the actions of a step back through the steps that its messages came from.

        Args:
            step: The step, its number or its id.
            hops: How far to go back.
            surrogate: See :func:`ropelime.explain`.
            **options: As for :meth:`explain`.

        Returns:
            The edges of a graph from each action to the messages that mattered and on to the steps that
            these came from, the latest step first. :func:`ropelime.results.decisions.origins` sums up
            where the ways end.
        """
        if isinstance(hops, bool) or not isinstance(hops, int) or hops < 1:
            raise InputError(f"hops must be a whole number above 0, not {hops!r}.", field="hops")
        models = resolve_surrogates(surrogate)
        first = step if isinstance(step, Step) else self[step]
        found: list[Hop] = []
        # Ways lead back in time only, so a step has all that reaches it when its turn comes.
        reached, left = {first.number: 1.0}, {first.number: hops}
        while left:
            number = max(left)
            more = left.pop(number)
            explained = self.explain(self[number], surrogate=models, **options)
            part = 1 if number == first.number else len(explained.decisions)
            for hop in self._hops(explained, reached.get(number, 0.0) / part):
                found.append(hop)
                if more > 1 and hop.from_step is not None:
                    left[hop.from_step] = max(left.get(hop.from_step, 0), more - 1)
                    if hop.role == "assistant":
                        reached[hop.from_step] = reached.get(hop.from_step, 0.0) + hop.reach
        return tuple(found)

    def to_html(
        self, path: str | os.PathLike[str] | None = None, *, explained: Sequence[ExplainedStep] = ()
    ) -> str:
        """The run as one self-contained page, a timeline of its steps.

        Args:
            path: Where to write it too; an existing file is replaced in one step or not at all.
            explained: The steps that were explained; all others are listed without an explanation.
        """
        page = timeline_page(self, explained)
        if path is not None:
            write_text(Path(path), page)
        return page

    def _hops(self, explained: ExplainedStep, reach: float) -> list[Hop]:
        step, found = explained.step, []
        for one, decision in zip(explained.actions, explained.decisions, strict=True):
            mattered = [
                Hop(
                    step.number, decision.action, number, message.role, share, text,
                    self.source(step, number), reach * share, message.name,
                )
                for number, message in enumerate(_messages(step))
                for share, text in _mattering(one, number)
            ]  # fmt: skip
            found += sorted(mattered, key=lambda hop: -hop.share)
        return found


def _explained(
    steps: Sequence[Step],
    surrogate: Any,
    progress: ProgressOption,
    options: OptionKeywords,
    forgive: tuple[type[Exception], ...] = (),
) -> list[ExplainedStep | Exception]:
    parsed = Options.of({"preset": "instant", **options})  # before a model is loaded
    models = resolve_surrogates(surrogate, say=None if progress is False else note)
    with reporting(progress, SCORING_MASKS) as report:
        return explain_steps(steps, models, parsed, progress=report, forgive=forgive)


def _messages(step: Step) -> list[Message]:
    """The messages that were explained: the prompt, and what was written before the output."""
    more = len(prompt_of(step)) - len(step.messages)
    return [*step.messages, *[Message("assistant", reasoning=step.reasoning)] * more]


def _mattering(e: ExplanationData, message: int) -> list[tuple[float, str]]:
    """The share of a message and its part that mattered most; none if it hardly mattered."""
    inside = [i for i, feature in enumerate(e.features) if feature.part == message]
    share = float(e.normalized_weights[inside].sum())
    if share < _LEAST:
        return []
    best = max(inside, key=lambda i: e.normalized_weights[i])
    return [(share, e.features[best].text.strip())]


def trace(source: str | os.PathLike[str] | Any) -> Trace:
    """Read a trace, a log of an agent, or a list of messages.

    The form is recognised by its shape: OpenInference and OpenTelemetry GenAI spans, exports of
    Phoenix, Langfuse and LangSmith, Inspect logs, runs of AgentDojo and tau-bench, and messages
    of OpenAI, Anthropic or Gemini. What cannot be read is named in ``problems``, and the rest is read.

    Args:
        source: A file of JSON or JSON lines, which may be compressed by gzip, or an Inspect log
            (``.eval``); or the data itself, as lists and dictionaries.
    """
    data = read(source)
    return Trace(data.name, data.form, data.steps, data.problems)
