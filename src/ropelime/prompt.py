"""What was sent to the model: one prompt, retrieved chunks with a question, or chat messages.

All three become a :class:`Prompt`: messages, the one text that character offsets refer to, and the
parts of it that may be cut into features. Whatever lies outside those parts is pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ropelime.errors import InputError

Span = tuple[int, int]
Kind = Literal["prompt", "context", "messages"]

_BETWEEN = "\n\n"


@dataclass(frozen=True)
class Message:
    """One message: its role, and where its content lies in the text of the prompt."""

    role: str
    start: int
    end: int


@dataclass(frozen=True)
class Prompt:
    """The input of the explained answer.

    Attributes:
        text: Everything that was sent, in order; features are spans of it.
        messages: The messages that the text is made of.
        parts: The spans that may hold features: the prompt, the chunks, or the messages.
        kind: Which of the three forms it came in.
    """

    text: str
    messages: tuple[Message, ...]
    parts: tuple[Span, ...]
    kind: Kind

    def content(self, message: Message) -> str:
        """The text of one message."""
        return self.text[message.start : message.end]


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


def from_context(context: Sequence[str], question: str | None) -> Prompt:
    """Retrieved chunks and the question about them; the question is pinned."""
    if isinstance(context, str) or not isinstance(context, Sequence):
        raise InputError("context must be a list of strings, one for each chunk.")
    if not context:
        raise InputError("context is empty. Pass at least one chunk of text.")
    text = "Context:\n"
    parts: list[Span] = []
    for number, chunk in enumerate(context):
        text += _BETWEEN if parts else ""
        check_text(f"context[{number}]", chunk)
        parts.append((len(text), len(text) + len(chunk)))
        text += chunk
    if question is not None:
        text += _BETWEEN + check_text("question", question)
    return Prompt(text, (Message("user", 0, len(text)),), tuple(parts), "context")


def from_messages(messages: Sequence[Mapping[str, Any]]) -> Prompt:
    """Chat messages, each a mapping with ``role`` and ``content``; all contents may be features."""
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise InputError("messages must be a list of {'role': ..., 'content': ...}.")
    if not messages:
        raise InputError("messages is empty. Pass at least one message.")
    text = ""
    placed: list[Message] = []
    parts: list[Span] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise InputError(f"{where} must be a mapping with 'role' and 'content'.")
        role = check_text(f"{where}['role']", message["role"])
        content = check_text(f"{where}['content']", message["content"], may_be_blank=True)
        text += _BETWEEN if placed else ""
        placed.append(Message(role, len(text), len(text) + len(content)))
        if content.strip():
            parts.append((len(text), len(text) + len(content)))
        text += content
    if not parts:
        raise InputError("Every message is empty: there is nothing to explain.")
    return Prompt(text, tuple(placed), tuple(parts), "messages")
