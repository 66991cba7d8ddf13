"""A call of a model: what was sent and what came back, as requests and responses of APIs hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropelime.traces.messages import read_messages, together
from ropelime.traces.parts import read_call
from ropelime.traces.steps import Message
from ropelime.traces.values import Problems, first, items, mapping, parsed, text

# Where a request has its messages, and where its instructions are if not among them.
PROMPTS = ("messages", "contents", "input", "prompt", "prompts", "args", "history")
_SYSTEMS = ("system", "system_instruction", "systemInstruction", "system_instructions", "instructions")
_NESTED = ("choices", "candidates", "generations", "outputs", "output", "messages", "message")


def read_request(value: Any, problems: Problems, where: str = "") -> tuple[Message, ...]:
    """The prompt of a request: its system prompt and its messages."""
    value = parsed(value)
    if not isinstance(value, Mapping):
        return read_messages(value, problems, where)
    system = first(value, *_SYSTEMS) or first(mapping(value.get("config")), *_SYSTEMS)
    prompt = None if "role" in value else first(value, *PROMPTS)
    if prompt is None:
        if "role" not in value and first(value, "content", "parts", "kwargs") is None:
            return (Message("user", text(value)),) if value else ()  # no messages: all of it
        prompt = [value]
    elif isinstance(prompt, Mapping) and not first(prompt, "role", "content", "parts"):
        return read_request(prompt, problems, where)
    return (*instructions(system, problems, where), *read_messages(prompt, problems, where))


def instructions(value: Any, problems: Problems, where: str = "") -> tuple[Message, ...]:
    """A system prompt, which is a text, a list of parts, or a content of Gemini."""
    value = parsed(value)
    if value in (None, "", [], {}):
        return ()
    if isinstance(value, Mapping):
        value = first(value, "parts", "content", "text") or value
    return read_messages([{"role": "system", "content": value}], problems, where)


def read_answer(value: Any, problems: Problems, where: str = "") -> Message:
    """What a model returned, as one message of the assistant."""
    value = parsed(value)
    if isinstance(value, str):
        return Message("assistant", text(value))
    if isinstance(value, Mapping) and (inner := _inside(value)) is not None:
        return read_answer(inner, problems, where)
    given = [value] if isinstance(value, Mapping) else items(value)
    given = [one for each in given for one in (each if isinstance(each, list) else [each])]
    if given and all(isinstance(each, Mapping) and _is_call(each) for each in given):
        return Message("assistant", tool_calls=tuple(filter(None, map(read_call, given))))
    if given and all(isinstance(each, str) for each in given):
        return Message("assistant", "\n".join(map(text, given)))
    if given and all(isinstance(each, Mapping) and _is_block(each) for each in given):
        given = [{"role": "assistant", "content": given}]
    read = read_messages([_spoken(each) for each in given], problems, where)
    return together(tuple(message for message in read if message.role == "assistant"))


def _is_call(value: Mapping[str, Any]) -> bool:
    """Whether an answer is a tool call by itself, as Vercel has it."""
    return "toolName" in value and "role" not in value and "content" not in value


def _is_block(value: Mapping[str, Any]) -> bool:
    """Whether an answer is a block of a content, as Anthropic has it, and not a message."""
    return "type" in value and not {"role", "content", "call_id", "kwargs", "data"} & {*value}


def _inside(value: Mapping[str, Any]) -> Any:
    """What a response holds as its answer; None if it is the answer."""
    if "role" in value and first(value, "content", "parts", "tool_calls", "additional_kwargs"):
        return None
    for key in _NESTED:
        inner = value.get(key)
        if inner in (None, "", [], {}):
            continue
        if key in ("choices", "candidates"):  # what the model might have answered otherwise is not it
            return items(inner)[:1] or inner
        if key == "messages":  # a state after the call: the answer is its last message
            return items(inner)[-1:] or inner
        if key == "message" and "content" in value:
            continue
        return inner
    return None


def _spoken(item: Any) -> Any:
    """A message of the assistant where no role is named."""
    item = parsed(item)
    if not isinstance(item, Mapping):
        return {"role": "assistant", "content": item}
    if isinstance(item.get("message"), (Mapping, str)) and "content" not in item:
        inner = item["message"]
        return _spoken(inner) if isinstance(inner, str) or "role" not in inner else inner
    if "role" in item or "kwargs" in item or "data" in item or "type" in item:
        return item
    return {"role": "assistant", **item}


def read_exchange(
    sent: Any, received: Any, problems: Problems, where: str = ""
) -> tuple[tuple[Message, ...], Message]:
    """Prompt and answer; the Responses API returns the instructions that it was given."""
    messages = read_request(sent, problems, f"{where} input")
    answer = read_answer(received, problems, f"{where} output")
    returned = mapping(received)
    echoed = returned.get("instructions") if returned.get("object") == "response" else None
    if echoed and not any(message.role == "system" for message in messages):
        messages = (*instructions(echoed, problems, where), *messages)
    return messages, answer
