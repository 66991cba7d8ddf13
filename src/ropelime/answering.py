"""A model behind a server: how it is called, its answer, and what the call cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ropelime.clients.openai import Answer, Cache, Call, OnText, complete, receive, request, server
from ropelime.clients.openai import prepare as prepare_call
from ropelime.clients.sdk import Server, check_retries, key_of
from ropelime.errors import InputError
from ropelime.progress import note
from ropelime.results.explanation import ExplanationData
from ropelime.surrogate.embedded import cache_folder
from ropelime.text.prompt import Prompt

E = TypeVar("E", bound=ExplanationData)

_CUT = {
    "length": "The answer was cut off at the longest that was allowed.",
    "content_filter": "The answer was cut off by the server's filter.",
}


@dataclass(frozen=True)
class GivenAnswer:
    """What the answering model gave."""

    text: str
    record: dict[str, Any]  # the model, its settings, and the cost
    note: str = ""  # what the reader should know about it

    def into(self, e: E) -> E:
        """The explanation of the answer with what is known about it."""
        notes = (*e.diagnostics.notes, *filter(None, [self.note]))
        diagnostics = dataclasses.replace(e.diagnostics, notes=notes)
        config = {**e.config, "answer": self.record}
        return dataclasses.replace(e, config=config, diagnostics=diagnostics)


@dataclass(frozen=True)
class AnsweringModel:
    """A model behind a server and how it is called; :func:`ropelime.ask` documents the options."""

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    sampling: Mapping[str, Any] | None = None
    price: tuple[float, float] | None = None
    timeout: float = 120.0
    retries: int = 2
    cache: bool = True

    def __post_init__(self) -> None:
        timeout = self.timeout
        price = (0, 0) if self.price is None else self.price
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not (number and 0 < timeout < math.inf):
            raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
        check_retries(self.retries)
        try:
            into, out = map(float, price)
        except (TypeError, ValueError):
            into = out = math.nan
        if not (0 <= into < math.inf and 0 <= out < math.inf):
            raise InputError(
                f"price must be two numbers, what a million tokens in and out cost, not {price!r}."
            )

    def describe(self) -> dict[str, Any]:
        """Model, server and settings as plain data, without a key."""
        sampling = dict(self.sampling or {})
        return {"model": self.model, "base_url": server(self.base_url), "sampling": sampling}

    def call(self, prompt: Prompt, messages: Any = None) -> Call:
        """What will be sent for a prompt."""
        sent = messages or [{"role": "user", "content": prompt.text}]
        key = key_of(self.api_key)
        return prepare_call(self.model, sent, base_url=self.base_url, sampling=self.sampling, key=key)

    def known(self, call: Call) -> GivenAnswer | None:
        """The answer, if the same was asked before."""
        answer = _cache().get(call) if self.cache else None
        return None if answer is None else self._given(call, answer, cached=True)

    def answer(self, call: Call, *, stream: bool = False, on_text: OnText | None = None) -> GivenAnswer:
        """Ask, once, and keep the answer."""
        return self._kept(call, complete(call, self._server(call), stream=stream, on_text=on_text))

    def receive(self, call: Call) -> Generator[str | None, None, GivenAnswer]:
        """The same, yielding the pieces of the answer as they arrive; None when none is waiting."""
        return self._kept(call, (yield from receive(call, self._server(call))))

    async def known_or_answer(self, call: Call) -> GivenAnswer:
        """The same in an event loop, where several can be asked at once."""
        return self.known(call) or self._kept(call, await request(call, self._server(call)))

    def cost(self, usage: Mapping[str, int]) -> float | None:
        """What a call cost, if there are prices and the server counted the tokens."""
        if self.price is None or not {"prompt_tokens", "completion_tokens"} <= usage.keys():
            return None
        tokens = (usage["prompt_tokens"], usage["completion_tokens"])
        return sum(count * float(each) / 1e6 for count, each in zip(tokens, self.price, strict=True))

    def _server(self, call: Call) -> Server:
        return Server(call.base_url, key_of(self.api_key), self.timeout, self.retries)

    def _kept(self, call: Call, answer: Answer) -> GivenAnswer:
        if self.cache:
            try:
                _cache().put(call, answer)
            except (OSError, InputError) as error:  # it is paid for: it is explained all the same
                note(f"ropelime: the answer could not be kept in {_cache().folder}: {error}")
        return self._given(call, answer, cached=False)

    def _given(self, call: Call, answer: Answer, *, cached: bool) -> GivenAnswer:
        record: dict[str, Any] = {
            "model": call.model,
            "served_as": answer.model,
            "base_url": call.base_url,
            "sampling": dict(call.sampling),
            "finish_reason": answer.finish_reason,
            "usage": dict(answer.usage),
            "price_per_million": None if self.price is None else [float(each) for each in self.price],
            # Of the call that gave the answer, also where it came out of the cache.
            "cost": self.cost(answer.usage),
            "cached": cached,
            "retries": answer.retries,
        }
        if not all(_is_plain(message) for message in call.messages):  # the prompt has their text alone
            record["messages"] = [dict(message) for message in call.messages]
        return GivenAnswer(answer.text, record, _CUT.get(answer.finish_reason, ""))


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a message is a role and a text."""
    return set(message) <= {"role", "content"} and isinstance(message.get("content"), str)


def _cache() -> Cache:
    return Cache(cache_folder() / "answers")
