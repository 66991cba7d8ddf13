"""Exports of Langfuse and LangSmith: records with an input and an output each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ropelime.traces.attributes import KINDS, read_documents
from ropelime.traces.exchange import read_answer, read_exchange, read_request
from ropelime.traces.steps import Kind, Step, ToolCall
from ropelime.traces.values import Problems, first, items, mapping, parsed, record, text, when

_TYPES = ("GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR",
          "EMBEDDING", "GUARDRAIL")  # fmt: skip
_DEEPEST = 200  # levels of runs within runs


def is_langfuse(data: Mapping[str, Any]) -> bool:
    """Whether data is a trace with observations, or one observation, of Langfuse."""
    if isinstance(data.get("observations"), list) and data["observations"]:
        return any(isinstance(each, Mapping) for each in data["observations"])
    return data.get("type") in _TYPES and ("traceId" in data or "trace_id" in data)


def is_digest(data: Mapping[str, Any]) -> bool:
    """Whether data is what Langfuse reads out of an observation: messages in and messages out."""
    sides = [data[key] for key in ("input", "output") if key in data]
    return bool(sides) and all(isinstance(each, Mapping) and "success" in each for each in sides)


def is_langsmith(data: Mapping[str, Any]) -> bool:
    """Whether data is a run of LangSmith, or a batch of them as its SDK sends it."""
    if isinstance(data.get("run_type"), str):
        return True
    return any(isinstance(data.get(key), list) for key in ("post", "patch"))


def read_langfuse(data: Mapping[str, Any], problems: Problems, where: str) -> Iterator[Step]:
    """The observations of a trace as steps."""
    observations = items(data.get("observations")) or [data]
    for i, each in enumerate(observations):
        place = f"{where} observations[{i}]".strip() if len(observations) > 1 else where
        with problems.at(place):
            about = record(each)
            name = text(first(about, "name"))
            kind = KINDS.get(text(about.get("type")).lower(), "other")
            yield Step(
                id=text(first(about, "id")) or place,
                kind=kind,
                model=text(first(about, "model", "providedModelName", "provided_model_name")),
                started=when(first(about, "startTime", "start_time")),
                ended=when(first(about, "endTime", "end_time")),
                parent=text(first(about, "parentObservationId", "parent_observation_id")),
                trace_id=text(first(about, "traceId", "trace_id")),
                where=place,
                **{"name": name, **filled(kind, name, *_sides(about), problems, place)},
            )


def _sides(about: Mapping[str, Any]) -> tuple[Any, Any]:
    """Input and output of an observation; OpenTelemetry's are in the metadata where it has none."""
    attributes = mapping(mapping(about.get("metadata")).get("attributes"))
    sent, received = about.get("input"), about.get("output")
    sent = attributes.get("input.value") if sent is None else sent
    return sent, attributes.get("output.value") if received is None else received


def read_digest(data: Mapping[str, Any], problems: Problems, where: str) -> Iterator[Step]:
    """Messages in and messages out of one observation."""
    sent, received = (mapping(data.get(side)).get("data") for side in ("input", "output"))
    for side in ("input", "output"):
        if mapping(data.get(side)).get("success") is False:
            problems.add(where, f"Langfuse has found no messages in its {side}")
    yield Step(where, "model", where=where, **filled("model", "", sent, received, problems, where))


def read_langsmith(records: list[tuple[str, Mapping[str, Any]]], problems: Problems) -> Iterator[Step]:
    """Runs as steps; a run that is sent in parts is put together again."""
    runs: dict[str, dict[str, Any]] = {}
    for where, given in records:
        parts = [*items(given.get("post")), *items(given.get("patch"))]
        for i, run in enumerate(parts if "run_type" not in given else [given]):
            place = f"{where} run {i + 1}".strip() if parts else where
            with problems.at(place):
                _collect(runs, record(run), place, "", 0, problems)
    for run in runs.values():
        with problems.at(run["where"]):
            yield _run(run, problems)


def _collect(
    runs: dict[str, dict[str, Any]],
    run: Mapping[str, Any],
    where: str,
    parent: str,
    depth: int,
    problems: Problems,
) -> None:
    """Add a run and those inside it; the order in the trace identifies one that has no id."""
    order = text(run.get("dotted_order"))
    name = text(run.get("id")) or order.rpartition(".")[2].partition("Z")[2] or where
    above = order.split(".")[-2:-1]  # the run around it, where only the order says so
    parent = parent or "".join(above).partition("Z")[2]
    known = runs.setdefault(name, {"where": where, "parent_run_id": parent, "id": name})
    known.update({key: value for key, value in run.items() if value not in (None, {}, [], "")})
    children = items(run.get("child_runs"))
    if children and depth >= _DEEPEST:
        problems.add(where, "runs are nested too deeply; the inner ones are left out")
        return
    for i, child in enumerate(children):
        place = f"{where}.child_runs[{i}]"
        with problems.at(place):
            _collect(runs, record(child), place, name, depth + 1, problems)


def _run(run: Mapping[str, Any], problems: Problems) -> Step:
    name, where = text(run.get("name")), text(run["where"])
    kind = KINDS.get(text(run.get("run_type")).lower(), "other")
    extra = mapping(run.get("extra"))
    model = first(mapping(run.get("outputs")), "model", "model_name")
    model = model or first(mapping(extra.get("metadata")), "ls_model_name")
    model = model or first(mapping(extra.get("invocation_params")), "model", "model_name")
    return Step(
        id=text(run["id"]),
        kind=kind,
        model=text(model) if kind == "model" else "",
        started=when(run.get("start_time")),
        ended=when(run.get("end_time")),
        parent=text(run.get("parent_run_id")),
        trace_id=text(run.get("trace_id")),
        where=where,
        **{
            "name": name,
            **filled(kind, name, run.get("inputs"), run.get("outputs"), problems, where),
        },
    )


def filled(
    kind: Kind, name: str, sent: Any, received: Any, problems: Problems, where: str
) -> dict[str, Any]:
    """The fields of a step that are in an input and an output."""
    if kind == "model":
        messages, answer = read_exchange(sent, received, problems, where)
        return {
            "messages": messages,
            "text": answer.content,
            "calls": answer.tool_calls,
            "reasoning": answer.reasoning,
        }
    result = read_answer(received, Problems()).content if received is not None else ""
    if kind == "tool":
        given = parsed(sent)
        inner = first(given, "input") if isinstance(given, Mapping) and len(given) == 1 else None
        call = ToolCall("", name, text(inner if inner is not None else sent))
        return {"calls": (call,), "text": result or _plain(received)}
    messages = read_request(sent, Problems()) if sent is not None else ()
    if kind == "retrieval":
        returned = parsed(received)
        documents = read_documents(first(returned, "documents", "output") or returned)
        written = "\n\n".join(document.text for document in documents)
        return {"messages": messages, "documents": documents, "text": written or _plain(received)}
    return {"messages": messages, "text": result or _plain(received)}


def _plain(received: Any) -> str:
    """What came back, as text; an object with an output and nothing else is that output."""
    returned = parsed(received)
    if isinstance(returned, Mapping) and len(returned) == 1:
        inner = first(returned, "output", "content", "result")
        received = received if inner is None else inner
    return text(received)
