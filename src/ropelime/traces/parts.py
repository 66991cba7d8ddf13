"""The parts of a message: texts, reasoning, tool calls, results of tools, and what is not text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ropelime.traces.steps import Message, Role, ToolCall
from ropelime.traces.values import Problems, first, items, mapping, text

_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text", "document", "search_result")
THOUGHTS = ("reasoning", "thinking", "reasoning_text", "thought")
CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call", "function_call",
          "functionCall", "custom_tool_call", "mcp_call")  # fmt: skip
RESULTS = ("tool_result", "mcp_tool_result", "tool_call_response", "tool-result", "function_response",
            "functionResponse", "function_call_output", "custom_tool_call_output")  # fmt: skip
MEDIA = ("blob", "file", "uri", "image", "audio", "video", "input_image", "input_audio", "input_file")
_KEYED = ("functionCall", "function_call", "functionResponse", "function_response", "tool_call")
_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id")
_RESULT = ("content", "response", "result", "output")
_ARGUMENTS = ("arguments", "args", "input", "parameters", "rawInput")


@dataclass
class Draft:
    """A message that is being read; results of tools in it become messages of their own."""

    role: Role
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    name: str = ""
    call_id: str = ""
    results: list[Message] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # the ids of the calls

    def messages(self) -> list[Message]:
        """The results, then what is left of the message."""
        thoughts, content = ("\n".join(filter(None, lines)) for lines in (self.thoughts, self.texts))
        if self.results and not (content or thoughts or self.calls):
            return self.results
        own = Message(self.role, content, tuple(self.calls), thoughts, self.name, self.call_id)
        return [*self.results, own]


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


def add_content(draft: Draft, content: Any, problems: Problems, where: str) -> None:
    """Add the content of a message: a text, a list of parts, or one part."""
    if isinstance(content, Mapping) and isinstance(content.get("parts"), list):
        content = content["parts"]
    if isinstance(content, list):
        for i, part in enumerate(content):
            add_part(draft, part, problems, f"{where}.content[{i}]")
    elif isinstance(content, Mapping) and kind_of(content):
        add_part(draft, content, problems, where)
    elif content is not None:
        draft.texts.append(text(content))


def add_part(draft: Draft, part: Any, problems: Problems, where: str) -> None:
    """Add one part of a content: a text, reasoning, a tool call, a result of one, or something else."""
    if isinstance(part, Mapping) and isinstance(part.get("message_content"), Mapping):
        part = part["message_content"]  # OpenInference
    if not isinstance(part, Mapping):
        draft.texts.append(text(part))
        return
    kind = kind_of(part)
    if kind in THOUGHTS or part.get("thought") is True:
        draft.thoughts.append(thought_text(part))
    elif kind in CALLS:
        add_calls(draft, {"tool_calls": [part]}, problems, where)
    elif kind in RESULTS:
        draft.results.append(_result(part))
    elif kind == "redacted_thinking":
        problems.add(where, "reasoning is encrypted and left out")
    elif kind in _TEXTS or (
        kind not in MEDIA and isinstance(first(part, "text", "content", "refusal"), str)
    ):
        draft.texts.append(_text(part))
    else:
        kind = kind or next(iter(part), "part without a type")
        problems.add(where, f"{text(kind)[:40]} is not text and is shown in brackets")
        draft.texts.append(f"[{text(kind)[:40]}]")


def add_calls(draft: Draft, item: Mapping[str, Any], problems: Problems, where: str) -> None:
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
        elif not call.id or call.id not in draft.known:
            draft.calls.append(call)  # LangChain has those of Anthropic in the content too
            draft.known.add(call.id)


def kind_of(part: Mapping[str, Any]) -> str:
    """What a part is: its type, or what its keys say."""
    if isinstance(kind := part.get("type"), str):
        return kind
    keyed = next((key for key in _KEYED if key in part), None)
    if keyed:
        return keyed
    return "thought" if part.get("thought") is True else "text" if "text" in part else ""


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


def thought_text(value: Any) -> str:
    """The text of a part with reasoning; encrypted reasoning has none."""
    if isinstance(value, Mapping):
        value = first(value, "thinking", "reasoning", "text", "content", "summary")
    return "" if value is None else _flat(value)


def _result(part: Mapping[str, Any]) -> Message:
    """The result of a tool call as a message."""
    for key in _KEYED:
        if isinstance(part.get(key), Mapping):
            part = part[key]
    name = text(first(part, "name", "toolName", "tool_name"))
    content = _flat(next((part[key] for key in _RESULT if part.get(key) is not None), None))
    return Message("tool", content, name=name, tool_call_id=text(first(part, *_IDS)))
