"""One small run in every form that is read: a question, a tool call, its result, and an answer.

Each sample has two model calls. The first gets SYSTEM and USER and calls the tool; the second gets
all of that and the result, and answers. Forms that keep reasoning have THOUGHT before the answer.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

SYSTEM = "You pay bills, carefully."
USER = "Please pay the rent for June."
CALL_ID = "call_7"
TOOL = "find_bill"
ARGUMENTS: dict[str, Any] = {"month": "June", "nth": 1}
RESULT = "Rent for June: 900, to Holm & Co."
THOUGHT = "The bill names Holm."
ANSWER = "I have paid 900 to Holm & Co."
MODEL = "gpt-x"
T0 = 1_780_000_000  # seconds; each step takes two

Data = dict[str, Any]
TEXT_ARGUMENTS = json.dumps(ARGUMENTS)


def openai(*, reasoning: bool = True) -> list[Data]:
    """Messages of the Chat Completions API."""
    function = {"name": TOOL, "arguments": TEXT_ARGUMENTS}
    call = {"id": CALL_ID, "type": "function", "function": function}
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": USER}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": CALL_ID, "content": RESULT},
        {
            "role": "assistant",
            "content": ANSWER,
            **({"reasoning_content": THOUGHT} if reasoning else {}),
        },
    ]


def responses() -> list[Data]:
    """Items of the Responses API."""
    return [
        {"role": "developer", "content": SYSTEM},
        {"role": "user", "content": [{"type": "input_text", "text": USER}]},
        {"type": "function_call", "call_id": CALL_ID, "name": TOOL, "arguments": TEXT_ARGUMENTS},
        {"type": "function_call_output", "call_id": CALL_ID, "output": RESULT},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": ANSWER}],
        },
    ]


def anthropic() -> Data:
    """A request of the Messages API with its response."""
    use = {"type": "tool_use", "id": CALL_ID, "name": TOOL, "input": ARGUMENTS}
    result = {
        "type": "tool_result",
        "tool_use_id": CALL_ID,
        "content": [{"type": "text", "text": RESULT}],
    }
    blocks = [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}]
    return {
        "request": {
            "model": MODEL,
            "system": [{"type": "text", "text": SYSTEM}],
            "messages": [
                {"role": "user", "content": USER},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result]},
            ],
        },
        "response": {"type": "message", "role": "assistant", "content": blocks},
    }


def gemini() -> Data:
    """A request to Gemini with its response."""
    return {
        "model": MODEL,
        "systemInstruction": {"parts": [{"text": SYSTEM}]},
        "contents": [
            {"role": "user", "parts": [{"text": USER}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"id": CALL_ID, "name": TOOL, "args": ARGUMENTS}}],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": CALL_ID, "name": TOOL, "response": RESULT}},
                ],
            },
        ],
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"text": THOUGHT, "thought": True}, {"text": ANSWER}],
                }
            }
        ],
    }


def agentdojo() -> Data:
    """A run of AgentDojo."""

    def text(content: str) -> list[Data]:
        return [{"type": "text", "content": content}]

    call = {"function": TOOL, "args": ARGUMENTS, "id": CALL_ID, "placeholder_args": None}
    return {
        "suite_name": "bills",
        "pipeline_name": MODEL,
        "user_task_id": "user_task_0",
        "injection_task_id": None,
        "messages": [
            {"role": "system", "content": text(SYSTEM)},
            {"role": "user", "content": text(USER)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "content": text(RESULT),
                "tool_call_id": CALL_ID,
                "tool_call": call,
                "error": None,
            },
            {"role": "assistant", "content": text(ANSWER), "tool_calls": []},
        ],
        "utility": True,
    }


def tau_bench() -> list[Data]:
    """Runs of tau-bench."""
    return [{"task_id": 3, "trial": 0, "reward": 1.0, "info": {}, "traj": openai(reasoning=False)}]


def _flat(prefix: str, messages: list[Data]) -> Data:
    """Messages as flattened attributes of OpenInference."""
    flat: Data = {}
    for i, message in enumerate(messages):
        at = f"{prefix}.{i}.message"
        flat[f"{at}.role"] = message["role"]
        content = message["content"]
        if isinstance(content, list):
            flat[f"{at}.contents.0.message_content.type"] = "text"
            flat[f"{at}.contents.0.message_content.text"] = content[0]["text"]
        elif content:
            flat[f"{at}.content"] = content
        for j, call in enumerate(message.get("tool_calls", [])):
            inner = f"{at}.tool_calls.{j}.tool_call"
            flat[f"{inner}.id"] = call["id"]
            flat[f"{inner}.function.name"] = call["function"]["name"]
            flat[f"{inner}.function.arguments"] = call["function"]["arguments"]
        if "tool_call_id" in message:
            flat[f"{at}.tool_call_id"] = message["tool_call_id"]
    return flat


def _calls() -> list[tuple[str, list[Data], Data]]:
    """The two model calls: a span id, the prompt and the answer."""
    messages = openai(reasoning=False)
    return [("b1", messages[:2], messages[2]), ("b3", messages[:4], messages[4])]


def openinference() -> list[Data]:
    """Spans as Phoenix gives them, with an agent around them, a tool and a retrieval."""

    def span(name: str, kind: str, parent: str | None, i: int, attributes: Data) -> Data:
        return {
            "name": name,
            "context": {"trace_id": "t1", "span_id": name},
            "span_kind": kind,
            "parent_id": parent,
            "start_time": f"2026-06-01T10:00:0{i}+00:00",
            "end_time": f"2026-06-01T10:00:0{i + 2}+00:00",
            "attributes": attributes,
        }

    spans = [
        span(
            name, "LLM", "b0", 2 * i + 1,
            {
                "llm.model_name": MODEL,
                "input.value": "{}",
                **_flat("llm.input_messages", prompt),
                **_flat("llm.output_messages", [answer]),
            },
        )
        for i, (name, prompt, answer) in enumerate(_calls())
    ]  # fmt: skip
    tool = {"tool.name": TOOL, "tool_call.id": CALL_ID}
    tool |= {"input.value": TEXT_ARGUMENTS, "output.value": RESULT}
    documents = {
        "input.value": "rent",
        "retrieval.documents.0.document.content": "Holm & Co. owns the house.",
        "retrieval.documents.0.document.id": "d1",
        "retrieval.documents.0.document.score": 0.5,
        "retrieval.documents.0.document.metadata": '{"source": "lease.txt"}',
    }
    agent = span("b0", "AGENT", None, 0, {"input.value": USER, "output.value": ANSWER})
    found = span("b4", "RETRIEVER", "b0", 5, documents)
    return [*reversed(spans), span("b2", "TOOL", "b0", 2, tool), found, agent]


def nested_openinference() -> Data:
    """Spans within spans, with nested attributes (TRAIL's layout)."""
    children: list[Data] = []
    for name, prompt, answer in _calls():
        call = answer.get("tool_calls")
        spoken = {"role": "assistant", "content": answer["content"]}
        if call:
            spoken["tool_calls"] = [{"tool_call": call[0]}]
        given = [
            {**m, "tool_calls": [{"tool_call": c} for c in m["tool_calls"]]} if "tool_calls" in m else m
            for m in prompt
        ]
        children.append(
            {
                "span_id": name,
                "trace_id": "t1",
                "timestamp": f"2026-06-01T10:00:0{len(children)}.123456789Z",
                "duration": "PT2S",
                "span_name": "call",
                "span_attributes": {
                    "openinference": {"span": {"kind": "LLM"}},
                    "llm": {
                        "model_name": MODEL,
                        "input_messages": [{"message": m} for m in given],
                        "output_messages": [{"message": spoken}],
                    },
                },
                "child_spans": [],
            }
        )
    root: Data = {
        "span_id": "b0",
        "trace_id": "t1",
        "timestamp": "2026-06-01T10:00:00Z",
        "duration": "PT9S",
    }
    root |= {"span_name": "main", "span_attributes": {}, "child_spans": children}
    return {"trace_id": "t1", "spans": [root]}


def _parts(message: Data) -> Data:
    """A message as OpenTelemetry has it."""
    content = message["content"]
    parts: list[Data] = []
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": message["reasoning_content"]})
    if message["role"] == "tool":
        parts.append({"type": "tool_call_response", "id": CALL_ID, "response": content})
    elif content:
        given = content if isinstance(content, str) else content[0]["text"]
        parts.append({"type": "text", "content": given})
    for call in message.get("tool_calls", []):
        parts.append({"type": "tool_call", "id": call["id"], "name": TOOL, "arguments": ARGUMENTS})
    return {"role": message["role"], "parts": parts}


def _otlp(spans: list[Data]) -> Data:
    typed = [
        {**span, "attributes": [{"key": k, "value": v} for k, v in span["attributes"].items()]}
        for span in spans
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": typed}]}]}


def _otlp_span(name: str, i: int, attributes: Data) -> Data:
    return {
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "spanId": f"00f067aa0ba902{name}",
        "name": f"chat {MODEL}",
        "startTimeUnixNano": str((T0 + 2 * i) * 10**9),
        "endTimeUnixNano": str((T0 + 2 * i + 2) * 10**9),
        "attributes": attributes,
    }


def otel() -> Data:
    """OpenTelemetry GenAI attributes in OTLP/JSON, with a tool execution."""
    messages = openai()
    spans = []
    for i, (start, end) in enumerate([(1, 2), (1, 4)]):
        attributes = {
            "gen_ai.operation.name": {"stringValue": "chat"},
            "gen_ai.request.model": {"stringValue": MODEL},
            "gen_ai.system_instructions": {
                "stringValue": json.dumps([{"type": "text", "content": SYSTEM}])
            },
            "gen_ai.input.messages": {
                "stringValue": json.dumps([_parts(m) for m in messages[start:end]])
            },
            "gen_ai.output.messages": {"stringValue": json.dumps([_parts(messages[end])])},
            "gen_ai.response.finish_reasons": {"arrayValue": {"values": [{"stringValue": "stop"}]}},
        }
        spans.append(_otlp_span(f"b{2 * i + 1}", 2 * i, attributes))
    tool = {
        "gen_ai.operation.name": {"stringValue": "execute_tool"},
        "gen_ai.tool.name": {"stringValue": TOOL},
        "gen_ai.tool.call.id": {"stringValue": CALL_ID},
        "gen_ai.tool.call.arguments": {"stringValue": TEXT_ARGUMENTS},
        "gen_ai.tool.call.result": {"stringValue": RESULT},
    }
    return _otlp([*spans, _otlp_span("b2", 1, tool)])


def otel_deprecated() -> Data:
    """The numbered attributes that came before."""
    spans = []
    for i, (name, prompt, answer) in enumerate(_calls()):
        attributes: Data = {"gen_ai.request.model": {"stringValue": MODEL}}
        for prefix, messages in (("gen_ai.prompt", prompt), ("gen_ai.completion", [answer])):
            for j, message in enumerate(messages):
                at = f"{prefix}.{j}"
                content = message["content"]
                content = content[0]["text"] if isinstance(content, list) else content or ""
                given = {"role": message["role"], "content": content}
                given["tool_call_id"] = message.get("tool_call_id")
                for k, call in enumerate(message.get("tool_calls", [])):
                    given[f"tool_calls.{k}.id"] = call["id"]
                    given[f"tool_calls.{k}.name"] = TOOL
                    given[f"tool_calls.{k}.arguments"] = TEXT_ARGUMENTS
                attributes |= {f"{at}.{key}": {"stringValue": v} for key, v in given.items() if v}
        spans.append(_otlp_span(name, 2 * i, attributes))
    return _otlp(spans)


def otel_events() -> Data:
    """Messages as events of the span."""
    spans = []
    for i, (name, prompt, answer) in enumerate(_calls()):
        span = _otlp_span(name, 2 * i, {"gen_ai.request.model": {"stringValue": MODEL}})
        span["events"] = []
        for message in prompt:
            content = message["content"]
            body: Data = {"content": content[0]["text"] if isinstance(content, list) else content}
            if "tool_calls" in message:
                body = {"tool_calls": json.dumps(message["tool_calls"])}
            if message["role"] == "tool":
                body["id"] = CALL_ID
            span["events"].append(_event(f"gen_ai.{message['role']}.message", body))
        choice = {"index": "0", "message": json.dumps(answer)}
        span["events"].append(_event("gen_ai.choice", choice))
        spans.append(span)
    return _otlp(spans)


def _event(name: str, body: Data) -> Data:
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in body.items()]
    return {"name": name, "timeUnixNano": "0", "attributes": attributes}


def otel_logs() -> Data:
    """Events as log records, beside spans that have no content."""
    messages = [_parts(message) for message in openai()]
    records, spans = [], []
    for i, (name, end) in enumerate([("b1", 2), ("b3", 4)]):
        span = _otlp_span(name, 2 * i, {"gen_ai.operation.name": {"stringValue": "chat"}})
        body = {
            "gen_ai.request.model": MODEL,
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]),
            "gen_ai.input.messages": json.dumps(messages[1:end]),
            "gen_ai.output.messages": json.dumps([messages[end]]),
        }
        records.append(
            {
                "traceId": span["traceId"],
                "spanId": span["spanId"],
                "eventName": "gen_ai.client.inference.operation.details",
                "attributes": _event("", body)["attributes"],
            }
        )
        spans.append(span)
    return {**_otlp(spans), "resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}


def langfuse() -> Data:
    """A trace with its observations, the newest first; input and output are JSON text."""
    observations = [
        {
            "id": name,
            "traceId": "t1",
            "type": "GENERATION",
            "name": "call",
            "model": MODEL,
            "parentObservationId": "b0",
            "startTime": f"2026-06-01T10:00:0{2 * i}.500Z",
            "endTime": f"2026-06-01T10:00:0{2 * i + 2}.500Z",
            "input": json.dumps({"messages": prompt}),
            "output": json.dumps(answer),
        }
        for i, (name, prompt, answer) in enumerate(_calls())
    ]
    tool: Data = {
        "id": "b2",
        "traceId": "t1",
        "type": "TOOL",
        "name": TOOL,
        "parentObservationId": "b0",
    }
    tool |= {"startTime": "2026-06-01T10:00:01.000Z", "endTime": None}
    tool |= {"input": TEXT_ARGUMENTS, "output": RESULT}
    return {"trace": {"id": "t1", "name": "bills"}, "observations": [*reversed(observations), tool]}


def langsmith() -> Data:
    """A batch as the SDK sends it, with LangChain's messages; the answers come in patches."""

    def message(given: Data) -> Data:
        names = {
            "system": "SystemMessage", "user": "HumanMessage", "assistant": "AIMessage",
            "tool": "ToolMessage",
        }  # fmt: skip
        kwargs: Data = {"content": given["content"] or ""}
        if "tool_calls" in given:
            kwargs["tool_calls"] = [{"name": TOOL, "args": ARGUMENTS, "id": CALL_ID}]
        if "tool_call_id" in given:
            kwargs["tool_call_id"] = given["tool_call_id"]
        path = ["langchain", "schema", "messages", names[given["role"]]]
        return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}

    post, patch = [], []
    for i, (name, prompt, answer) in enumerate(_calls()):
        post.append(
            {
                "id": name,
                "trace_id": "t1",
                "run_type": "llm",
                "name": "ChatX",
                "start_time": (T0 + 2 * i) * 1000,
                "inputs": {"messages": [[message(m) for m in prompt]]},
                "extra": {"metadata": {"ls_model_name": MODEL}},
                "outputs": {},
            }
        )
        generation = {"text": answer["content"] or "", "message": message(answer)}
        patch.append(
            {
                "id": name,
                "end_time": (T0 + 2 * i + 2) * 1000,
                "outputs": {"generations": [[generation]]},
            }
        )
    tool: Data = {"id": "b2", "trace_id": "t1", "run_type": "tool", "name": TOOL}
    tool |= {"start_time": (T0 + 1) * 1000, "inputs": {"input": TEXT_ARGUMENTS}}
    return {"post": [*post, {**tool, "outputs": {"output": RESULT}}], "patch": patch}


