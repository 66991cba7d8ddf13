"""One Chat Completions call through the official SDK, to OpenAI or any server that speaks the same."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ropelime.errors import InputError, ModelError
from ropelime.prompt import spoken

OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"

OnText = Callable[[str], None]

_CONNECT = 5.0  # seconds: a server that is not there is told soon, however long an answer may take
_SHORTEST = 8  # characters of a key: what local servers are given for one ("none") is no secret
_OURS = ("model", "messages", "stream", "stream_options", "n", "timeout")  # not sampling options
_SECRET = ("extra_headers", "extra_query")  # they may hold keys, and sampling options are saved
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_LONGEST = 300  # characters of a server's own words in an error
_KEYS = re.compile(r"\bsk-[\w*.…-]{6,}")  # how keys look, also with their middle starred out


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
        asked = [self.base_url, self.model, list(self.messages), dict(self.sampling)]
        return json.dumps(asked, ensure_ascii=False, sort_keys=True)

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
    address = server(base_url)
    if key is None and address == OPENAI:
        raise InputError(
            f"There is no key for {address}. Set {KEY}, pass api_key=..., or name a server that needs "
            "none (base_url=..., --base-url)."
        )
    chosen = dict(sampling or {})
    for name in (*_OURS, *_SECRET):
        if name in chosen:
            why = "is saved with the answer and may hold a key" if name in _SECRET else "is set by ask"
            raise InputError(f"sampling cannot hold {name!r}: it {why}. Take it out.")
    call = Call(model, messages, address, chosen)
    try:
        content = call.content
    except (TypeError, ValueError) as error:
        raise InputError(f"messages and sampling must be plain JSON data ({error}).") from None
    if _hidden(content, key) != content:
        raise InputError("The key itself stands in what is asked, and would be saved. Take it out.")
    return call


def sdk() -> Any:
    """The official SDK, or how to install it."""
    try:
        import openai
    except ImportError:
        raise ModelError("Asking a model needs the SDK: pip install 'ropelime[ask]'") from None
    return openai


def key_of(given: str | None) -> str | None:
    """The key to send: the one given, or that of the environment; None if there is none."""
    return (given or os.environ.get(KEY) or "").strip() or None


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
    guard = partial(_told, openai, call, key, timeout, taken)
    with guard():
        client: Any = openai.OpenAI(
            api_key=key or "none",
            base_url=call.base_url,
            timeout=openai.Timeout(timeout, connect=min(timeout, _CONNECT)),
            max_retries=retries,
        )
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
            ready, held = _split(_hidden(held + (text or ""), key), key if text is not None else None)
            if on_text is not None and ready:
                on_text(ready)
            if text is None:
                break
        with guard():
            said = taken.said()
    if not said.strip():
        raise ModelError(
            f"{call.model} at {call.base_url} gave an empty answer (it ended with {taken.finish!r}). "
            "There is nothing to explain."
        )
    counts = {name: getattr(taken.usage, name, None) for name in _COUNTS}
    usage = {name: count for name, count in counts.items() if isinstance(count, int)}
    said, model, finish = (_hidden(str(t or ""), key) for t in (said, taken.model, taken.finish))
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
        choices = getattr(completion, "choices", None)
        if not choices:
            error = getattr(completion, "error", None)  # some servers say "200, an error"
            raise ValueError(error.get("message") if isinstance(error, dict) else "it has no choices")
        choice = choices[0]
        self.model, self.finish, self.usage = completion.model, choice.finish_reason, completion.usage
        message = choice.message.model_dump(exclude_none=True)
        self.text = spoken({"content": "", **message}, "The answer")
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
            call = self._calls.setdefault(part.index, {"name": "", "arguments": ""})
            for name in call:
                call[name] += getattr(part.function, name, None) or ""

    def said(self) -> str:
        if not self.began:
            raise ValueError("no stream came; stream=False, --no-stream takes it at once")
        if not self.finish:
            raise ValueError("the stream ended before the answer did")
        calls = [{"function": call} for _, call in sorted(self._calls.items())]
        return spoken({"content": self.text, "tool_calls": calls}, "The answer")


@contextmanager
def _told(openai: Any, call: Call, key: str | None, timeout: float, taken: _Whole) -> Iterator[None]:
    """Turn whatever goes wrong into an error that says what happened and what to do, without the key.

    Everything is caught: the SDK lets errors of its HTTP library and of its JSON reader through.
    """
    try:
        yield
    except Exception as error:
        told = _hidden(_wrong(openai, error, call, timeout, len(taken.text)), key)
        raise ModelError(_KEYS.sub("[key]", told)) from None


def _wrong(openai: Any, error: Exception, call: Call, timeout: float, came: int) -> str:
    """What happened, in plain words."""
    server = call.base_url
    if came:
        return (
            f"The answer of {call.model} at {server} broke off after {came} characters "
            f"({_words(error)}). Nothing of it was kept; ask again."
        )
    tries = _tries(error)
    if isinstance(error, openai.APITimeoutError):
        return (
            f"{server} gave no sign within {timeout:g} s{tries}. Allow more (timeout=..., --timeout), "
            "or ask again later."
        )
    if isinstance(error, openai.APIConnectionError):
        why = _words(error.__cause__ or error)
        return f"{server} cannot be reached{tries}: {why}. Check base_url (--base-url) and the network."
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or isinstance(error, openai.APIResponseValidationError):
        return (
            f"{server} gave something that is no Chat Completions answer ({_words(error)}). Check "
            "base_url (--base-url), which often ends in /v1."
        )
    if status == 401:  # servers repeat the key in what they say here
        return f"{server} refused the key (401). Check {KEY}, or api_key=..."
    cure = {
        403: f"The key in {KEY} may not use this model, or not from here.",
        404: f"Check the model's name ({call.model!r}) and base_url (--base-url).",
        429: "Too many requests, or the credit is used up: ask again later.",
    }
    todo = cure.get(status, "Ask again later." if status >= 500 else "Change what is asked.")
    return f"{server} answered {status}{tries}: {_words(error)}. {todo}"


def _tries(error: Exception) -> str:
    """How often the SDK asked; it writes that into the last request's header."""
    headers = getattr(getattr(error, "request", None), "headers", {})
    again = str(headers.get("x-stainless-retry-count", "0"))
    return f" ({int(again) + 1} tries)" if again.isdecimal() and int(again) else ""


