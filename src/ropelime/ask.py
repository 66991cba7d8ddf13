"""Call an answering model once, and explain its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ropelime.answering import AnsweringModel, GivenAnswer
from ropelime.clients.openai import Call, OnText
from ropelime.clients.sdk import sdk
from ropelime.errors import InputError, RopeLimeError
from ropelime.explain import Explanation, check, explain_one, verified
from ropelime.integrations.messages import as_messages
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.progress import Option as ProgressOption
from ropelime.progress import note
from ropelime.steps import Task
from ropelime.surrogate import resolve_surrogates
from ropelime.surrogate.base import Surrogate
from ropelime.text.integrations import as_chunks
from ropelime.text.prompt import Prompt, read_prompt
from ropelime.text.similarity import Similarity
from ropelime.verify import Verifier, kept

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    verify: int = 0,
    similarity: Similarity | None = None,
    max_cost: float | None = None,
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
        verify: The most further calls that check the explanation; see :meth:`Explanation.verify`. If
            one fails, the explanation is returned with a warning.
        similarity: Of answers, for ``verify``.
        max_cost: The most that these further calls may cost together, at ``price``.
        stream: Receive the answer in pieces; if not given, when there is ``on_text``.
        on_text: Called with each piece of the answer as it arrives, or once with all of it.
        on_answer: Called with ``e.config["answer"]`` before the answer is explained.
        surrogate: See :func:`ropelime.explain`.
        progress: See :func:`ropelime.explain`.
        **options: See :class:`ropelime.options.Options`.
    """
    sent = as_messages(messages)
    prompt = _prompt(question, as_chunks(context), sent)
    task = Task(prompt, "", Options.of(options, caller="ask"))
    answering = AnsweringModel(model, base_url, api_key, sampling, price, timeout, retries, cache)
    verifier = Verifier(verify, similarity, max_cost) if verify else None
    ask_one = _Ask(task, sent, answering, verifier, progress)
    return ask_one.explained(ask_one.check(surrogate), stream, on_text, on_answer)


@dataclass(frozen=True)
class _Ask:
    """A question to an answering model."""

    task: Task  # without its output
    messages: Any  # as they are sent; None if the prompt is one text
    answering: AnsweringModel
    verifier: Verifier | None
    progress: ProgressOption

    @cached_property
    def call(self) -> Call:
        return self.answering.call(self.task.prompt, self.messages)

    @cached_property
    def known(self) -> GivenAnswer | None:
        return self.answering.known(self.call)

    def check(self, surrogate: Any) -> list[Surrogate]:
        """Refuse what can be refused before anything is paid: names, features, the context window."""
        if self.known is None:
            sdk()
        if self.verifier is not None:
            self.verifier.check(self.answering)
        models = resolve_surrogates(surrogate, say=None if self.progress is False else note)
        check(self.task.prompt, self.task.options, models)
        return models

    def explained(
        self,
        models: Sequence[Surrogate],
        stream: bool | None,
        on_text: OnText | None,
        on_answer: Callable[[dict[str, Any]], None] | None,
    ) -> Explanation:
        """Ask, explain, verify."""
        if self.known is not None and on_text is not None:
            on_text(self.known.text)
        streamed = on_text is not None if stream is None else stream
        answer = self.known or self.answering.answer(self.call, stream=streamed, on_text=on_text)
        if on_answer is not None:
            on_answer(answer.record)
        e = answer.into(explain_one(replace(self.task, output=answer.text), models, self.progress))
        if self.verifier is None:
            return e
        try:
            return verified(e, self.verifier, self.answering, self.messages, self.progress)
        except RopeLimeError as error:  # the answer and its explanation are kept
            return kept(e, self.verifier, self.answering, error)


def _prompt(question: Any, context: Any, messages: Any) -> Prompt:
    if context is not None and question is None:
        raise InputError("There is context and no question: say what to ask about it.")
    if messages is not None and question is not None:
        raise InputError("Pass a question or messages=[...], not both.")
    if question is None and messages is None:
        raise InputError("There is nothing to ask: pass a question, or messages=[...].")
    alone = question if context is None else None
    return read_prompt(alone, context, None if context is None else question, messages)
