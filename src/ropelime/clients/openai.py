"""One Chat Completions call through the official SDK, to OpenAI or any server that speaks the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ropelime.clients.sdk import (
    KEY,
    OPENAI,
    Server,
    address,
    choice_of,
    hidden,
    sdk,
    split_at_key,
)
from ropelime.errors import DeclinedError, InputError
from ropelime.text.prompt import message_text

OnText = Callable[[str], None]

_OURS = ("model", "messages", "stream", "stream_options", "n", "timeout")  # not sampling options
_SECRET = ("extra_headers", "extra_query")  # they may hold keys, and sampling options are saved
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(frozen=True)
class Call:
    """What is asked, and of whom; an answer depends on nothing else.

    Attributes:
        model: The model's name at the server.
        messages: The messages, as the Chat Completions API takes them.
        base_url: The server.
        sampling: Other arguments of the call, such as ``temperature``.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    base_url: str
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """All of it as one text, the same for the same call."""
        # The order of arguments is of no matter, that of what they hold is: a model that answers by a
        # schema goes through it from the first property to the last.
        messages = [dict(sorted(message.items())) for message in self.messages]
        asked = [self.base_url, self.model, messages, dict(sorted(self.sampling.items()))]
        return json.dumps(asked, ensure_ascii=False, allow_nan=False)

    @property
    def digest(self) -> str:
        """A name for it that tells nothing about it."""
        return hashlib.sha256(self.content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        text: The answer; tool calls as text.
        model: What the server calls the model that gave it.
        finish_reason: Why it ended: ``"stop"``, ``"length"``, ...
        usage: Tokens of the prompt, of the answer and of both; empty if the server did not say.
        retries: How often the SDK had to ask again before it was answered.
    """

    text: str
    model: str
    finish_reason: str
    usage: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0


def prepare(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    base_url: str | None,
    sampling: Mapping[str, Any] | None,
    key: str | None,
) -> Call:
    """Check what is about to be asked, before anything is sent.

    Args:
        model: The model's name at the server.
        messages: The messages.
        base_url: The server; ``OPENAI_BASE_URL`` or OpenAI's if not given.
        sampling: Other arguments of the call.
        key: The key that will be sent: it must not stand in what is kept.
    """
    if not isinstance(model, str) or not model.strip():
        raise InputError(f"model must be the name of a model, such as 'gpt-4o-mini', not {model!r}.")
    asked = server(base_url)
    if key is None and asked == OPENAI:
        raise InputError(
            f"There is no key for {asked}. Set {KEY}, pass api_key=..., or name a server that needs "
            "none (base_url=..., --base-url)."
        )
    chosen = dict(sampling or {})
    for name in (*_OURS, *_SECRET):
        if name in chosen:
            why = "is saved with the answer and may hold a key" if name in _SECRET else "is set by ask"
            raise InputError(f"sampling cannot hold {name!r}: it {why}. Take it out.")
    call = Call(model, messages, asked, chosen)
    try:
        content = call.content
    except (TypeError, ValueError) as error:
        raise InputError(f"messages and sampling must be plain JSON data ({error}).") from None
    if hidden(content, key) != content:
        raise InputError("The key itself stands in what is asked, and would be saved. Take it out.")
    return call


def server(base_url: str | None) -> str:
    """The address that is asked: the given one, that of ``OPENAI_BASE_URL``, or OpenAI's."""
    return address(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI)


def complete(
    call: Call,
    *,
    key: str | None,
    timeout: float,
    retries: int,
    stream: bool = False,
    on_text: OnText | None = None,
) -> Answer:
    """Ask once.

    The SDK asks again, with growing pauses, when the server is too busy (429), fails (5xx), is lost or
    gives no sign within the time; a server may charge for what it was asked and could not deliver. Once
    a piece of a streamed answer has come, nothing is asked again.

    Args:
        call: What to ask.
        key: The key; None for servers that need none.
        timeout: Seconds without a sign of the server after which it is given up.
        retries: How often to ask again.
        stream: Take the answer in pieces as they come.
        on_text: Called with each piece, or with the whole answer if it is not streamed.
    """
    openai = sdk()
    taken = _Streamed() if stream else _Whole()
    server = Server(call.base_url, key, timeout, retries)
    guard = partial(server.told, call.model, lambda: len(taken.text))
    with guard():
        client: Any = openai.OpenAI(**server.options())
    with client:
        with guard():
            raw = client.chat.completions.with_raw_response.create(
                model=call.model, messages=list(call.messages), **taken.how, **call.sampling
            )
            again = int(getattr(raw, "retries_taken", 0))
            pieces = taken.pieces(raw.parse())
        held = ""  # the end of what came, where it may be the beginning of the key
        while True:
            with guard():  # around each piece, so that what on_text raises stays what it is
                text = next(pieces, None)
            ready, held = split_at_key(
                hidden(held + (text or ""), key), key if text is not None else None
            )
            if on_text is not None and ready:
                on_text(ready)
            if text is None:
                break
        with guard():
            said = taken.said()
    if not said.strip():
        raise DeclinedError(
            f"{call.model} at {call.base_url} gave an empty answer (it ended with {taken.finish!r}). "
            "There is nothing to explain."
        )
    counts = {name: getattr(taken.usage, name, None) for name in _COUNTS}
    usage = {name: count for name, count in counts.items() if isinstance(count, int)}
    said, model, finish = (hidden(str(t or ""), key) for t in (said, taken.model, taken.finish))
    return Answer(said, model, finish, usage, again)


class _Whole:
    """An answer that comes at once."""

    how: Mapping[str, Any] = {}
    text = ""
    model: Any = None
    finish: Any = None
    usage: Any = None

    def pieces(self, completion: Any) -> Iterator[str]:
        """The text of the answer, as it comes."""
        choice = choice_of(completion)
        self.model, self.finish, self.usage = completion.model, choice.finish_reason, completion.usage
        message = choice.message.model_dump(exclude_none=True)
        content = message.get("content") or message.get("refusal") or ""
        self.text = message_text({**message, "content": content}, "The answer")
        yield self.text

    def said(self) -> str:
        """All of it."""
        return self.text


class _Streamed(_Whole):
    """An answer that comes in pieces."""

    how: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def __init__(self) -> None:
        self.began = False
        self._calls: dict[int, dict[str, str]] = {}

    def pieces(self, stream: Any) -> Iterator[str]:
        for chunk in stream:
            self.began = True
            self.model = chunk.model or self.model
            self.usage = getattr(chunk, "usage", None) or self.usage  # in the last one, or after it
            for choice in chunk.choices[:1]:
                self.finish = choice.finish_reason or self.finish
                self._call(getattr(choice.delta, "tool_calls", None) or [])
                text = choice.delta.content or getattr(choice.delta, "refusal", None) or ""
                self.text += text
                yield text

    def _call(self, parts: Sequence[Any]) -> None:
        for part in parts:
            index = part.index
            if index is None:  # some servers leave it out: a call with a name is another one
                named = bool(getattr(part.function, "name", None))
                index = max(self._calls, default=-1) + (named or not self._calls)
            call = self._calls.setdefault(index, {"name": "", "arguments": ""})
            for name in call:
                call[name] += getattr(part.function, name, None) or ""

    def said(self) -> str:
        if not self.began:
            raise ValueError("no stream came; stream=False, --no-stream takes it at once")
        if not self.finish:
            raise ValueError("the stream ended before the answer did")
        calls = [{"function": call} for _, call in sorted(self._calls.items())]
        return message_text({"content": self.text, "tool_calls": calls}, "The answer")
