"""The input of a model: one text, retrieved chunks with a question, or chat messages.

Parts of it may be cut into features. Text outside those parts is pinned: it is never removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ropelime.errors import InputError
from ropelime.registry import unknown

Span = tuple[int, int]
Kind = Literal["prompt", "context", "messages"]

TOOL_RESULT = ("user", "Result of a tool:\n")  # where results of tools cannot be messages of their own

_BETWEEN = "\n\n"
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
CALLS = {"function": "arguments", "custom": "input"}  # kinds of tool calls, and where arguments are


@dataclass(frozen=True)
class Message:
    """One message: its role, and the span of its content in the text of the prompt."""

    role: str
    start: int
    end: int


@dataclass(frozen=True)
class Origin:
    """Where a chunk comes from: a file, an address or a title, and a page; empty where not known."""

    source: str = ""
    page: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.source, self.page and f"page {self.page}")))


@dataclass(frozen=True)
class Prompt:
    """The input of the explained answer.

    Attributes:
        text: All of the input, in order; features are spans of it.
        messages: The messages that make up the text.
        parts: The spans that may hold features: the prompt, the chunks, or the contents of messages.
        kind: Which of the three forms it was given in.
        origins: Where each chunk comes from; empty if that is not known of any.
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
        """Where the chunk of that index comes from."""
        return self.origins[part] if part < len(self.origins) else Origin()

    def where(self, part: int) -> str:
        """A name for the chunk or message of that index, counted from 1; empty for a plain prompt."""
        if self.kind == "context":
            return ", ".join(filter(None, (f"chunk {part + 1}", str(self.origin(part)))))
        if self.kind == "messages":
            return f"message {part + 1}, {self.messages[part].role}"
        return ""


def check_text(what: str, text: object, *, may_be_blank: bool = False, field: str | None = None) -> str:
    """Return ``text`` if a tokenizer can encode it, else raise an error that calls it ``what``.

    The ``field`` of the error is ``what`` if that is the name of an argument and no other is given.
    """
    field = what if field is None and what.isidentifier() else field
    if not isinstance(text, str):
        raise InputError(f"{what} must be a string, not {type(text).__name__}.", field=field)
    if not may_be_blank and not text.strip():
        raise InputError(f"{what} is empty. Pass the text that you want explained.", field=field)
    if (at := text.find("\0")) >= 0:
        cure = "Remove it: text.replace('\\0', '')."
        raise InputError(f"{what} has a NUL character at position {at}. {cure}", field=field)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} has a lone surrogate (half a character) at position {error.start}. Decode the "
            "source again, or replace it: text.encode('utf-8', 'replace').decode().",
            field=field,
        ) from None
    return text


@contextmanager
def naming_field(field: str) -> Iterator[None]:
    """Let input errors name an argument, if they do not name one yet."""
    try:
        yield
    except InputError as error:
        error.field = error.field or field
        raise


def read_prompt(
    prompt: str | None = None,
    context: Sequence[Any] | None = None,
    question: str | None = None,
    messages: Sequence[Any] | None = None,
) -> Prompt:
    """The prompt from one of its three forms; errors name the wrong argument, as ``"context.1"``."""
    given: dict[str, Any] = {"prompt": prompt, "context": context, "messages": messages}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        got, field = (" and ".join(names), names[-1]) if names else ("none of them", "prompt")
        raise InputError(f"Pass exactly one of prompt, context and messages; got {got}.", field=field)
    if question is not None and context is None:
        raise InputError(
            "question goes with context=[...]; put it into the prompt otherwise.", field="question"
        )
    with naming_field(names[0]):
        if prompt is not None:
            return from_text(prompt)
        if context is not None:
            return from_context(context, question)
        return from_messages(given["messages"])


def from_text(prompt: str) -> Prompt:
    """A prompt that is one text; all of it may be cut into features."""
    text = check_text("prompt", prompt)
    return Prompt(text, (Message("user", 0, len(text)),), ((0, len(text)),), "prompt")


