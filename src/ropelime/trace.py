"""Read a run of an agent as another tool has stored it."""

from __future__ import annotations

import os
from typing import Any

from ropelime.traces.reading import read
from ropelime.traces.steps import TraceData


class Trace(TraceData):
    """The steps of a run; see :class:`TraceData` for its fields."""

    def __repr__(self) -> str:
        counts = f"{len(self.steps)} steps, {len(self.model_steps)} of models"
        problems = f"; {len(self.problems)} problems" if self.problems else ""
        return f"<Trace {self.name!r}, {self.form}: {counts}{problems}>"


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
