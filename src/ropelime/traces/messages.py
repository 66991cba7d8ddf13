"""Messages of every provider as ours: OpenAI, Anthropic, Gemini, LangChain, Vercel, OpenTelemetry.

They differ in the names of their fields, which do not contradict each other, so that one reader takes
them all: it looks at the type of a part where it has one, and at its keys where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ropelime.traces.steps import Message, Role, ToolCall
from ropelime.traces.values import Problems, first, items, mapping, parsed, text

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
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text", "document", "search_result")
_THOUGHTS = ("reasoning", "thinking", "reasoning_text", "thought")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call", "function_call",
          "functionCall", "custom_tool_call", "mcp_call")  # fmt: skip
_RESULTS = ("tool_result", "mcp_tool_result", "tool_call_response", "tool-result", "function_response",
            "functionResponse", "function_call_output", "custom_tool_call_output")  # fmt: skip
_KEYED = ("functionCall", "function_call", "functionResponse", "function_response", "tool_call")
_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id")
_RESULT = ("content", "response", "result", "output")
_ARGUMENTS = ("arguments", "args", "input", "parameters", "rawInput")


@dataclass
class _Draft:
    """A message that is being read; results of tools in it become messages of their own."""

    role: Role
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    name: str = ""
    call_id: str = ""
    results: list[Message] = field(default_factory=list)

    def messages(self) -> list[Message]:
        thoughts, content = ("\n".join(filter(None, lines)) for lines in (self.thoughts, self.texts))
        if self.results and not (content or thoughts or self.calls):
            return self.results
        own = Message(self.role, content, tuple(self.calls), thoughts, self.name, self.call_id)
        return [*self.results, own]


def read_messages(value: Any, problems: Problems, where: str = "") -> tuple[Message, ...]:
    """The messages of a list, of a request that holds one, or of a plain text by the user."""
    return tuple(message for _, message in numbered(value, problems, where))


def numbered(value: Any, problems: Problems, where: str = "") -> list[tuple[int, Message]]:
    """The messages, each with its index in the list that was given."""
    read: list[tuple[int, Message]] = []
    joined = False  # whether the last message is made of items of the Responses API
    for i, item in enumerate(_items(value)):
        if _is_definition(item):
            continue
        is_item = isinstance(item, Mapping) and item.get("type") in (*_CALLS, "reasoning", "message")
        for message in _message(item, problems, f"{where}[{i}]"):
            if joined and is_item and message.role == "assistant":
                read[-1] = (read[-1][0], _together(read[-1][1], message))
            else:
                read.append((i, message))
            joined = is_item and message.role == "assistant"
    return _with_names(read)


def read_call(value: Any) -> ToolCall | None:
    """A tool call in any form; None if it has no name."""
    call = mapping(value)
    for key in (*_KEYED, "function", "custom"):
        if isinstance(call.get(key), Mapping):
            call = {**call, **call[key]}
    name = first(call, "name", "toolName", "tool_name", "function")
    if not isinstance(name, str):
        return None
    arguments = next((call[key] for key in _ARGUMENTS if call.get(key) is not None), None)
    return ToolCall(text(first(call, *_IDS)), text(name), text(arguments))


def together(messages: tuple[Message, ...]) -> Message:
    """Messages of the assistant as one; it is empty if there are none."""
    joined = Message("assistant")
    for message in messages:
        joined = _together(joined, message)
    return joined


def _together(one: Message, other: Message) -> Message:
    content, reasoning = (
        "\n".join(filter(None, pair))
        for pair in ((one.content, other.content), (one.reasoning, other.reasoning))
    )
    calls = (*one.tool_calls, *other.tool_calls)
    return replace(one, content=content, reasoning=reasoning, tool_calls=calls)


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
    draft = _Draft(_role(item, problems, where))
    kind = item.get("type")
    if kind in (*_CALLS, *_RESULTS, "reasoning") and "role" not in item:  # of the Responses API
        _part(draft, item, problems, where)
        return draft.messages()
    draft.name = text(first(item, "name", "toolName", "tool_name"))
    function = item.get("function")
    if draft.role == "tool" and not draft.name and isinstance(function, str):  # Inspect
        draft.name = text(function)
    draft.call_id = text(first(item, "tool_call_id", "toolCallId", "call_id"))
    for thought in (item, mapping(item.get("additional_kwargs"))):
        draft.thoughts.append(_thought(first(thought, "reasoning_content", "reasoning", "thinking")))
    content = first(item, "content", "contents", "parts", "text", "refusal", "message_content")
    _content(draft, content, problems, where)
    _calls(draft, item, problems, where)
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
    if kind in (*_CALLS, *_THOUGHTS):
        given = item.get("role") or "assistant"
    name = text(given).lower().removeprefix("messagerole.")
    if name in _ROLES:
        return _ROLES[name]
    if given is not None and item.get("role") is not None:
        problems.add(where, f"the role {text(given)[:40]!r} is not known; it is taken as user")
    return "assistant" if item.get("tool_calls") else "user"


def _content(draft: _Draft, content: Any, problems: Problems, where: str) -> None:
    """Add the content of a message: a text, a list of parts, or one part."""
    if isinstance(content, Mapping) and isinstance(content.get("parts"), list):
        content = content["parts"]
    if isinstance(content, list):
        for i, part in enumerate(content):
            _part(draft, part, problems, f"{where}.content[{i}]")
    elif isinstance(content, Mapping) and _kind(content):
        _part(draft, content, problems, where)
    elif content is not None:
        draft.texts.append(text(content))


def _kind(part: Mapping[str, Any]) -> str:
    """What a part is: its type, or what its keys say."""
    if isinstance(kind := part.get("type"), str):
        return kind
    keyed = next((key for key in _KEYED if key in part), None)
    if keyed:
        return keyed
    return "thought" if part.get("thought") is True else "text" if "text" in part else ""


def _part(draft: _Draft, part: Any, problems: Problems, where: str) -> None:
    """Add one part of a content: a text, reasoning, a tool call, a result of one, or something else."""
    if isinstance(part, Mapping) and isinstance(part.get("message_content"), Mapping):
        part = part["message_content"]  # OpenInference
    if not isinstance(part, Mapping):
        draft.texts.append(text(part))
        return
    kind = _kind(part)
    if kind in _THOUGHTS or part.get("thought") is True:
        draft.thoughts.append(_thought(part))
    elif kind in _CALLS:
        _calls(draft, {"tool_calls": [part]}, problems, where)
    elif kind in _RESULTS:
        draft.results.append(_result(part))
    elif kind in _TEXTS or isinstance(first(part, "text", "content", "refusal"), str):
        draft.texts.append(_text(part))
    else:
        kind = kind or next(iter(part), "part without a type")
        problems.add(where, f"{text(kind)[:40]} is not text and is shown in brackets")
        draft.texts.append(f"[{text(kind)[:40]}]")


def _text(part: Mapping[str, Any]) -> str:
    """The text of a part, which for a document lies in its source."""
    inner = first(part, "text", "content", "refusal", "source")
    if isinstance(inner, Mapping):
        inner = first(inner, "value", "text", "data", "content", "url")
    return "\n".join(filter(None, (text(part.get("title")), _flat(inner))))


def _flat(value: Any) -> str:
    """A text, the texts of a list of parts, or JSON."""
    if isinstance(value, Mapping) and "value" in value and {*value} <= {"type", "value"}:
        return _flat(value["value"])  # Vercel
    if isinstance(value, list) and value:
        parts = [
            first(each, "text", "content") if isinstance(each, Mapping) else each for each in value
        ]
        if all(isinstance(part, str) for part in parts):
            return "\n".join(map(text, parts))
    return text(value)


def _thought(value: Any) -> str:
    """The text of a part with reasoning; encrypted reasoning has none."""
    if isinstance(value, Mapping):
        value = first(value, "thinking", "reasoning", "text", "content", "summary")
    return "" if value is None else _flat(value)


def _calls(draft: _Draft, item: Mapping[str, Any], problems: Problems, where: str) -> None:
    """Add the tool calls of a message; LangChain keeps those of a provider in another place."""
    extra = mapping(item.get("additional_kwargs"))
    found = first(item, "tool_calls", "toolCalls") or first(extra, "tool_calls")
    given = items(found)
    if found is not None and not given:
        problems.add(where, f"tool calls are a list, not {type(found).__name__}")
    old = item.get("function_call") or extra.get("function_call")
    if not old and item.get("function_call_name"):  # OpenInference
        old = {
            "name": item["function_call_name"],
            "arguments": item.get("function_call_arguments_json"),
        }
    for i, value in enumerate([*given, *([old] if old else [])]):
        call = read_call(value)
        if call is None:
            problems.add(where, f"tool call {i + 1} has no name")
        else:
            draft.calls.append(call)


def _result(part: Mapping[str, Any]) -> Message:
    """The result of a tool call as a message."""
    for key in _KEYED:
        if isinstance(part.get(key), Mapping):
            part = part[key]
    name = text(first(part, "name", "toolName", "tool_name"))
    content = _flat(next((part[key] for key in _RESULT if part.get(key) is not None), None))
    return Message("tool", content, name=name, tool_call_id=text(first(part, *_IDS)))


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
