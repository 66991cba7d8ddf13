"""Traces as data that can be written as JSON."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from ropelime.traces.steps import Step, TraceData


def trace_dict(trace: TraceData) -> dict[str, Any]:
    """A trace with all of its steps; messages are in the form of the Chat Completions API."""
    return {
        "name": trace.name,
        "form": trace.form,
        "steps": [step_dict(step) for step in trace.steps],
        "problems": list(trace.problems),
    }


def step_dict(step: Step) -> dict[str, Any]:
    """A step with what it was given and what came out; what it does not have is left out."""
    data: dict[str, Any] = {"number": step.number, "id": step.id, "kind": step.kind}
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name not in (*data, "messages", "calls", "documents") and value not in ("", None):
            data[field.name] = value.isoformat() if isinstance(value, datetime) else value
    data["messages"] = step.prompt()
    data["calls"] = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in step.calls
    ]
    if step.documents:
        data["documents"] = [
            {key: value for key, value in vars(document).items() if value not in ("", None)}
            for document in step.documents
        ]
    data["output"] = step.output
    return data