def _inspect_message(given: Data) -> Data:
    message = dict(given)
    if "tool_calls" in given:
        call = {"id": CALL_ID, "function": TOOL, "arguments": ARGUMENTS, "type": "function"}
        message["tool_calls"] = [call]
        message["content"] = ""
    if given["role"] == "tool":
        message["function"] = TOOL
    if given.get("reasoning_content"):
        thought = {"type": "reasoning", "reasoning": given["reasoning_content"]}
        message["content"] = [thought, {"type": "text", "text": given["content"]}]
        del message["reasoning_content"]
    return message


def _inspect_sample() -> Data:
    messages = [_inspect_message(message) for message in openai()]
    pool = [{**messages[0], "content": "attachment://a1"}, *messages[1:4]]
    events: list[Data] = [{"event": "span_begin", "id": "b0", "type": "agent", "name": "payer"}]
    for i, end in enumerate((2, 4)):
        events.append(
            {
                "event": "model",
                "uuid": f"b{2 * i + 1}",
                "span_id": "b0",
                "model": MODEL,
                "timestamp": f"2026-06-01T10:00:0{2 * i}+00:00",
                "completed": f"2026-06-01T10:00:0{2 * i + 2}+00:00",
                "input": [],
                "input_refs": [[0, end]],
                "output": {"choices": [{"message": messages[end], "stop_reason": "stop"}]},
            }
        )
    tool = {"event": "tool", "uuid": "b2", "id": CALL_ID, "function": TOOL, "arguments": ARGUMENTS}
    events.insert(2, {**tool, "result": RESULT, "events": []})
    sample = {"id": 1, "epoch": 1, "messages": messages, "events": events}
    return {**sample, "message_pool": pool, "attachments": {"a1": SYSTEM}}


