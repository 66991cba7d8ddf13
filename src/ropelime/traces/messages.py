"""Messages of every provider as ours: OpenAI, Anthropic, Gemini, LangChain, Vercel, OpenTelemetry.

They differ in the names of their fields, which do not contradict each other, so that one reader takes
them all: it looks at the type of a part where it has one, and at its keys where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropelime.traces.parts import (
    CALLS,
    RESULTS,
    THOUGHTS,
    Draft,
    add_calls,
    add_content,
    add_part,
    thought_text,
)
from ropelime.traces.steps import Message, Role
from ropelime.traces.values import Problems, first, mapping, parsed, text

_ROLES: dict[str, Role] = {
    **dict.fromkeys(("system", "developer", "systemmessage", "instructions"), "system"),
    **dict.fromkeys(("user", "human", "humanmessage", "input"), "user"),
    **dict.fromkeys(
        ("assistant", "ai", "model", "aimessage", "aimessagechunk", "chatbot", "tool-call", "agent"),
        "assistant",
    ),
    **dict.fromkeys(
        ("tool", "function", "toolmessage", "functionmessage", "tool-response", "ipython"), "tool"
    ),
}


def read_messages(value: Any, problems: Problems, where: str = "") -> tuple[Message, ...]:
    """The messages of a list, of a request that holds one, or of a plain text by the user."""
    return tuple(message for _, message in numbered(value, problems, where))


def numbered(value: Any, problems: Problems, where: str = "") -> list[tuple[int, Message]]:
    """The messages, each with its index in the list that was given."""
    read: list[tuple[int, list[Message]]] = []
    joined = False  # whether the last message is made of items of the Responses API
    for i, item in enumerate(_items(value)):
        if _is_definition(item):
            continue
        is_item = isinstance(item, Mapping) and item.get("type") in (*CALLS, "reasoning", "message")
        for message in _message(item, problems, f"{where}[{i}]"):
            if joined and is_item and message.role == "assistant":
                read[-1][1].append(message)
            else:
                read.append((i, [message]))
            joined = is_item and message.role == "assistant"
    return _with_names([(i, _joined(messages)) for i, messages in read])


def together(messages: tuple[Message, ...]) -> Message:
    """Messages of the assistant as one; it is empty if there are none."""
    return _joined([Message("assistant"), *messages])


def _joined(messages: list[Message]) -> Message:
    """Several messages as the first of them."""
    if len(messages) == 1:
        return messages[0]
    content = "\n".join(message.content for message in messages if message.content)
    reasoning = "\n".join(message.reasoning for message in messages if message.reasoning)
    calls = tuple(call for message in messages for call in message.tool_calls)
    return replace(messages[0], content=content, reasoning=reasoning, tool_calls=calls)


def _items(value: Any) -> list[Any]:
    """The messages of a list, of a list in a list (LangChain's batches), or of a single message."""
    value = parsed(value)
    if isinstance(value, list):
        return [one for each in value for one in (each if isinstance(each, list) else [each])]
    return [] if value in (None, "", {}) else [value]


def _is_definition(item: Any) -> bool:
    """Whether a message is the definition of a tool; some tools list them among the messages."""
    content = mapping(item).get("content") if isinstance(item, Mapping) else None
    return isinstance(content, Mapping) and isinstance(
        mapping(content.get("function")).get("parameters"), Mapping
    )


def _message(item: Any, problems: Problems, where: str) -> list[Message]:
    """One message as ours; Anthropic's and Vercel's may hold several results of tools."""
    item = _unwrapped(item)
    if isinstance(item, str):
        return [Message("user", text(item))]
    if not isinstance(item, Mapping):
        problems.add(where, f"a message is an object, not {type(item).__name__}")
        return []
    draft = Draft(_role(item, problems, where))
    kind = item.get("type")
    if kind in (*CALLS, *RESULTS, "reasoning") and "role" not in item:  # of the Responses API
        add_part(draft, item, problems, where)
        return draft.messages()
    draft.name = text(first(item, "name", "toolName", "tool_name"))
    function = item.get("function")
    if draft.role == "tool" and not draft.name and isinstance(function, str):  # Inspect
        draft.name = text(function)
    draft.call_id = text(first(item, "tool_call_id", "toolCallId", "call_id"))
    if draft.role == "tool" and not draft.call_id:
        draft.call_id = text(first(item, "id"))  # tau2-bench
    for thought in (item, mapping(item.get("additional_kwargs"))):
        draft.thoughts.append(
            thought_text(first(thought, "reasoning_content", "reasoning", "thinking"))
        )
    content = first(item, "content", "contents", "parts", "text", "refusal", "message_content")
    add_content(draft, content, problems, where)
    add_calls(draft, item, problems, where)
    if draft.role == "tool" and not any(draft.texts) and (error := item.get("error")):
        draft.texts.append(text(first(error, "message") or error))  # a call that failed
    return draft.messages()


def _unwrapped(item: Any) -> Any:
    """A message without the objects that LangChain, OpenInference and OpenTelemetry put around it."""
    item = parsed(item)
    if not isinstance(item, Mapping):
        return item
    if isinstance(kwargs := item.get("kwargs"), Mapping) and isinstance(item.get("id"), list):
        return {"type": text(item["id"][-1:] and item["id"][-1]), **kwargs}  # a LangChain constructor
    if isinstance(data := item.get("data"), Mapping) and isinstance(item.get("type"), str):
        return {**data, "type": item["type"]}
    if isinstance(inner := item.get("message"), Mapping) and "content" not in item:
        return {"role": item.get("role") or "assistant", **inner}
    if isinstance(inner := item.get("content"), Mapping) and "parts" in inner:
        return {**inner, "role": inner.get("role") or item.get("role") or "model"}
    return item


def _role(item: Mapping[str, Any], problems: Problems, where: str) -> Role:
    kind = item.get("type")
    given = first(item, "role", "speaker") or (kind if isinstance(kind, str) else None)
    if kind in (*CALLS, *THOUGHTS):
        given = item.get("role") or "assistant"
    name = text(given).lower().removeprefix("messagerole.")
    if name in _ROLES:
        return _ROLES[name]
    if given is not None and item.get("role") is not None:
        problems.add(where, f"the role {text(given)[:40]!r} is not known; it is taken as user")
    return "assistant" if item.get("tool_calls") else "user"


def _with_names(read: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    """The same messages; results of tools have the name of the tool that was called."""
    names: dict[str, str] = {}
    done: list[tuple[int, Message]] = []
    for i, message in read:
        names.update((call.id, call.name) for call in message.tool_calls if call.id)
        if message.role == "tool" and not message.name:
            message = replace(message, name=names.get(message.tool_call_id, ""))
        done.append((i, message))
    return done
