"""Messages of other libraries as those of the Chat Completions API, with all of their text.

LangChain's messages, Pydantic AI's requests and responses, Gemini's contents, Anthropic's blocks and
items of the Responses API are recognised by their shape. Encrypted reasoning has no text and is left
out; anything else that is not text stays in the content, where :func:`from_messages` refuses it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ropelime.errors import InputError
from ropelime.text.integrations import as_dict
from ropelime.traces.parts import CALLS, MEDIA, RESULTS, THOUGHTS, kind_of, read_call, thought_text
from ropelime.traces.values import first, text

Block = Mapping[str, Any]

_ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}
_CONTENTS = ("content", "refusal", "tool_calls", "function_call")  # a message has one at least
_TYPES = ("human", "ai", "system", "tool", "function")  # of LangChain's messages
_OTHER_THOUGHTS = ("reasoning_content",)  # of LangChain with Bedrock
_ENCRYPTED = ("redacted_thinking", "compaction")
_ITEMS = ("reasoning", "item_reference", "mcp_list_tools", "compaction")  # of the Responses API
_NATIVE = ("builtin-tool-call", "native-tool-call")  # of Pydantic AI, which the server ran
_RETURNED = ("tool-return", "builtin-tool-return", "native-tool-return")
# Calls that the caller answers. All others were run by the server, and the answer follows them.
_OPEN_CALLS = ("tool_use", "tool_call", "tool-call", "function_call", "functionCall",
               "custom_tool_call", "computer_call", "local_shell_call", "shell_call",
               "apply_patch_call")  # fmt: skip


@dataclass
class Turns:
    """Messages that are built a piece at a time; pieces of the assistant that follow each other join.

    Attributes:
        messages: The messages so far.
        open: Whether the next piece may join the last message.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    open: bool = False

    def say(self, role: str, content: Any, *, gap: str = "") -> None:
        """Add a text, or a block that is none."""
        message = self._message(role)
        known = message["content"]
        if isinstance(content, str) and known and isinstance(known[-1], str):
            known[-1] += gap + content
        else:
            known.append(content)

    def think(self, thought: str) -> None:
        """Add reasoning of the assistant."""
        if thought:
            message = self._message("assistant")
            before = message.get("reasoning_content")
            message["reasoning_content"] = f"{before}\n{thought}" if before else thought

    def call(self, block: Block, where: str, *, ran: bool = False) -> None:
        """Add a tool call; one that the server ran ends the message."""
        call = read_call(block)
        if call is None:
            raise InputError(f"{where} must be a tool call with a name.")
        calls = self._message("assistant").setdefault("tool_calls", [])
        if not call.id or all(known["id"] != call.id for known in calls):
            function = {"name": call.name, "arguments": call.arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        self.open = self.open and not ran

    def result(self, content: Any, name: str = "", call_id: str = "") -> None:
        """Add the result of a tool, which is a message of its own."""
        self.open = False
        message = self._message("tool")
        message["content"] = content if isinstance(content, list) else [content]
        message |= {k: v for k, v in (("name", name), ("tool_call_id", call_id)) if v}
        self.open = False

    def done(self) -> list[dict[str, Any]]:
        """The messages; a content of one text is that text."""
        for message in self.messages:
            content = message["content"]
            if not content or (len(content) == 1 and isinstance(content[0], str)):
                message["content"] = content[0] if content else ""
            elif isinstance(content, list):
                message["content"] = [_as_part(each) for each in content]
        return self.messages

    def _message(self, role: str) -> dict[str, Any]:
        if not (self.open and self.messages and self.messages[-1]["role"] == role):
            self.messages.append({"role": role, "content": []})
        self.open = True
        return self.messages[-1]


def as_messages(given: Any, name: str = "messages") -> Any:
    """Messages of other libraries as dictionaries; those of the Chat Completions API as they are."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return given
    read: list[Any] = []
    items = Turns()  # items of the Responses API, which make up a message together
    for i, message in enumerate(given):
        data, where = _data(message), f"{name}[{i}]"
        if data is not None and _is_item(data):
            add_item(items, data, where)
            continue
        read += items.done()
        items = Turns()
        if data is not None and data.get("type") == "message" and data.get("role") == "assistant":
            items = _turns(data, where, joining=True)
        else:
            read += [message] if data is None else _one(data, where)
    return [*read, *items.done()]


def add_item(turns: Turns, item: Block, where: str) -> None:
    """Add an item of the Responses API that is not a message."""
    kind = str(item["type"])
    if kind == "reasoning":
        turns.think(thought_text(item))
    elif kind.endswith("_output"):
        turns.result(_returned(item.get("output")), call_id=text(item.get("call_id")))
    elif kind.endswith("_call"):
        ran = kind not in _OPEN_CALLS
        named = item if "name" in item else {"name": kind.removesuffix("_call"), "input": _rest(item)}
        turns.call({"id": item.get("call_id") or item.get("id"), **named}, where, ran=ran)
        if ran and (found := first(item, "output", "results", "outputs")):
            turns.result(_returned(found))
    elif kind == "item_reference":
        raise InputError(f"{where} is a reference without text. Pass the item that it stands for.")


def _one(data: Block, where: str) -> list[Any]:
    """One message as those that it holds: results of tools are messages of their own."""
    if not _is_plain(data):
        return _turns(data, where).done()
    if not any(key in data for key in _CONTENTS):
        has = ", ".join(map(repr, data))
        raise InputError(
            f"{where} has no 'content', only {has}. Pass its text as 'content'.",
            field=where.partition("[")[0],
        )
    return [data]


def _turns(data: Block, where: str, *, joining: bool = False) -> Turns:
    turns = Turns()
    if data.get("kind") in ("request", "response") and isinstance(data.get("parts"), Sequence):
        for i, part in enumerate(data["parts"]):
            _add_pydantic(turns, part, f"{where}.parts[{i}]")
        return turns
    role = role_of(data)
    if role is None:
        kind = data.get("type")
        raise InputError(
            f"{where} must be a mapping with 'role' and 'content'"
            + (f", and it is of type {kind!r}." if isinstance(kind, str) else ".")
        )
    if role == "tool" and "tool_call_id" in data:
        name, call_id = text(data.get("name")), text(data["tool_call_id"])
        turns.result(_returned(data.get("content")), name, call_id)
        return turns
    extra = data.get("additional_kwargs")  # LangChain keeps what some providers return there
    for holder in (data, extra if isinstance(extra, Mapping) else {}):
        turns.think(thought_text(first(holder, "reasoning_content", "reasoning", "thinking")))
    content = data.get("content", data.get("parts"))
    blocks = [content] if isinstance(content, (str, Mapping)) else content or []
    for i, block in enumerate(blocks):
        _add_block(turns, role, block, f"{where}['content'][{i}]")
    calls = [*(data.get("tool_calls") or ()), *(data.get("invalid_tool_calls") or ())]
    for i, call in enumerate(calls):
        turns.call(as_dict(call) or {}, f"{where}['tool_calls'][{i}]")
    if not turns.messages and not joining:
        turns.say(role, "")
    return turns


def _add_block(turns: Turns, role: str, block: Any, where: str) -> None:
    """Add a block of a content: a text, reasoning, a tool call, a result of one, or something else."""
    data: Block | None = as_dict({"type": "text", "text": block} if isinstance(block, str) else block)
    kind = "" if data is None else kind_of(data)
    if data is None or kind in MEDIA:
        turns.say(role, block)
    elif kind in (*THOUGHTS, *_OTHER_THOUGHTS) or data.get("thought") is True:
        turns.think(thought_text(data.get("reasoning_content", data)))
    elif kind in CALLS:
        turns.call(data, where, ran=kind not in _OPEN_CALLS)
    elif kind in RESULTS or kind.endswith("_tool_result"):
        keyed = [data[key] for key in RESULTS if isinstance(data.get(key), Mapping)]  # Gemini
        inner: Block = keyed[0] if keyed else data
        content = first(inner, "content", "response", "result", "output")
        name, call_id = text(inner.get("name")), text(first(inner, "tool_use_id", "id"))
        turns.result(_returned(content), name, call_id)
    elif kind not in _ENCRYPTED:
        joins = role == "assistant" and isinstance(data.get("text"), str)
        turns.say(role, data["text"] if joins else block if isinstance(block, str) else data)


def _add_pydantic(turns: Turns, part: Any, where: str) -> None:
    """Add a part of a request or a response of Pydantic AI."""
    data = _data(part) or {}
    kind, content = str(data.get("part_kind", "")), data.get("content")
    name, call_id = text(data.get("tool_name")), text(data.get("tool_call_id"))
    if kind == "thinking":
        turns.think(text(content))
    elif kind == "tool-call" or kind in _NATIVE:
        call = {"id": call_id, "name": name, "arguments": data.get("args")}
        turns.call(call, where, ran=kind in _NATIVE)
    elif kind in _RETURNED or (kind == "retry-prompt" and name):
        turns.result(_written(part, content), name, call_id)
    elif kind == "retry-prompt":
        turns.say("user", _written(part, content))
    elif kind in ("system-prompt", "user-prompt", "text"):
        role = {"system-prompt": "system", "user-prompt": "user"}.get(kind, "assistant")
        turns.open = turns.open and role == "assistant"
        for piece in [content] if isinstance(content, str) else content or []:
            turns.say(role, piece, gap="\n" if role == "assistant" else "")
    else:
        raise InputError(f"{where} is {kind or type(part).__name__}, and only text can be explained.")


def role_of(data: Block) -> str | None:
    """The role of a message, or the one that LangChain's type of message has; None if it has none."""
    kind = str(data.get("type", "")).removesuffix("MessageChunk").lower()
    role = data.get("role") or (kind if kind in _TYPES else "user" if "parts" in data else None)
    return None if role is None else _ROLES.get(str(role), str(role))


def _is_item(data: Block) -> bool:
    """Whether it is an item of the Responses API that is not a message."""
    kind = data.get("type")
    if not isinstance(kind, str) or "role" in data:
        return False
    return kind in _ITEMS or kind.endswith(("_call", "_call_output"))


def _is_plain(data: Block) -> bool:
    """Whether a message is one of the Chat Completions API already."""
    if "role" not in data or "parts" in data or "additional_kwargs" in data:
        return False
    calls, content = data.get("tool_calls") or (), data.get("content")
    if isinstance(calls, Sequence) and any(isinstance(c, Mapping) and "args" in c for c in calls):
        return False
    blocks = content if isinstance(content, Sequence) and not isinstance(content, str) else ()
    known = [kind_of(data) for data in map(as_dict, blocks) if data is not None]
    special = (*THOUGHTS, *_OTHER_THOUGHTS, *CALLS, *RESULTS, *_ENCRYPTED)
    return not any(kind in special or kind.endswith("_tool_result") for kind in known)


def _data(message: Any) -> Block | None:
    """A mapping, or an object as one, its parts as they are."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        return {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    return as_dict(message)


def _written(part: Any, content: Any) -> str:
    """What the model was shown of a result: Pydantic AI's own words, or the content as JSON."""
    for method in ("model_response_str", "model_response"):
        if callable(write := getattr(part, method, None)):
            return str(write())
    return text(content)


def _returned(content: Any) -> Any:
    """The result of a tool: a text, blocks of a content, or data as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        blocks = [as_dict(each) for each in content]
        if blocks and all(b is not None and (kind_of(b) in MEDIA or _has_text(b)) for b in blocks):
            return blocks
        content = [_rest(each) if isinstance(each, Mapping) else each for each in content]
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)


def _has_text(block: Block) -> bool:
    return kind_of(block) in ("text", "input_text", "output_text") and isinstance(
        block.get("text"), str
    )


def _rest(item: Block) -> dict[str, Any]:
    """What an item says, without what only the server can read."""
    hidden = ("id", "type", "status", "encrypted_content", "encrypted_index", "call_id")
    return {key: value for key, value in item.items() if key not in hidden and value is not None}


def _as_part(content: Any) -> Any:
    return {"type": "text", "text": content} if isinstance(content, str) else content