def from_context(context: Sequence[str | Mapping[str, Any]], question: str | None) -> Prompt:
    """Retrieved chunks, as texts or with ``source`` and ``page``; the question about them is pinned."""
    if isinstance(context, str) or not isinstance(context, Sequence):
        raise InputError("context must be a list of strings, one for each chunk.")
    if not context:
        raise InputError("context is empty. Pass at least one chunk of text.")
    text = "Context:\n"
    parts: list[Span] = []
    origins: list[Origin] = []
    for number, entry in enumerate(context):
        where = f"context[{number}]"
        named = entry if isinstance(entry, Mapping) else {"text": entry}
        with naming_field(f"context.{number}"):
            if "text" not in named:
                raise InputError(
                    f"{where} must be a string or a mapping with 'text', 'source', 'page'."
                )
            chunk = check_text(where, named["text"])
            names = (_name(f"{where}[{key!r}]", named.get(key)) for key in ("source", "page"))
            origins.append(Origin(*names))
        text += _BETWEEN if parts else ""
        parts.append((len(text), len(text) + len(chunk)))
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
    """Chat messages as the Chat Completions API takes them; all of their contents may be features.

    Each text of a list of contents and each tool call is a part of the prompt by itself, and so is the
    reasoning before an answer (``reasoning_content``, as many servers return it).
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence):
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
        if role not in ROLES:
            raise InputError(f"{where}: {unknown('role', role, ROLES)}", field=f"messages.{number}")
        text += _BETWEEN if placed else ""
        start = len(text)
        reasoning = list(filter(None, [reasoning_text(message, where)]))
        for i, piece in enumerate([*reasoning, *_pieces(where, message)]):
            text += "\n" if i else ""
            if piece.strip():
                parts.append((len(text), len(text) + len(piece)))
            text += piece
        placed.append(Message(role, start, len(text)))
    if not parts:
        raise InputError("Every message is empty: there is nothing to explain.")
    return Prompt(text, tuple(placed), tuple(parts), "messages")


def answer_text(message: Mapping[str, Any]) -> str:
    """A message of the model as one text: its content, then its tool calls, one per line."""
    return "\n".join(_pieces("The answer", message))


def reasoning_text(message: Mapping[str, Any], where: str = "The answer") -> str:
    """What the model wrote before its answer: part of a prompt, and never of an answer."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(given := message.get(key), str) and given.strip():
            return check_text(f"{where}[{key!r}]", given)
    return ""


def _pieces(where: str, message: Mapping[str, Any]) -> list[str]:
    """The pieces of a message: its content or the parts of it, then every tool call."""
    calls = message.get("tool_calls") or []
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        raise InputError(f"{where}['tool_calls'] must be a list, not {type(calls).__name__}.")
    called = [call_text(f"{where}['tool_calls'][{i}]", call) for i, call in enumerate(calls)]
    if message.get("function_call"):  # the API's older form of a tool call
        called.append(call_text(f"{where}['function_call']", {"function": message["function_call"]}))
    content = message.get("content")
    content = message.get("refusal") if content is None else content
    if content is None and called:
        return called
    if content is None and "content" not in message:
        raise InputError(f"{where} must be a mapping with 'role' and 'content'.")
    at = f"{where}['content']"
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [*(_part(f"{at}[{i}]", part) for i, part in enumerate(content)), *called]
    text = check_text(at, content, may_be_blank=True)
    return [text, *called] if text or not called else called


def _part(where: str, part: object) -> str:
    """A part of a content list: a text, or the text of a refusal."""
    if isinstance(part, Mapping):
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                return check_text(where, part[key], may_be_blank=True)
    kind = part.get("type", "no text") if isinstance(part, Mapping) else type(part).__name__
    raise InputError(f"{where} is {kind}, and only text can be explained. Remove it.")


def call_text(where: str, call: object) -> str:
    """A tool call as text: the tool and its arguments."""
    for kind, given in CALLS.items():
        body = call.get(kind) if isinstance(call, Mapping) else None
        if isinstance(body, Mapping) and isinstance(body.get("name"), str):
            arguments = body.get(given) or ""
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            return check_text(where, f"{body['name']}({arguments})")
    raise InputError(f"{where} must be a tool call: {{'function': {{'name': ..., 'arguments': ...}}}}.")
