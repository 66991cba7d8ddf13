"""Read a run of an agent as another tool has stored it, and explain its steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelime.errors import InputError
from ropelime.explain import Explanation, explain
from ropelime.files import write_text
from ropelime.guard import tool_names
from ropelime.options import OptionKeywords, takes_options
from ropelime.progress import Option as ProgressOption
from ropelime.results.decisions import Decision, Hop, decide
from ropelime.results.ensemble import for_output
from ropelime.surrogate.base import Surrogate
from ropelime.traces.annotations import Judged
from ropelime.traces.reading import read
from ropelime.traces.steps import Step, ToolCall, TraceData
from ropelime.views.timeline import timeline_page

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LEAST = 0.1  # a share from which on a message is followed back


@dataclass(frozen=True)
class ExplainedStep:
    """A step of a run, explained.

    Attributes:
        step: The step.
        explanation: What its output rests on, as a whole.
        decisions: Who decided on each tool call, or on the text of a step without any.
    """

    step: Step
    explanation: Explanation
    decisions: tuple[Decision, ...]

    def to_dict(self) -> dict[str, Any]:
        """Who decided, as plain data."""
        decisions = [decision.to_dict() for decision in self.decisions]
        return {"step": self.step.number, "id": self.step.id, "decisions": decisions}

    def judged(self) -> list[Judged]:
        """Who decided, as results for the tool that the trace came from."""
        return [
            Judged(
                self.step.id,
                self.step.trace_id,
                "caused_by" if len(self.decisions) == 1 else f"caused_by {number}",
                label=decision.verdict,
                score=decision.probability,
                explanation=decision.text,
                metadata={"action": decision.action},
            )
            for number, decision in enumerate(self.decisions, start=1)
        ]


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
        if step.kind != "model" or not step.messages:
            raise InputError(
                f"Step {step.number} is not a call of a model with a stored prompt, so it cannot be "
                f"explained. Steps that can: {_numbers(self.model_steps)}.",
                field="step",
            )
        if not step.output.strip():
            raise InputError(f"Step {step.number} has no output to explain.", field="step")
        prompt = step.prompt()
        chosen: dict[str, Any] = {"preset": "instant", **options}
        why = explain(
            messages=prompt, output=step.output, surrogate=surrogate, progress=progress, **chosen
        )
        assert isinstance(why, Explanation)
        spans = step.call_spans or ((0, len(step.output)),)
        decided = [
            decide(for_output(why, *span) if span != why.span else why, tools=tool_names(prompt))
            for span in spans
        ]
        return ExplainedStep(step, why, tuple(decided))

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
        """
        if isinstance(hops, bool) or not isinstance(hops, int) or hops < 1:
            raise InputError(f"hops must be a whole number above 0, not {hops!r}.", field="hops")
        found: list[Hop] = []
        step = step if isinstance(step, Step) else self[step]
        left, seen = [(step, hops)], {step.number}
        while left:
            here, more = left.pop(0)
            explained = self.explain(here, surrogate=surrogate, **options)
            for decision in explained.decisions:
                for hop in self._hops(here, explained.explanation, decision):
                    found.append(hop)
                    if more > 1 and hop.from_step is not None and hop.from_step not in seen:
                        seen.add(hop.from_step)
                        left.append((self[hop.from_step], more - 1))
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

    def _hops(self, step: Step, why: Explanation, decision: Decision) -> list[Hop]:
        start = why.output.find(decision.action)
        one = for_output(why, start, start + len(decision.action))
        found = []
        for number, message in enumerate(step.messages):
            inside = [i for i, feature in enumerate(one.features) if feature.part == number]
            share = float(one.normalized_weights[inside].sum())
            if share < _LEAST:
                continue
            best = max(inside, key=lambda i: one.normalized_weights[i])
            text = one.features[best].text.strip()
            source = self._source(step, message.tool_call_id, message.role, message.content)
            found.append(Hop(step.number, decision.action, number, message.role, share, text, source))
        return sorted(found, key=lambda hop: -hop.share)

    def _source(self, step: Step, call_id: str, role: str, content: str) -> int | None:
        """The earlier step of a model that a message came from."""
        for earlier in reversed(self.model_steps):
            if earlier.number >= step.number:
                continue
            made: Sequence[ToolCall] = earlier.calls
            if role == "tool" and call_id and any(call.id == call_id for call in made):
                return earlier.number
            if role == "assistant" and content.strip() and earlier.text.strip() == content.strip():
                return earlier.number
        return None


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


def _numbers(steps: Sequence[Step]) -> str:
    return ", ".join(str(step.number) for step in steps[:20] if step.messages) or "none"
