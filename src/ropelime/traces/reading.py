"""From a file to steps: which form it has, and the reader of that form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ropelime.errors import InputError
from ropelime.text.display import shorten
from ropelime.traces import attributes
from ropelime.traces.contents import Lines, load, parsed
from ropelime.traces.inspect_logs import is_inspect, read_inspect
from ropelime.traces.observations import (
    is_digest,
    is_langfuse,
    is_langsmith,
    read_digest,
    read_langfuse,
    read_langsmith,
)
from ropelime.traces.runs import is_messages, is_run, message_steps, read_run
from ropelime.traces.spans import Span, is_otlp, is_span, read_otlp, read_span
from ropelime.traces.steps import Step, TraceData
from ropelime.traces.values import Problems, TooMuch, text

FORMS = (
    "OpenInference or OpenTelemetry GenAI spans (OTLP/JSON, Phoenix), exports of Langfuse or "
    "LangSmith, Inspect logs, runs of AgentDojo or tau-bench, and messages of OpenAI, Anthropic or "
    "Gemini"
)
_HOLDERS = ("data", "runs", "spans", "traces", "results", "items", "trajectories", "simulations")
_DEEPEST = 4  # levels of lists and objects around the records

Record = tuple[str, Mapping[str, Any]]
Reader = Callable[[list[Record], Problems], Iterable[Step]]


def read(source: str | os.PathLike[str] | Any) -> TraceData:
    """The steps of a file, or of its data."""
    problems = Problems()
    if isinstance(source, (str, os.PathLike)):
        return _read(Path(source).name, load(Path(source), problems), problems)
    return _read("trace", source, problems)


def read_text(name: str, text: str, *, room: int) -> TraceData:
    """The steps of a text of JSON or JSON lines, from somebody who may send anything.

    Args:
        name: The name of the run, for messages about it.
        text: What a file holds.
        room: Bytes for what it repeats: each step of a list of messages is given all before it.
    """
    problems = Problems(room)
    return _read(name, parsed(text, name, problems), problems)


def _read(name: str, data: Any, problems: Problems) -> TraceData:
    try:
        records: dict[str, list[Record]] = {}
        _sort(data, "", records, problems, 0)
        steps = [step for form, given in records.items() for step in _FORMS[form][1](given, problems)]
    except RecursionError:
        raise InputError(f"{name} is nested too deeply to be a trace.") from None
    except TooMuch as error:
        raise InputError(f"{name} is too large: {error}. Take one run, or a part of it.") from None
    if not steps:
        raise _foreign(name, data, records, problems)
    return TraceData(name, _form(records), _ordered(steps), problems.listed())


def _sort(
    data: Any, where: str, records: dict[str, list[Record]], problems: Problems, depth: int
) -> None:
    """Find the records in nested lists and objects, and the form of each."""
    form = next((name for name, (matches, _) in _FORMS.items() if matches(data)), None)
    if form is not None:
        records.setdefault(form, []).append((where, data))
    elif isinstance(data, (list, tuple)) and depth < _DEEPEST:
        for i, each in enumerate(data):
            _sort(each, f"{where}[{i}]", records, problems, depth + 1)
    elif isinstance(data, Lines) and depth < _DEEPEST:
        for number, each in data.lines:
            _sort(each, f"line {number}", records, problems, depth + 1)
    elif isinstance(data, Mapping) and depth < _DEEPEST and (inner := _inner(data)):
        for key, each in inner.items():
            _sort(each, f"{where}.{text(key)}".strip("."), records, problems, depth + 1)
    elif depth:
        problems.add(where, f"no step of a known form: {_described(data)}")


def _inner(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an object holds that may be records: a list by a known name, or objects by their ids."""
    holders = {key: data[key] for key in _HOLDERS if isinstance(data.get(key), list)}
    if holders:
        return holders
    inside = [value for value in data.values() if isinstance(value, (Mapping, list))]
    return data if inside and len(inside) == len(data) else {}


def _each(one: Callable[[Any, Problems, str], Iterable[Step]]) -> Reader:
    """A reader of many records from one of a single record."""

    def every(records: list[Record], problems: Problems) -> Iterable[Step]:
        for where, data in records:
            with problems.at(where):
                yield from one(data, problems, where)

    return every


