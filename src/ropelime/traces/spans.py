"""Spans as data: OTLP/JSON, Phoenix, TRAIL, the SDKs' own exports, or attributes alone."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ropelime.traces.values import Problems, first, items, later, mapping, record, text, tree, when

_ATTRIBUTES = ("attributes", "span_attributes", "spanAttributes", "tags")
_FLAT = ("llm.", "gen_ai.", "openinference.", "ai.prompt", "ai.response", "traceloop.", "retrieval.")
_RESOURCES = ("resourceSpans", "resource_spans", "batches")
_LOGS = ("resourceLogs", "resource_logs")
_DEEPEST = 200  # levels of spans within spans


@dataclass(frozen=True)
class Span:
    """One span, with its attributes as a tree."""

    id: str
    trace_id: str
    parent: str
    name: str
    kind: str
    attributes: Any
    events: tuple[tuple[str, Any], ...]
    started: datetime | None
    ended: datetime | None
    where: str


def is_otlp(data: Mapping[str, Any]) -> bool:
    """Whether data is a file of OTLP/JSON, with spans or with log records."""
    return any(isinstance(data.get(key), list) for key in (*_RESOURCES, *_LOGS))


def is_span(data: Mapping[str, Any]) -> bool:
    """Whether data is one span, or the attributes of one."""
    named = {"span_id", "spanId", "context", "spanContext", "span_kind", "start_time", "startTime"}
    keys = [key for key in data if isinstance(key, str)]
    if any(isinstance(data.get(key), (Mapping, list)) for key in _ATTRIBUTES) and named & {*keys}:
        return True
    flat = (key.removeprefix("attributes.") for key in keys)
    return "child_spans" in data or any(key.startswith(_FLAT) for key in flat)


def read_otlp(data: Mapping[str, Any], problems: Problems, where: str) -> list[Span]:
    """The spans of OTLP/JSON; log records are events of their span, or spans by themselves."""
    found: list[Span] = []
    for place, span in _scoped(data, _RESOURCES, "scopeSpans", "spans", problems, where):
        with problems.at(place):
            found.append(_otlp_span(record(span), place))
    known = {(span.trace_id, span.id): i for i, span in enumerate(found)}
    logged: dict[int, list[tuple[str, Any]]] = {}
    for place, entry in _scoped(data, _LOGS, "scopeLogs", "logRecords", problems, where):
        with problems.at(place):
            log = _log(record(entry), place)
            if (i := known.get((log.trace_id, log.id))) is not None:
                logged.setdefault(i, []).extend(log.events)
            elif log.events[0][0].startswith("gen_ai."):
                found.append(log)
    for i, events in logged.items():
        found[i] = replace(found[i], events=(*found[i].events, *events))
    return found


def _scoped(
    data: Mapping[str, Any],
    outer: tuple[str, ...],
    scopes: str,
    inner: str,
    problems: Problems,
    where: str,
) -> Iterator[tuple[str, Any]]:
    """The spans or records of all resources and scopes, each with its place."""
    snake = ("scope_spans", "spans") if inner == "spans" else ("scope_logs", "log_records")
    for key in outer:
        for i, resource in enumerate(items(data.get(key))):
            place = f"{where} {key}[{i}]".strip()
            with problems.at(place):
                given = first(record(resource), scopes, snake[0], "instrumentationLibrarySpans")
                for j, scope in enumerate(items(given)):
                    for k, each in enumerate(items(first(record(scope), inner, snake[1]))):
                        yield f"{place}.{scopes}[{j}].{inner}[{k}]", each


def _otlp_span(span: Mapping[str, Any], where: str) -> Span:
    events = [
        (text(first(event, "name")), tree(_attributes(mapping(event).get("attributes"))))
        for event in items(span.get("events"))
    ]
    return Span(
        id=_hex(first(span, "spanId", "span_id")) or where,
        trace_id=_hex(first(span, "traceId", "trace_id")),
        parent=_hex(first(span, "parentSpanId", "parent_span_id")),
        name=text(span.get("name")),
        kind="",
        attributes=tree(_attributes(span.get("attributes"))),
        events=tuple(events),
        started=when(first(span, "startTimeUnixNano", "start_time_unix_nano")),
        ended=when(first(span, "endTimeUnixNano", "end_time_unix_nano")),
        where=where,
    )


def _log(entry: Mapping[str, Any], where: str) -> Span:
    """A log record that is an event of a model call."""
    flat = _attributes(entry.get("attributes"))
    name = text(first(entry, "eventName", "event_name") or flat.get("event.name"))
    body = _value(entry.get("body"))
    attributes = tree({**flat, **(body if isinstance(body, Mapping) else {})})
    time = when(first(entry, "timeUnixNano", "observedTimeUnixNano"))
    span, trace = _hex(first(entry, "spanId", "span_id")), _hex(first(entry, "traceId", "trace_id"))
    return Span(
        span or where, trace, "", name, "", tree(flat), ((name, attributes),), time, None, where
    )


def read_span(
    data: Mapping[str, Any], problems: Problems, where: str, parent: str = "", depth: int = 0
) -> Iterator[Span]:
    """One span in any other form, and those inside it."""
    context = mapping(first(data, "context", "spanContext", "span_context"))
    own = first(data, "span_id", "spanId", "context.span_id") or first(context, "span_id", "spanId")
    start = when(first(data, "start_time", "startTime", "startTimeUnixNano", "timestamp"))
    end = when(first(data, "end_time", "endTime", "endTimeUnixNano"))
    around = first(data, "parent_id", "parentId", "parent_span_id", "parentSpanId")
    around = around or first(mapping(data.get("parentSpanContext")), "spanId")
    id_ = _hex(own) or text(data.get("id")) or where
    trace_id = first(data, "trace_id", "traceId", "context.trace_id")
    kind = first(data, "span_kind", "spanKind", "kind")
    yield Span(
        id=id_,
        trace_id=_hex(trace_id or first(context, "trace_id", "traceId")),
        parent=_hex(around) or parent,
        name=text(first(data, "name", "span_name", "spanName")),
        kind=kind if isinstance(kind, str) else "",
        attributes=_own_attributes(data),
        events=tuple(
            (text(first(event, "name")), tree(_attributes(first(event, "attributes"))))
            for event in items(data.get("events"))
            if isinstance(event, Mapping)
        ),
        started=start,
        ended=end or later(start, data.get("duration")),
        where=where,
    )
    children = items(first(data, "child_spans", "children"))
    if children and depth >= _DEEPEST:
        problems.add(where, "spans are nested too deeply; the inner ones are left out")
        return
    for i, child in enumerate(children):
        place = f"{where}.child_spans[{i}]"
        with problems.at(place):
            yield from read_span(record(child), problems, place, id_, depth + 1)


def _own_attributes(data: Mapping[str, Any]) -> Any:
    """The attributes of a span, which in a table have columns of their own."""
    given = first(data, *_ATTRIBUTES)
    if given is not None:
        return tree(_attributes(given))
    columns = {key: value for key, value in data.items() if isinstance(key, str)}
    prefix = "attributes."
    named = {key.removeprefix(prefix): v for key, v in columns.items() if key.startswith(prefix)}
    return tree(named or columns)


def _attributes(given: Any) -> Mapping[str, Any]:
    """Attributes as a mapping: OTLP has a list of keys and typed values."""
    if isinstance(given, list):
        return {
            text(pair.get("key")): _value(pair.get("value"))
            for pair in given
            if isinstance(pair, Mapping)
        }
    return mapping(given)


def _value(value: Any) -> Any:
    """A typed value of OTLP/JSON, such as ``{"stringValue": "x"}``."""
    if not isinstance(value, Mapping):
        return value
    if "arrayValue" in value:
        return [_value(each) for each in items(mapping(value["arrayValue"]).get("values"))]
    if "kvlistValue" in value:
        return _attributes(items(mapping(value["kvlistValue"]).get("values")))
    typed = [given for key, given in value.items() if str(key).endswith("Value")]
    return typed[0] if len(typed) == 1 == len(value) else value


def _hex(value: Any) -> str:
    """An id; protobuf's own JSON has it as Base64 where OTLP has hexadecimal digits."""
    given = text(value).removeprefix("0x")
    if len(given) in (12, 24) and given.endswith("="):
        try:
            return base64.b64decode(given, validate=True).hex()
        except (binascii.Error, ValueError):
            return given
    return given