def _words(error: BaseException) -> str:
    """One line of what an error or a server says."""
    body = getattr(error, "body", None)
    said = body.get("message") or body.get("detail") if isinstance(body, Mapping) else body
    text = said if isinstance(said, str) and said else str(error)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split()).rstrip(".")
    text = text or type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def server(base_url: str | None) -> str:
    """The server's address; one that holds a password is refused, since addresses are saved."""
    server = (base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI).strip().rstrip("/")
    try:
        parts = urlsplit(server)
        secret = bool(parts.username or parts.password or parts.query)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        secret, good = "@" in server, False
    if secret:
        raise InputError(
            "base_url holds a name, a password or a query, and addresses are saved with the answer. "
            f"Take them out; a key goes into {KEY}."
        )
    if not good:
        raise InputError(f"base_url must be an address such as {OPENAI}, not {server!r}.")
    return server


def _split(text: str, key: str | None) -> tuple[str, str]:
    """What can be shown of a text that goes on, and its end that may turn out to begin the key."""
    if key is None or len(key) < _SHORTEST:
        return text, ""
    longest = next((k for k in range(len(key) - 1, 0, -1) if text.endswith(key[:k])), 0)
    return text[: len(text) - longest], text[len(text) - longest :]


def _hidden(text: str, key: str | None) -> str:
    """The text without the key, should somebody have put it there."""
    return text.replace(key, "[key]") if key is not None and len(key) >= _SHORTEST else text
