"""What was sent to the model: one prompt, retrieved chunks with a question, or chat messages.

All three become a :class:`Prompt`: messages, the one text that character offsets refer to, and the
parts of it that may be cut into features. Whatever lies outside those parts is pinned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ropelime.errors import InputError

Span = tuple[int, int]
Kind = Literal["prompt", "context", "messages"]

_BETWEEN = "\n\n"
_CALLS = {"function": "arguments", "custom": "input"}  # the two kinds of tool call, and what each takes


@dataclass(frozen=True)
class Message:
    """One message: its role, and where its content lies in the text of the prompt."""

    role: str
    start: int
    end: int


@dataclass(frozen=True)
class Origin:
    """Where a chunk comes from, as far as that is known.

    Attributes:
        source: Its document: a file, an address, a title.
        page: The page in it.
    """

    source: str = ""
    page: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.source, self.page and f"page {self.page}")))


@dataclass(frozen=True)
class Prompt:
    """The input of the explained answer.

    Attributes:
        text: Everything that was sent, in order; features are spans of it.
        messages: The messages that the text is made of.
        parts: The spans that may hold features: the prompt, the chunks, or what the messages hold.
        kind: Which of the three forms it came in.
        origins: Where each chunk comes from; empty where none of them says so.
    """

    text: str
    messages: tuple[Message, ...]
    parts: tuple[Span, ...]
    kind: Kind
    origins: tuple[Origin, ...] = ()

    def content(self, message: Message) -> str:
        """The text of one message."""
        return self.text[message.start : message.end]

    def origin(self, part: int) -> Origin:
        """Where the chunk of that number comes from; empty where nobody said."""
        return self.origins[part] if part < len(self.origins) else Origin()

    def where(self, part: int) -> str:
        """The chunk or message of that number in words, counted from 1; empty for a plain prompt."""
        if self.kind == "context":
            return ", ".join(filter(None, (f"chunk {part + 1}", str(self.origin(part)))))
        if self.kind == "messages":
            return f"message {part + 1}, {self.messages[part].role}"
        return ""


def check_text(what: str, text: object, *, may_be_blank: bool = False) -> str:
    """Return ``text`` if a tokenizer can read it, else say what is wrong with it."""
    if not isinstance(text, str):
        raise InputError(f"{what} must be a string, not {type(text).__name__}.")
    if not may_be_blank and not text.strip():
        raise InputError(f"{what} is empty. Pass the text that you want explained.")
    if (at := text.find("\0")) >= 0:
        raise InputError(
            f"{what} has a NUL character at position {at}. Remove it: text.replace('\\0', '')."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} has a lone surrogate (half a character) at position {error.start}. Decode the "
            "source again, or replace it: text.encode('utf-8', 'replace').decode()."
        ) from None
    return text


def from_text(prompt: str) -> Prompt:
    """A prompt that is one text; all of it may be features."""
    text = check_text("prompt", prompt)
    return Prompt(text, (Message("user", 0, len(text)),), ((0, len(text)),), "prompt")


def from_context(context: Sequence[str | Mapping[str, Any]], question: str | None) -> Prompt:
    """Retrieved chunks and the question about them; the question is pinned.

    Args:
        context: Each chunk a string, or a mapping with ``text`` and perhaps ``source`` and ``page``.
        question: What was asked.
    """
    if isinstance(context, (str, Mapping)) or not isinstance(context, Sequence):
        raise InputError("context must be a list of strings, one for each chunk.")
    if not context:
        raise InputError("context is empty. Pass at least one chunk of text.")
    text = "Context:\n"
    parts: list[Span] = []
    origins: list[Origin] = []
    for number, entry in enumerate(context):
        where = f"context[{number}]"
        named = entry if isinstance(entry, Mapping) else {"text": entry}
        if "text" not in named:
            raise InputError(f"{where} must be a string or a mapping with 'text', 'source', 'page'.")
        text += _BETWEEN if parts else ""
        chunk = check_text(where, named["text"])
        parts.append((len(text), len(text) + len(chunk)))
        origins.append(Origin(*(_name(f"{where}[{k!r}]", named.get(k)) for k in ("source", "page"))))
        text += chunk
    if question is not None:
        text += _BETWEEN + check_text("question", question)
    known = tuple(origins) if any(map(str, origins)) else ()
    return Prompt(text, (Message("user", 0, len(text)),), tuple(parts), "context", known)


def _name(what: str, value: object) -> str:
    """A source or a page as one line; pages may be numbers."""
    if value is None:
        return ""
    number = isinstance(value, int) and not isinstance(value, bool)
    return " ".join(check_text(what, str(value) if number else value, may_be_blank=True).split())


def from_messages(messages: Sequence[Mapping[str, Any]]) -> Prompt:
    """Chat messages as the Chat Completions API takes them; all that they say may be features.

    A message has a ``role`` and a ``content``, which is a text or a list of text parts, or
    ``tool_calls``. Every part and every call is a part of the prompt by itself.
    """
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise InputError("messages must be a list of {'role': ..., 'content': ...}.")
    if not messages:
        raise InputError("messages is empty. Pass at least one message.")
    text = ""
    placed: list[Message] = []
    parts: list[Span] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, Mapping) or "role" not in message:
            raise InputError(f"{where} must be a mapping with 'role' and 'content'.")
        role = check_text(f"{where}['role']", message["role"])
        text += _BETWEEN if placed else ""
        start = len(text)
        for i, piece in enumerate(_said(where, message)):
            text += "\n" if i else ""
            if piece.strip():
                parts.append((len(text), len(text) + len(piece)))
            text += piece
        placed.append(Message(role, start, len(text)))
    if not parts:
        raise InputError("Every message is empty: there is nothing to explain.")
    return Prompt(text, tuple(placed), tuple(parts), "messages")


def spoken(message: Mapping[str, Any], where: str = "message") -> str:
    """What a message says as one text: its content, then its tool calls, a line each."""
    return "\n".join(_said(where, message))


def _said(where: str, message: Mapping[str, Any]) -> list[str]:
    """The pieces of a message: its content or the parts of it, then every call of a tool."""
    calls = message.get("tool_calls") or []
    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Sequence):
        raise InputError(f"{where}['tool_calls'] must be a list, not {type(calls).__name__}.")
    called = [_call(f"{where}['tool_calls'][{i}]", call) for i, call in enumerate(calls)]
    if message.get("function_call"):  # how tools were called before they were called tools
        called.append(_call(f"{where}['function_call']", {"function": message["function_call"]}))
    content = message.get("content")
    content = message.get("refusal") if content is None else content
    if content is None and called:
        return called
    if content is None and "content" not in message:
        raise InputError(f"{where} must be a mapping with 'role' and 'content'.")
    at = f"{where}['content']"
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [*(_part(f"{at}[{i}]", part) for i, part in enumerate(content)), *called]
    said = check_text(at, content, may_be_blank=True)
    return [said, *called] if said or not called else called


def _part(where: str, part: object) -> str:
    """A part of a content list: a text, or the text of a refusal."""
    if isinstance(part, Mapping):
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                return check_text(where, part[key], may_be_blank=True)
    kind = part.get("type", "no text") if isinstance(part, Mapping) else type(part).__name__
    raise InputError(f"{where} is {kind}, and only text can be explained. Take it out.")


def _call(where: str, call: object) -> str:
    """A call of a tool as text: the tool and what it was given."""
    for kind, given in _CALLS.items():
        body = call.get(kind) if isinstance(call, Mapping) else None
        if isinstance(body, Mapping) and isinstance(body.get("name"), str):
            told = body.get(given) or ""
            told = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
            return check_text(where, f"{body['name']}({told})")
    raise InputError(f"{where} must be a tool call: {{'function': {{'name': ..., 'arguments': ...}}}}.")
