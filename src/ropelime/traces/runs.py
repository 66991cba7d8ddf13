"""Runs that are a list of messages: AgentDojo, tau-bench, and logs of the providers' APIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ropelime.traces.exchange import PROMPTS, instructions, read_answer, read_request
from ropelime.traces.messages import numbered
from ropelime.traces.steps import Message, Step, ToolCall
from ropelime.traces.values import Problems, first, items, mapping, parsed, text

_LISTS = ("messages", "traj", "trajectory", "contents", "conversation", "input")
_ANSWERS = ("choices", "candidates")
_ITEMS = ("function_call", "function_call_output", "reasoning", "message", "constructor", "human", "ai",
          "system", "tool")  # fmt: skip
_SYSTEMS = ("system", "system_instruction", "systemInstruction", "instructions")
_REFERENCE = 8  # bytes of a message in the list of a further step
_MODELS = ("model", "pipeline_name", "model_name", "modelVersion", "agent_model")


def is_messages(data: Any) -> bool:
    """Whether data is a list of messages."""
    given = items(data)
    return bool(given) and all(
        isinstance(each, Mapping)
        and ("role" in each or each.get("type") in _ITEMS)
        and ("attributes" not in each)
        for each in given[:3]
    )


def is_run(data: Mapping[str, Any]) -> bool:
    """Whether data holds a list of messages, or a request and its response."""
    if any(is_messages(data.get(key)) for key in _LISTS):
        return True
    if "request" in data and "response" in data:
        return isinstance(parsed(data["request"]), Mapping)
    response = data.get("object") == "response" and isinstance(data.get("output"), list)
    asked = "model" in data and first(data, *PROMPTS) is not None
    return response or asked or any(items(data.get(key)) for key in _ANSWERS)


def read_run(data: Mapping[str, Any], problems: Problems, where: str) -> Iterator[Step]:
    """Each message of the assistant as a step; what came before it is the prompt."""
    if "request" in data and "response" in data:
        request, response = mapping(data["request"]), data["response"]
    else:
        request, response = data, _response(data)
    name = next((key for key in _LISTS if is_messages(request.get(key))), None)
    run = _run_id(data)
    model = text(first(request, *_MODELS) or first(mapping(response), *_MODELS))
    system = instructions(first(request, *_SYSTEMS), problems, where)
    place = f"{where} {name or 'messages'}".strip()
    if name is None:
        before = read_request(_prompt(request), problems, place)
    else:
        yield from message_steps(request[name], problems, place, model, run, system)
        before = (*system, *(message for _, message in numbered(request[name], Problems())))
    if response is not None:
        answer = read_answer(response, problems, f"{where} response")
        yield Step(
            f"{where} response".strip(),
            "model",
            model=model,
            messages=before,
            text=answer.content,
            calls=answer.tool_calls,
            reasoning=answer.reasoning,
            trace_id=run,
            where=where,
        )


def _prompt(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request, or a record that holds its response too, has of the prompt."""
    return {key: request[key] for key in (*PROMPTS, *_SYSTEMS) if key in request}


def _response(data: Mapping[str, Any]) -> Any:
    """The response that is stored beside a request, or that is all there is."""
    if first(data, *_ANSWERS) is not None or data.get("object") == "response":
        return data
    return first(data, "response", "completion", "output")


def _run_id(data: Mapping[str, Any]) -> str:
    """What tells the runs of a file apart."""
    names = ("suite_name", "user_task_id", "injection_task_id", "task_id", "trial", "id", "custom_id")
    given = (data.get(name) for name in names)
    return " ".join(text(value) for value in given if isinstance(value, (str, int)))


def message_steps(
    messages: Any,
    problems: Problems,
    where: str,
    model: str = "",
    trace_id: str = "",
    system: tuple[Message, ...] = (),
) -> Iterator[Step]:
    """A list of messages as steps: those of the assistant, and the results of tools."""
    before: list[Message] = list(system)
    calls: dict[str, ToolCall] = {}
    seen: dict[int, int] = {}
    for i, message in numbered(messages, problems, where):
        seen[i] = seen.get(i, 0) + 1
        place = f"{where}[{i}]" + (f" part {seen[i]}" if seen[i] > 1 else "")
        calls.update((call.id, call) for call in message.tool_calls)
        if message.role == "assistant":
            problems.take(_REFERENCE * len(before))
            yield Step(
                place,
                "model",
                model=model,
                messages=tuple(before),
                text=message.content,
                calls=message.tool_calls,
                reasoning=message.reasoning,
                trace_id=trace_id,
                where=place,
            )
        elif message.role == "tool":
            call = calls.get(message.tool_call_id) or ToolCall(message.tool_call_id, message.name)
            name = message.name or call.name
            yield Step(
                place, "tool", name, text=message.content, calls=(call,), trace_id=trace_id, where=place
            )
        before.append(message)
