"""A run of an agent as a web page: its steps in order, and who decided on each action."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timezone
from typing import Any, Protocol

from ropelime.files import significant
from ropelime.results.decisions import Decision
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten, visible
from ropelime.traces.steps import Message, Step, ToolCall, TraceData
from ropelime.views.html import PLACE, document, static, text_pieces
from ropelime.views.verbatim import verbatim

HEADING = "Why did the agent do that?"
STYLES = ("report.css", "tables.css", "timeline.css")
_NAME = 60  # characters of the name in the title
_START = (
    'ropelime.timeline(document.getElementById("ropelime"), '
    'JSON.parse(document.getElementById("ropelime-data").textContent));'
)


class Explained(Protocol):
    """A step with its explanation; :class:`ropelime.stepwise.ExplainedStep` is one."""

    @property
    def step(self) -> Step:
        """The step."""
        ...

    @property
    def explanation(self) -> ExplanationData:
        """What its output rests on."""
        ...

    @property
    def actions(self) -> Sequence[ExplanationData]:
        """What each tool call rests on, or the text of a step without any."""
        ...

    @property
    def decisions(self) -> Sequence[Decision]:
        """Who decided on each of these."""
        ...


def timeline_page(trace: TraceData, explained: Iterable[Explained] = ()) -> str:
    """A self-contained document with its style, script and data; it needs no server."""
    return document(
        f"{shorten(visible(trace.name), _NAME)} · RoPE-LIME",
        HEADING,
        f"{PLACE}\n<noscript>This page needs JavaScript, which is switched off.</noscript>",
        css="".join(map(static, STYLES)),
        scripts=(static("timeline.js"), _START),
        data=timeline(trace, explained),
    )


def timeline(trace: TraceData, explained: Iterable[Explained] = ()) -> dict[str, Any]:
    """The data of the component in ``static/timeline.js``, as plain JSON.

    A message is in the prompts of all later steps: its text is stored once, in ``texts``.
    """
    texts: dict[str, int] = {}
    made = {each.step.number: each for each in explained}
    steps = [
        {**_step(step), "why": _why(trace, made[step.number], texts) if step.number in made else None}
        for step in trace.steps
    ]
    return {
        "name": visible(trace.name),
        "form": visible(trace.form),
        "problems": [visible(problem) for problem in trace.problems],
        "steps": steps,
        # Each is a message, cut where features begin and end.
        "texts": [json.loads(text) for text in texts],
    }


def _step(step: Step) -> dict[str, Any]:
    started = step.started and step.started.replace(tzinfo=step.started.tzinfo or timezone.utc)
    return {
        "number": step.number,
        "kind": step.kind,
        "name": visible(step.name),
        "model": visible(step.model),
        "run": visible(step.trace_id),
        "started": started.isoformat() if started else None,
        "seconds": None if step.seconds is None else round(step.seconds, 3),
        "text": visible(step.text),
        "code": bool(verbatim(step.text)),
        "reasoning": visible(step.reasoning),
        "calls": [_call(call) for call in step.calls],
        "documents": [
            {"text": visible(each.text), "source": visible(each.source or each.id)}
            for each in step.documents
        ],
        "messages": len(step.messages),
        "explainable": step.kind == "model" and bool(step.messages) and bool(step.output.strip()),
    }


def _call(call: ToolCall) -> dict[str, str]:
    return {"name": visible(call.name), "arguments": visible(call.arguments)}


def _why(trace: TraceData, explained: Explained, texts: dict[str, int]) -> dict[str, Any]:
    step, e = explained.step, explained.explanation
    messages = []
    for number, placed in enumerate(e.prompt.messages):
        # What a model wrote before its output is one more message than the prompt has.
        given = step.messages[number] if number < len(step.messages) else Message("assistant")
        cut = text_pieces(e, placed.start, placed.end)
        text = json.dumps(
            [[piece["text"], piece.get("code", False)] for piece in cut], ensure_ascii=False
        )
        source = trace.source(step, number)
        ids = [] if source is None else [call.id for call in trace[source].calls]
        messages.append(
            {
                "role": given.role,
                "name": visible(given.name),
                "text": texts.setdefault(text, len(texts)),
                "features": [piece["feature"] for piece in cut],
                "from": source,
                "call": ids.index(given.tool_call_id) if given.tool_call_id in ids else 0,
            }
        )
    return {
        "messages": messages,
        "decisions": [
            _decision(decision, part)
            for decision, part in zip(explained.decisions, explained.actions, strict=True)
        ],
    }


def _decision(decision: Decision, part: ExplanationData) -> dict[str, Any]:
    return {
        "action": visible(decision.action),
        "verdict": decision.verdict,
        "probability": significant(decision.probability),
        "text": visible(decision.text),
        "influences": [
            {
                "decider": each.decider,
                "name": visible(each.name),
                "messages": list(each.messages),
                "share": significant(each.share),
                "interval": [significant(end) for end in each.interval],
            }
            for each in decision.influences
        ],
        # (features,) the share of each in this action
        "shares": [significant(share) for share in part.normalized_weights],
    }
