"""Call an answering model once, and explain its answer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ropelime.clients.openai import Answer, Cache, Call, OnText, complete, request, server
from ropelime.clients.openai import prepare as prepare_call
from ropelime.clients.sdk import Server, key_of, sdk
from ropelime.errors import InputError
from ropelime.explain import Explanation, check, explain_one
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.progress import Option as ProgressOption
from ropelime.progress import note
from ropelime.steps import Task
from ropelime.surrogate import resolve_surrogates
from ropelime.surrogate.base import Surrogate
from ropelime.surrogate.embedded import cache_folder
from ropelime.text.integrations import as_chunks, as_messages
from ropelime.text.prompt import Prompt, read_prompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

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

    def into(self, e: Explanation) -> Explanation:
        """The explanation of the answer with what is known about it."""
        notes = (*e.diagnostics.notes, *filter(None, [self.note]))
        diagnostics = dataclasses.replace(e.diagnostics, notes=notes)
        config = {**e.config, "answer": self.record}
        return dataclasses.replace(e, config=config, diagnostics=diagnostics)


@dataclass(frozen=True)
class AnsweringModel:
    """A model behind a server and how it is called; see :func:`ask` for what each option means."""

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    sampling: Mapping[str, Any] | None = None
    price: tuple[float, float] | None = None
    timeout: float = 120.0
    retries: int = 2
    cache: bool = True

    def __post_init__(self) -> None:
        timeout, retries = self.timeout, self.retries
        price = (0, 0) if self.price is None else self.price
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not (number and 0 < timeout < math.inf):
            raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InputError(f"retries must be a whole number that is not negative, not {retries!r}.")
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

    async def known_or_answer(self, call: Call) -> GivenAnswer:
        """The same in an event loop, where several can be asked at once."""
        return self.known(call) or self._kept(call, await request(call, self._server(call)))

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
        price = None if self.price is None else [float(each) for each in self.price]
        cost = None
        if price is not None and {"prompt_tokens", "completion_tokens"} <= answer.usage.keys():
            tokens = (answer.usage["prompt_tokens"], answer.usage["completion_tokens"])
            cost = sum(count * each / 1e6 for count, each in zip(tokens, price, strict=True))
        record = {
            "model": call.model,
            "served_as": answer.model,
            "base_url": call.base_url,
            "sampling": dict(call.sampling),
            "finish_reason": answer.finish_reason,
            "usage": dict(answer.usage),
            "price_per_million": price,
            "cost": cost,  # of the call that gave the answer, also where it came out of the cache
            "cached": cached,
            "retries": answer.retries,
        }
        return GivenAnswer(answer.text, record, _CUT.get(answer.finish_reason, ""))


@takes_options
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
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    progress: ProgressOption = "auto",
    **options: Unpack[OptionKeywords],
) -> Explanation:
    """Call a model once, and explain which parts of the prompt its answer depends on.

    The call goes through the official SDK (``pip install 'ropelime[ask]'``), to OpenAI or any server
    that speaks the Chat Completions API. ``e.config["answer"]`` records it, without the key.

    Args:
        question: The question: about the context if there is one, else the whole prompt.
        model: The answering model's name at the server.
        context: Retrieved chunks; see :func:`ropelime.explain`.
        messages: Chat messages, instead of a question.
        base_url: The server; ``OPENAI_BASE_URL`` or OpenAI's if not given.
        api_key: The key; ``OPENAI_API_KEY`` if not given. Other servers may need none.
        sampling: Other arguments of the call: ``temperature``, ``max_tokens``, ``tools``, ...
        price: Price of a million prompt tokens and of a million completion tokens, in any currency.
        timeout: Seconds of silence after which the call is given up.
        retries: How often the SDK repeats a failed call; never once a streamed answer has begun.
        cache: Keep the answer in the user's cache folder, and do not repeat a call that is there.
        stream: Receive the answer in pieces; if not given, when there is ``on_text``.
        on_text: Called with each piece of the answer as it arrives, or once with all of it.
        on_answer: Called with ``e.config["answer"]`` before the answer is explained.
        surrogate: See :func:`ropelime.explain`.
        progress: See :func:`ropelime.explain`.
        **options: See :class:`ropelime.options.Options`.
    """
    chosen = Options.of(options, caller="ask")
    prompt = _prompt(question, as_chunks(context), as_messages(messages))
    answering = AnsweringModel(model, base_url, api_key, sampling, price, timeout, retries, cache)
    call = answering.call(prompt, as_messages(messages))
    if (known := answering.known(call)) is None:
        sdk()
    # Whatever can be refused is refused before anything is paid: names, features, the context window.
    models = resolve_surrogates(surrogate, say=None if progress is False else note)
    check(prompt, chosen, models)
    if known is not None and on_text is not None:
        on_text(known.text)
    streamed = on_text is not None if stream is None else stream
    answer = known or answering.answer(call, stream=streamed, on_text=on_text)
    if on_answer is not None:
        on_answer(answer.record)
    return answer.into(explain_one(Task(prompt, answer.text, chosen), models, progress))


def _prompt(question: Any, context: Any, messages: Any) -> Prompt:
    if context is not None and question is None:
        raise InputError("There is context and no question: say what to ask about it.")
    if messages is not None and question is not None:
        raise InputError("Pass a question or messages=[...], not both.")
    if question is None and messages is None:
        raise InputError("There is nothing to ask: pass a question, or messages=[...].")
    alone = question if context is None else None
    return read_prompt(alone, context, None if context is None else question, messages)


def _cache() -> Cache:
    return Cache(cache_folder() / "answers")
