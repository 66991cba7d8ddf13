"""Results for the tool that a trace came from: annotations for Phoenix, and spans for OpenTelemetry.

The names are those of OpenInference's span annotations (``POST /v1/span_annotations``) and of the
event ``gen_ai.evaluation.result`` in OpenTelemetry's conventions for generative AI, as of November
2026.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ropelime._version import __version__
from ropelime.errors import InputError

EVENT = "gen_ai.evaluation.result"
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_SPAN_ID = re.compile(r"[0-9a-fA-F]{16}")


@dataclass(frozen=True)
class Judged:
    """One result about one span.

    Attributes:
        span_id: The span, by its id in the trace.
        trace_id: The trace that it is in.
        name: What was judged, such as ``"caused_by"``.
        label: The verdict, one of a few words; empty if there is none.
        score: A number, such as a share; None if there is none.
        explanation: The reason, for people.
        metadata: Anything else, as JSON data.
    """

    span_id: str
    trace_id: str
    name: str
    label: str = ""
    score: float | None = None
    explanation: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.span_id or not self.name:
            raise InputError("A result needs a span_id and a name.")
        if not self.label and self.score is None and not self.explanation:
            raise InputError(
                f"The result {self.name!r} has neither a label, a score nor an explanation."
            )
        if self.score is not None and not math.isfinite(self.score):
            raise InputError(f"The score of {self.name!r} is {self.score}; it must be finite.")


def annotation(judged: Judged) -> dict[str, Any]:
    """A result as an annotation of Phoenix; another one by us on the same span replaces it."""
    result = {"label": judged.label, "score": judged.score, "explanation": judged.explanation}
    return {
        "span_id": judged.span_id,
        "name": judged.name,
        "annotator_kind": "CODE",
        "result": {key: value for key, value in result.items() if value not in ("", None)},
        "metadata": {**judged.metadata, "trace_id": judged.trace_id, "ropelime": __version__},
        "identifier": "ropelime",
    }


def annotation_lines(results: Iterable[Judged]) -> str:
    """Annotations as JSON lines."""
    return "".join(_json(annotation(judged)) + "\n" for judged in results)


def otlp(results: Iterable[Judged], *, nanoseconds: int | None = None) -> dict[str, Any]:
    """Results as OTLP/JSON: for each judged span a new one, with a link to it and an event a result.

    The new span is a child of the judged one, as the conventions ask of its events. Its id depends on
    the judged span alone, so that a file that is sent twice gives one span.

    Args:
        results: The results; their ids must be those of OpenTelemetry.
        nanoseconds: When they were made, since 1970; now if not given.
    """
    now = time.time_ns() if nanoseconds is None else nanoseconds
    spans: dict[tuple[str, str], list[Judged]] = {}
    for judged in results:
        _check_ids(judged)
        spans.setdefault((judged.trace_id.lower(), judged.span_id.lower()), []).append(judged)
    scope = {"name": "ropelime", "version": __version__}
    made = [_span(*ids, own, str(now)) for ids, own in spans.items()]
    resource = {"attributes": [_attribute("service.name", "ropelime")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": made}]}]}


def otlp_json(results: Iterable[Judged], *, nanoseconds: int | None = None) -> str:
    """The same as the text of a file."""
    return _json(otlp(results, nanoseconds=nanoseconds)) + "\n"


def _json(data: Any) -> str:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The metadata of a result must be JSON data: {error}.") from None


def _check_ids(judged: Judged) -> None:
    if _TRACE_ID.fullmatch(judged.trace_id) and _SPAN_ID.fullmatch(judged.span_id):
        return
    raise InputError(
        f"OpenTelemetry needs a trace id of 32 and a span id of 16 hexadecimal digits, not "
        f"{judged.trace_id!r} and {judged.span_id!r}. Write annotations instead: they take any id."
    )


def _span(trace_id: str, span_id: str, results: list[Judged], now: str) -> dict[str, Any]:
    own = hashlib.sha256(f"ropelime {trace_id} {span_id}".encode()).hexdigest()[:16]
    return {
        "traceId": trace_id,
        "spanId": own,
        "parentSpanId": span_id,
        "name": "ropelime.explain",
        "kind": 1,  # internal
        "startTimeUnixNano": now,
        "endTimeUnixNano": now,
        "attributes": [_attribute("openinference.span.kind", "EVALUATOR")],
        "events": [_event(judged, now) for judged in results],
        "links": [{"traceId": trace_id, "spanId": span_id, "attributes": []}],
        "status": {},
    }


def _event(judged: Judged, now: str) -> dict[str, Any]:
    attributes = [_attribute("gen_ai.evaluation.name", judged.name)]
    if judged.score is not None:
        attributes.append(_attribute("gen_ai.evaluation.score.value", float(judged.score)))
    if judged.label:
        attributes.append(_attribute("gen_ai.evaluation.score.label", judged.label))
    if judged.explanation:
        attributes.append(_attribute("gen_ai.evaluation.explanation", judged.explanation))
    if judged.metadata:
        attributes.append(_attribute("ropelime.metadata", _json(dict(judged.metadata))))
    return {"name": EVENT, "timeUnixNano": now, "attributes": attributes}


def _attribute(key: str, value: str | float) -> dict[str, Any]:
    kind = "stringValue" if isinstance(value, str) else "doubleValue"
    return {"key": key, "value": {kind: value}}
