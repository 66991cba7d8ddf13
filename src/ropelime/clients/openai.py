"""Chat Completions calls through the official SDK, to OpenAI or any compatible server."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ropelime.clients.bounds import in_time
from ropelime.clients.masking import hidden, split_at_key
from ropelime.clients.pool import Pool
from ropelime.clients.sdk import KEY, OPENAI, Server, address, choice_of
from ropelime.errors import EmptyAnswerError, InputError
from ropelime.files import dump, replacing
from ropelime.text.prompt import answer_text

OnText = Callable[[str], None]

_RESERVED = ("model", "messages", "stream", "stream_options", "n", "timeout")  # not sampling options
_SECRET = ("extra_headers", "extra_query")  # they may hold keys, and sampling options are saved
_ENTRY = {"format": "ropelime.answer", "version": 1}  # what every entry of the cache holds
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(frozen=True)
class Call:
    """A request and its server: all that an answer depends on."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    base_url: str
    sampling: Mapping[str, Any] = field(default_factory=dict)  # other arguments: temperature, ...

    @property
    def content(self) -> str:
        """All of it as canonical JSON, the same for the same call."""
        # The order of arguments does not matter. That of their content does: a model that answers by a
        # JSON schema fills in its properties from the first to the last.
        messages = [dict(sorted(message.items())) for message in self.messages]
        parts = [self.base_url, self.model, messages, dict(sorted(self.sampling.items()))]
        return json.dumps(parts, ensure_ascii=False, allow_nan=False)

    @property
    def digest(self) -> str:
        """A name for it that reveals nothing about it."""
        return hashlib.sha256(self.content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Answer:
    """The answer to a call, with its tool calls as text."""

    text: str
    model: str  # as the server calls it
    finish_reason: str  # "stop", "length", ...
    usage: Mapping[str, int] = field(default_factory=dict)  # tokens, if the server counts them
    retries: int = 0  # how often the SDK had to repeat the request


@dataclass(frozen=True)
class Cache:
    """A folder of answers, so that the same request is paid for only once.

    An entry is one small file, named by a digest of the request and readable by its owner only. It
    holds the answer, not the request, and never a key.
    """

    folder: Path

    def get(self, call: Call) -> Answer | None:
        """The cached answer to this call; None if there is none, or if it is damaged."""
        try:
            entry = json.loads(self._path(call).read_text(encoding="utf-8"))
            answer = Answer(**entry.pop("answer"))
            texts = (answer.text, answer.model, answer.finish_reason)
            counts = (*answer.usage.values(), answer.retries)
            whole = all(isinstance(t, str) for t in texts) and all(isinstance(c, int) for c in counts)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None  # missing or damaged: the request is sent again and the entry overwritten
        return answer if entry == _ENTRY and whole and answer.text else None

    def put(self, call: Call, answer: Answer) -> None:
        """Store an answer atomically; of several writers the last one wins."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(self._path(call)) as file:
            file.write(dump({**_ENTRY, "answer": asdict(answer)}))

    def _path(self, call: Call) -> Path:
        return self.folder / f"{call.digest}.json"


def prepare(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    base_url: str | None,
    sampling: Mapping[str, Any] | None,
    key: str | None,
) -> Call:
    """Check a request before anything is sent; it is saved, so the key must not be in it."""
    if not isinstance(model, str) or not model.strip():
        raise InputError(f"model must be the name of a model, such as 'gpt-4o-mini', not {model!r}.")
    url = server(base_url)
    if key is None and url == OPENAI:
        raise InputError(
            f"There is no key for {url}. Set {KEY}, pass api_key=..., or name a server that needs none "
            "(base_url=..., --base-url)."
        )
    chosen = dict(sampling or {})
    for name in (*_RESERVED, *_SECRET):
        if name in chosen:
            why = "is saved with the answer and may hold a key" if name in _SECRET else "is set by ask"
            raise InputError(f"sampling cannot hold {name!r}: it {why}. Remove it.")
    call = Call(model, messages, url, chosen)
    try:
        content = call.content
    except (TypeError, ValueError) as error:
        raise InputError(f"messages and sampling must be plain JSON data ({error}).") from None
    if hidden(content, key) != content:
        raise InputError("The request holds the key itself, which would be saved. Remove it.")
    return call


def server(base_url: str | None) -> str:
    """The server's address: the given one, that of ``OPENAI_BASE_URL``, or OpenAI's."""
    return address(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI)


def complete(
    call: Call, server: Server, *, stream: bool = False, on_text: OnText | None = None
) -> Answer:
    """As :func:`request`; ``on_text`` is called in this thread, whose interruption cancels it."""
    with closing(receive(call, server, stream=stream)) as pieces:
        while True:
            try:
                text = next(pieces)
            except StopIteration as stop:
                answer: Answer = stop.value
                return answer
            if text is not None and on_text is not None:
                on_text(text)


def receive(call: Call, server: Server, *, stream: bool = True) -> Generator[str | None, None, Answer]:
    """Send one request; yields each piece of the answer as it arrives, and returns all of it.

    None is yielded when nothing is waiting. Closing the generator cancels the request.
    """

    async def work(put: Callable[[str | Answer], None]) -> None:
        put(await request(call, server, stream=stream, on_text=put))

    with Pool(1) as pool:
        for item in pool.stream(work):
            if isinstance(item, Answer):
                return item
            yield item
    raise AssertionError("a stream ends with its answer or an error")


async def request(
    call: Call, server: Server, *, stream: bool = False, on_text: OnText | None = None
) -> Answer:
    """Send one request; ``on_text`` is called with each piece of a streamed answer, or with all of it.

    The SDK repeats it, with growing pauses, when the server is too busy (429), fails (5xx), cannot be
    reached or sends nothing in time; a server may charge for requests that it did not complete. Once a
    piece of a streamed answer has arrived, nothing is repeated.
    """
    sent = _request(call, server, stream=stream, on_text=on_text)
    return await in_time(sent, server.base_url, server.timeout)


async def _request(call: Call, server: Server, *, stream: bool, on_text: OnText | None) -> Answer:
    taken, key = _Streamed() if stream else _Whole(), server.key
    guard = partial(server.readable_errors, call.model, lambda: len(taken.text))
    with guard():
        client = server.client()
    async with client:
        with guard():
            raw = await client.chat.completions.with_raw_response.create(
                model=call.model, messages=list(call.messages), **taken.how, **call.sampling
            )
            repeated = int(getattr(raw, "retries_taken", 0))
            held = ""  # the end of what has arrived, where it may be the beginning of the key
            async for text in taken.pieces(raw.parse()):
                shown, held = split_at_key(hidden(held + text, key), key)
                if on_text is not None and shown:
                    on_text(shown)
            if on_text is not None and held:
                on_text(held)
            answer = taken.answer()
    counts = {name: getattr(taken.usage, name, None) for name in _COUNTS}
    usage = {name: count for name, count in counts.items() if isinstance(count, int)}
    if not answer.strip():
        raise EmptyAnswerError(
            f"{call.model} at {call.base_url} gave an empty answer (it ended with {taken.finish!r}). "
            "There is nothing to explain.",
            usage,
        )
    answer, model, finish = (hidden(str(t or ""), key) for t in (answer, taken.model, taken.finish))
    return Answer(answer, model, finish, usage, repeated)


class _Whole:
    """An answer that arrives at once."""

    how: Mapping[str, Any] = {}
    text = ""
    model: Any = None
    finish: Any = None
    usage: Any = None

    async def pieces(self, completion: Any) -> AsyncIterator[str]:
        choice = choice_of(completion)
        self.model, self.finish, self.usage = completion.model, choice.finish_reason, completion.usage
        message = choice.message.model_dump(exclude_none=True)
        content = message.get("content") or message.get("refusal") or ""
        self.text = answer_text({**message, "content": content})
        yield self.text

    def answer(self) -> str:
        return self.text


class _Streamed(_Whole):
    """An answer that arrives in pieces."""

    how: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def __init__(self) -> None:
        self.began = False
        self._calls: dict[int, dict[str, str]] = {}

    async def pieces(self, stream: Any) -> AsyncIterator[str]:
        async for chunk in stream:
            self.began = True
            self.model = chunk.model or self.model
            self.usage = getattr(chunk, "usage", None) or self.usage  # in the last one, or after it
            for choice in chunk.choices[:1]:
                self.finish = choice.finish_reason or self.finish
                self._add_calls(getattr(choice.delta, "tool_calls", None) or [])
                text = choice.delta.content or getattr(choice.delta, "refusal", None) or ""
                self.text += text
                yield text

    def _add_calls(self, parts: Sequence[Any]) -> None:
        for part in parts:
            index = part.index
            if index is None:  # some servers leave it out: a part with a name begins another call
                named = bool(getattr(part.function, "name", None))
                index = max(self._calls, default=-1) + (named or not self._calls)
            call = self._calls.setdefault(index, {"name": "", "arguments": ""})
            for name in call:
                call[name] += getattr(part.function, name, None) or ""

    def answer(self) -> str:
        if not self.began:
            raise ValueError("no stream came; stream=False, --no-stream takes it at once")
        if not self.finish:
            raise ValueError("the stream ended before the answer did")
        calls = [{"function": call} for _, call in sorted(self._calls.items())]
        return answer_text({"content": self.text, "tool_calls": calls})
