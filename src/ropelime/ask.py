"""Ask a closed model once, and explain what it said."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropelime.clients.cache import Cache
from ropelime.clients.openai import Answer, Call, OnText, complete, prepare, request, server
from ropelime.clients.sdk import Server, key_of, sdk
from ropelime.errors import InputError
from ropelime.explain import explain, read_prompt
from ropelime.progress import note
from ropelime.results.explanation import Explanation
from ropelime.study import Choices, check_suits
from ropelime.surrogate import Ablation, resolve_surrogates
from ropelime.surrogate.loading import cache_folder
from ropelime.text import integrations as adapters
from ropelime.text.prompt import Prompt

_OURS = ("prompt", "output", "response", "request")  # what ask finds out for explain
_CUT = {
    "length": "The answer was cut off at the longest that was allowed.",
    "content_filter": "The answer was cut off by the server's filter.",
}


@dataclass(frozen=True)
class Said:
    """What a closed model said.

    Attributes:
        text: The answer.
        record: By whom it was given, how, and at what cost.
        note: What the reader should know about it; empty where nothing is.
    """

    text: str
    record: dict[str, Any]
    note: str = ""

    def into(self, e: Explanation) -> Explanation:
        """The explanation of the answer with what is known about it."""
        notes = filter(None, [self.note])
        return dataclasses.replace(
            e,
            config={**e.config, "answer": self.record},
            diagnostics=dataclasses.replace(e.diagnostics, notes=(*e.diagnostics.notes, *notes)),
        )


@dataclass(frozen=True)
class AnsweringModel:
    """A closed model and how it is asked; see :func:`ask` for what each option means."""

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    sampling: Mapping[str, Any] | None = None
    price: tuple[float, float] | None = None
    timeout: float = 120.0
    retries: int = 2
    cache: bool = True

    def __post_init__(self) -> None:
        """Refuse what is wrong before anything is sent."""
        _check(self.timeout, self.retries, self.price)

    def describe(self) -> dict[str, Any]:
        """Who is asked, and how, as plain data and without a key."""
        sampling = dict(self.sampling or {})
        return {"model": self.model, "base_url": server(self.base_url), "sampling": sampling}

    def call(self, asked: Prompt, messages: Any = None) -> Call:
        """What will be sent for a prompt."""
        sent = adapters.as_messages(messages) or [{"role": "user", "content": asked.text}]
        key = key_of(self.api_key)
        return prepare(self.model, sent, base_url=self.base_url, sampling=self.sampling, key=key)

    def known(self, call: Call) -> Said | None:
        """The answer, if the same was asked before."""
        answer = Cache(_folder()).get(call) if self.cache else None
        return None if answer is None else self._said(call, answer, cached=True)

    def answer(self, call: Call, *, stream: bool = False, on_text: OnText | None = None) -> Said:
        """Ask, once, and keep the answer."""
        return self._kept(call, complete(call, self._server(call), stream=stream, on_text=on_text))

    async def known_or_answer(self, call: Call) -> Said:
        """The same in an event loop, where several can be asked at once."""
        return self.known(call) or self._kept(call, await request(call, self._server(call)))

    def _server(self, call: Call) -> Server:
        return Server(call.base_url, key_of(self.api_key), self.timeout, self.retries)

    def _kept(self, call: Call, answer: Answer) -> Said:
        if self.cache:
            _keep(Cache(_folder()), call, answer)
        return self._said(call, answer, cached=False)

    def _said(self, call: Call, answer: Answer, *, cached: bool) -> Said:
        record = _record(call, answer, self.price, cached=cached)
        return Said(answer.text, record, _CUT.get(answer.finish_reason, ""))


def ask(
    question: str | None = None,
    *,
    model: str,
    context: Sequence[str | Mapping[str, Any] | Any] | None = None,
    messages: Sequence[Mapping[str, Any] | Any] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    sampling: Mapping[str, Any] | None = None,
    price: tuple[float, float] | None = None,
    timeout: float = 120.0,
    retries: int = 2,
    cache: bool = True,
    stream: bool | None = None,
    on_text: OnText | None = None,
    on_answer: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Explanation:
    """Ask a closed model, once, and explain which parts of the prompt carried its answer.

    It is asked through the official SDK (``pip install 'ropelime[ask]'``), at OpenAI's or any server
    that speaks the Chat Completions API. By whom it was answered, how, and at what cost is in
    ``e.config["answer"]``; a key never is.

    Args:
        question: What to ask: about the context if there is one, else the whole prompt.
        model: The model's name at the server.
        context: Retrieved chunks; see :func:`ropelime.explain`.
        messages: Chat messages, instead of a question.
        base_url: The server; ``OPENAI_BASE_URL`` or OpenAI's if not given.
        api_key: The key; ``OPENAI_API_KEY`` if not given. Other servers than OpenAI's may need none.
        sampling: Other arguments of the call: ``temperature``, ``max_tokens``, ``tools``, ...
        price: What a million tokens of the prompt and of the answer cost, in any currency.
        timeout: Seconds without a sign of the server after which it is given up.
        retries: How often the SDK asks again, with growing pauses, when the server is busy (429), fails
            (5xx), is lost or gives no sign in time. Once a piece of a streamed answer has come, nothing
            is asked again.
        cache: Keep the answer in the user's cache folder, and take it from there if the same model at
            the same server was asked the same with the same sampling options before.
        stream: Take the answer in pieces; if not given, when there is ``on_text``.
        on_text: Called with each piece of the answer as it comes, or once with all of it.
        on_answer: Called with what ``e.config["answer"]`` will hold, once the answer is whole and
            before it is explained.
        **options: All other options of :func:`ropelime.explain`, such as ``features``.
    """
    if taken := sorted(name for name in options if name in _OURS):
        raise InputError(f"ask() finds out {' and '.join(taken)} itself; pass question or messages.")
    chosen = inspect.signature(explain).bind(**options)  # refuses names that explain does not know
    chosen.apply_defaults()
    asked = _prompt(question, context, messages)
    closed = AnsweringModel(model, base_url, api_key, sampling, price, timeout, retries, cache)
    call = closed.call(asked, messages)
    said = closed.known(call)
    if said is None:
        sdk()

    # What can be refused is refused before anything is paid: names, features, the surrogate's window.
    wanted = chosen.arguments
    choices = Choices(**{field.name: wanted[field.name] for field in dataclasses.fields(Choices)})
    say = None if wanted["progress"] is False else note
    models = resolve_surrogates(wanted["surrogate"], say=say)
    check_suits(models, choices, wanted["also"])
    for reader in models:
        reader.prepare(asked, choices.features, ".", ablation=Ablation.of(choices.ablation))

    if said is None:
        streamed = on_text is not None if stream is None else stream
        said = closed.answer(call, stream=streamed, on_text=on_text)
    elif on_text is not None:
        on_text(said.text)
    if on_answer is not None:
        on_answer(said.record)

    given: dict[str, Any] = {"prompt": question if asked.kind == "prompt" else None}
    given |= {"context": context, "question": question} if asked.kind == "context" else {}
    e = explain(
        **given,
        messages=messages,
        output=said.text,
        **options | {"surrogate": models if len(models) > 1 else models[0]},
    )
    return said.into(e)


def _prompt(question: Any, context: Any, messages: Any) -> Prompt:
    if context is not None and question is None:
        raise InputError("There is context and no question: say what to ask about it.")
    if messages is not None and question is not None:
        raise InputError("Pass a question or messages=[...], not both.")
    if question is None and messages is None:
        raise InputError("There is nothing to ask: pass a question, or messages=[...].")
    alone = question if context is None else None
    return read_prompt(alone, context, None if context is None else question, messages)


def _check(timeout: float, retries: int, price: Any) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InputError(f"retries must be a whole number that is not negative, not {retries!r}.")
    if price is None:
        return
    try:
        into, out = (float(value) for value in price)
    except (TypeError, ValueError):
        into = out = math.nan
    if not (0 <= into < math.inf and 0 <= out < math.inf):
        raise InputError(
            f"price must be two numbers, what a million tokens in and out cost, not {price!r}."
        )


def _folder() -> Path:
    return cache_folder() / "answers"


def _keep(kept: Cache, call: Call, answer: Answer) -> None:
    try:
        kept.put(call, answer)
    except OSError as error:  # the answer is there and paid for: it is explained all the same
        note(f"ropelime: the answer could not be kept in {kept.folder}: {error.strerror}")


def _record(
    call: Call, answer: Answer, price: tuple[float, float] | None, *, cached: bool
) -> dict[str, Any]:
    """What an explanation says about its answer."""
    cost = None
    if price is not None and {"prompt_tokens", "completion_tokens"} <= answer.usage.keys():
        tokens = (answer.usage["prompt_tokens"], answer.usage["completion_tokens"])
        cost = sum(count * float(each) / 1e6 for count, each in zip(tokens, price, strict=True))
    return {
        "model": call.model,
        "served_as": answer.model,
        "base_url": call.base_url,
        "sampling": dict(call.sampling),
        "finish_reason": answer.finish_reason,
        "usage": dict(answer.usage),
        "price_per_million": None if price is None else [float(each) for each in price],
        "cost": cost,  # of the call that gave the answer, also where it came out of the cache
        "cached": cached,
        "retries": answer.retries,
    }
