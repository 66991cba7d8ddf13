"""What the attributes of a span say: OpenInference, OpenTelemetry GenAI, and Vercel's AI SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropelime.traces.exchange import instructions, read_answer, read_exchange, read_request
from ropelime.traces.messages import read_messages, together
from ropelime.traces.spans import Span
from ropelime.traces.steps import Document, Kind, Message, Step, ToolCall
from ropelime.traces.values import Problems, at, first, found, items, mapping, parsed, text

KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        ("llm", "chat", "completion", "text_completion", "generate_content", "generation", "doGenerate",
         "doStream"),
        "model",
    ),
    **dict.fromkeys(("tool", "execute_tool", "toolCall"), "tool"),
    **dict.fromkeys(("retriever", "reranker", "retrieval"), "retrieval"),
    **dict.fromkeys(
        ("agent", "invoke_agent", "create_agent", "workflow", "invoke_workflow", "generateText",
         "streamText", "generateObject", "streamObject"),
        "agent",
    ),
    **dict.fromkeys(
        ("chain", "task", "embedding", "embeddings", "guardrail", "evaluator", "parser", "span",
         "event", "prompt", "unknown", "embed", "doEmbed"),
        "other",
    ),
}  # fmt: skip
_MODELS = ("llm.model_name", "gen_ai.response.model", "gen_ai.request.model", "ai.response.model",
           "ai.model.id", "embedding.model_name")  # fmt: skip
_SAID = (
    "openinference.span.kind", "gen_ai.operation.name", "ai.operationId", "traceloop.span.kind",
    "langfuse.observation.type", "llm.request.type",
)  # fmt: skip
_INPUTS = ("input.value", "input", "traceloop.entity.input", "ai.prompt")
_OUTPUTS = ("output.value", "output", "traceloop.entity.output", "ai.response.text",
            "ai.response.object")  # fmt: skip
_PROMPTS = ("llm.input_messages", "gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages")
_ANSWERS = ("llm.output_messages", "gen_ai.output.messages", "gen_ai.completion")
_SPOKEN = ("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message",
           "gen_ai.tool.message", "gen_ai.content.prompt")  # fmt: skip


def step(span: Span, problems: Problems) -> Step:
    """A span as a step."""
    kind = kind_of(span)
    read = {"model": _model, "tool": _tool, "retrieval": _retrieval}.get(kind, _other)
    return Step(
        id=span.id,
        kind=kind,
        model=text(found(span.attributes, *_MODELS)),
        started=span.started,
        ended=span.ended,
        parent=span.parent,
        trace_id=span.trace_id,
        where=span.where,
        **{"name": span.name, **read(span, problems)},
    )


def kind_of(span: Span) -> Kind:
    """What a span is: what it says itself, or what its attributes are about."""
    for said in (*(at(span.attributes, path) for path in _SAID), span.kind):
        name = said.rpartition(".")[2] if isinstance(said, str) else ""
        if kind := KINDS.get(name) or KINDS.get(name.lower()):
            return kind
    if found(span.attributes, *_PROMPTS, *_ANSWERS) or _events(span, *_SPOKEN):
        return "model"
    if found(span.attributes, "gen_ai.tool.name", "tool.name"):
        return "tool"
    return "retrieval" if found(span.attributes, "retrieval.documents") else "other"


def _events(span: Span, *names: str) -> list[tuple[str, Any]]:
    return [(name, attributes) for name, attributes in span.events if name in names]


def _model(span: Span, problems: Problems) -> dict[str, Any]:
    data, where = span.attributes, span.where
    details = _events(span, "gen_ai.client.inference.operation.details")
    merged = [data, *(attributes for _, attributes in details)]
    prompt = next((p for tree in merged if (p := found(tree, *_PROMPTS))), None)
    given = next((a for tree in merged if (a := found(tree, *_ANSWERS))), None)
    received = found(data, *_OUTPUTS)
    messages, answer = read_exchange(found(data, *_INPUTS), received, Problems(), where)
    if prompt is not None:
        messages = read_request(prompt, problems, f"{where} input")
    elif spoken := _events(span, *_SPOKEN):
        messages = read_messages([_event_message(*event) for event in spoken], problems, where)
    system = next((s for tree in merged if (s := at(tree, "gen_ai.system_instructions"))), None)
    if system is not None:
        messages = (*instructions(system, problems, where), *messages)
    if given is not None:
        answer = read_answer(given, problems, f"{where} output")
    elif chosen := _events(span, "gen_ai.choice", "gen_ai.content.completion"):
        answer = together(tuple(_chosen(attributes, problems, where) for _, attributes in chosen[:1]))
    elif written := _vercel(data):
        answer = read_answer(written, problems, f"{where} output")
    return {
        "messages": messages,
        "text": answer.content,
        "calls": answer.tool_calls,
        "reasoning": answer.reasoning,
    }


def _event_message(name: str, attributes: Any) -> Any:
    """A message that is an event: its role is in its name, and older ones hold a whole prompt."""
    if name == "gen_ai.content.prompt":
        inner = items(at(attributes, "gen_ai.prompt"))
        return inner or text(at(attributes, "gen_ai.prompt"))
    content = mapping(attributes)
    role = name.split(".")[1]
    named = {"role": role, "tool_call_id": content.get("id")} if role == "tool" else {"role": role}
    return {**named, **{key: parsed(value) for key, value in content.items() if key != "gen_ai"}}


def _chosen(attributes: Any, problems: Problems, where: str) -> Message:
    written = at(attributes, "gen_ai.completion") or first(attributes, "message") or attributes
    return read_answer(written, problems, where)


def _vercel(data: Any) -> Mapping[str, Any] | None:
    """The answer in the attributes of Vercel's AI SDK."""
    response = at(data, "ai.response")
    if not isinstance(response, Mapping):
        return None
    content = first(response, "text", "object")
    calls = items(response.get("toolCalls"))
    thought = text(first(response, "reasoning"))
    if content is None and not calls:
        return None
    return {
        "role": "assistant",
        "content": text(content),
        "tool_calls": calls,
        "reasoning_content": thought,
    }