def _span_steps(spans: Iterable[Span], problems: Problems) -> Iterable[Step]:
    for span in spans:
        with problems.at(f"{span.where} (span {span.id})"):
            yield attributes.step(span, problems)


def _otlp(data: Any, problems: Problems, where: str) -> Iterable[Step]:
    return _span_steps(read_otlp(data, problems, where), problems)


def _spans(data: Any, problems: Problems, where: str) -> Iterable[Step]:
    return _span_steps(read_span(data, problems, where), problems)


def _messages(data: Any, problems: Problems, where: str) -> Iterable[Step]:
    return message_steps(data, problems, f"{where} messages".strip(), trace_id=where)


def _object(matches: Callable[[Mapping[str, Any]], bool]) -> Callable[[Any], bool]:
    return lambda data: isinstance(data, Mapping) and matches(data)


# In the order in which they are tried: earlier ones are known by names of their own.
_FORMS: dict[str, tuple[Callable[[Any], bool], Reader]] = {
    "OTLP/JSON": (_object(is_otlp), _each(_otlp)),
    "LangSmith runs": (_object(is_langsmith), read_langsmith),
    "Langfuse observations": (_object(is_langfuse), _each(read_langfuse)),
    "messages by Langfuse": (_object(is_digest), _each(read_digest)),
    "Inspect log": (_object(is_inspect), _each(read_inspect)),
    "spans": (_object(is_span), _each(_spans)),
    "AgentDojo run": (_object(lambda run: "suite_name" in run and is_run(run)), _each(read_run)),
    "tau-bench run": (_object(lambda run: "traj" in run and is_run(run)), _each(read_run)),
    "request and response": (_object(is_run), _each(read_run)),
    "messages": (is_messages, _each(_messages)),
}


def _form(records: Mapping[str, list[Record]]) -> str:
    return " and ".join(records)


def _ordered(steps: list[Step]) -> tuple[Step, ...]:
    """Steps run by run, in the order of time; a model call around another is an agent's.

    Vercel's SDK, for example, has a span for the task with the call of the model in it.
    """
    around = {(step.trace_id, step.parent) for step in steps if step.kind == "model" and step.parent}
    placed = [
        replace(step, kind="agent")
        if step.kind == "model" and (step.trace_id, step.id) in around
        else step
        for step in steps
    ]
    started = [(step.trace_id, step.started) for step in placed if step.started is not None]
    if len(started) < len(placed):  # not all have a time: the order of the file
        return tuple(placed)
    times = [time for _, time in started]
    begun: dict[str, datetime] = {}
    for trace_id, time in started:
        begun[trace_id] = min(time, begun.get(trace_id, time))
    parents = {(step.trace_id, step.id): step.parent for step in placed}

    def key(i: int) -> tuple[datetime, str, datetime, int]:
        trace_id = placed[i].trace_id
        return begun[trace_id], trace_id, times[i], _depth(placed[i], parents)

    return tuple(placed[i] for i in sorted(range(len(placed)), key=key))


def _depth(step: Step, parents: Mapping[tuple[str, str], str]) -> int:
    """How many steps are around a step; a circle of them ends somewhere."""
    depth, parent = 0, step.parent
    while depth < 100 and (above := parents.get((step.trace_id, parent))) is not None:
        depth, parent = depth + 1, above
    return depth


def _described(data: Any) -> str:
    """What came, in words."""
    if isinstance(data, Mapping):
        return shorten(f"an object with the keys {', '.join(map(str, data)) or '(none)'}", 160)
    if isinstance(data, (list, tuple)):
        return f"a list of {len(data)}" + (f", first {_described(data[0])}" if data else "")
    return "JSON lines" if isinstance(data, Lines) else f"{type(data).__name__}"


def _foreign(
    name: str, data: Any, records: Mapping[str, list[Record]], problems: Problems
) -> InputError:
    seen = problems.listed()
    why = f" {seen[0]}." if seen else ""
    if records:
        return InputError(f"{name} ({_form(records)}) has no steps.{why}")
    return InputError(f"{name} is not a trace: it is {_described(data)}.{why} These are read: {FORMS}.")