def inspect_log() -> Data:
    """A log of Inspect whose messages are stored once."""
    return {"version": 2, "eval": {"model": MODEL}, "plan": {}, "samples": [_inspect_sample()]}


def inspect_zip() -> bytes:
    """The same log as an ``.eval`` file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps({"eval": {"model": MODEL}, "plan": {}}))
        file.writestr("samples/1_epoch_1.json", json.dumps(_inspect_sample()))
    return packed.getvalue()


def vercel() -> list[Data]:
    """Spans of Vercel's AI SDK: one for the task, and those of its model calls."""

    def message(given: Data) -> Data:
        if "tool_calls" in given:
            call = {"type": "tool-call", "toolCallId": CALL_ID, "toolName": TOOL, "input": ARGUMENTS}
            return {"role": "assistant", "content": [call]}
        if given["role"] == "tool":
            output = {"type": "text", "value": RESULT}
            result = {"type": "tool-result", "toolCallId": CALL_ID, "toolName": TOOL, "output": output}
            return {"role": "tool", "content": [result]}
        return given

    spans = []
    for i, (name, prompt, answer) in enumerate(_calls()):
        call = {"toolCallId": CALL_ID, "toolName": TOOL, "input": TEXT_ARGUMENTS}
        calls = {"ai.response.toolCalls": json.dumps([call])}
        text = {"ai.response.text": ANSWER}
        attributes = {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.model.id": MODEL,
            "ai.prompt.messages": json.dumps([message(m) for m in prompt]),
            **(calls if "tool_calls" in answer else text),
        }
        spans.append(
            {
                "name": "ai.generateText.doGenerate",
                "spanContext": {"traceId": "t1", "spanId": name},
                "parentSpanContext": {"traceId": "t1", "spanId": "b0"},
                "startTime": [T0 + 2 * i, 0],
                "endTime": [T0 + 2 * i + 2, 0],
                "attributes": attributes,
            }
        )
    task = {"ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"prompt": USER})}
    task["ai.response.text"] = ANSWER
    root = {"name": "ai.generateText", "spanContext": {"traceId": "t1", "spanId": "b0"}}
    return [*spans, {**root, "startTime": [T0, 0], "endTime": [T0 + 4, 0], "attributes": task}]


# Each form: the data, and whether it keeps reasoning, the model's name and times.
SAMPLES: dict[str, tuple[Any, frozenset[str]]] = {
    "openai": (openai(), frozenset({"reasoning"})),
    "responses": (responses(), frozenset({"reasoning"})),
    "anthropic": (anthropic(), frozenset({"reasoning", "model"})),
    "gemini": (gemini(), frozenset({"reasoning", "model"})),
    "agentdojo": (agentdojo(), frozenset({"model"})),
    "tau-bench": (tau_bench(), frozenset()),
    "openinference": (openinference(), frozenset({"model", "time"})),
    "nested": (nested_openinference(), frozenset({"model", "time"})),
    "otel": (otel(), frozenset({"reasoning", "model", "time"})),
    "otel-deprecated": (otel_deprecated(), frozenset({"model", "time"})),
    "otel-events": (otel_events(), frozenset({"model", "time"})),
    "otel-logs": (otel_logs(), frozenset({"reasoning", "time"})),
    "langfuse": (langfuse(), frozenset({"model", "time"})),
    "langsmith": (langsmith(), frozenset({"model", "time"})),
    "inspect": (inspect_log(), frozenset({"reasoning", "model", "time"})),
    "vercel": (vercel(), frozenset({"model", "time"})),
}