def _tool(span: Span, problems: Problems) -> dict[str, Any]:
    data = span.attributes
    name = found(data, "tool.name", "gen_ai.tool.name", "tool_call.function.name", "ai.toolCall.name",
                 "traceloop.entity.name")  # fmt: skip
    arguments = found(data, "gen_ai.tool.call.arguments", "tool_call.function.arguments",
                      "ai.toolCall.args", *_INPUTS)  # fmt: skip
    result = found(data, "gen_ai.tool.call.result", "ai.toolCall.result", *_OUTPUTS)
    id_ = text(found(data, "gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id"))
    call = ToolCall(id_, text(name) or span.name, text(arguments))
    return {"name": call.name, "calls": (call,), "text": text(result)}


def _retrieval(span: Span, problems: Problems) -> dict[str, Any]:
    data = span.attributes
    given = found(
        data, "retrieval.documents", "gen_ai.retrieval.documents", "reranker.output_documents"
    )
    documents = read_documents(given)
    query = found(data, "reranker.query", "gen_ai.retrieval.query.text", *_INPUTS)
    written = "\n\n".join(document.text for document in documents)
    return {
        "messages": read_messages(text(query) if query else None, problems, span.where),
        "documents": documents,
        "text": written or text(found(data, *_OUTPUTS)),
    }


def read_documents(given: Any) -> tuple[Document, ...]:
    """Retrieved documents, as OpenInference, LangChain and OpenTelemetry have them."""
    read = []
    for each in items(given):
        inner = mapping(mapping(each).get("document") or mapping(each).get("kwargs") or each)
        about = mapping(inner.get("metadata"))
        score = inner.get("score")
        read.append(
            Document(
                text(first(inner, "content", "page_content", "pageContent", "text")),
                text(first(inner, "id")),
                text(first(about, "source", "file_name", "file_path", "url", "title")),
                float(score) if isinstance(score, float) else None,
            )
        )
    return tuple(read)


def _other(span: Span, problems: Problems) -> dict[str, Any]:
    """What an agent or a chain was given and what it returned; neither need be messages."""
    sent = found(span.attributes, "gen_ai.input.messages", *_INPUTS)
    received = found(span.attributes, "gen_ai.output.messages", *_OUTPUTS)
    quiet = Problems()
    written = read_answer(received, quiet).content if received is not None else ""
    return {
        "messages": read_request(sent, quiet) if sent is not None else (),
        "text": written or text(received),
    }
