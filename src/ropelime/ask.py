"""Call an answering model once, and explain its answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from ropelime.answering import AnsweringModel, GivenAnswer
from ropelime.clients.openai import Call, OnText
from ropelime.clients.sdk import sdk
from ropelime.errors import InputError, Interrupted, RopeLimeError
from ropelime.explain import (
    Explanation,
    RankedSentence,
    check,
    check_stream,
    explain_one,
    rank_sentences,
    read_chunks,
    stream_one,
    verified,
)
from ropelime.integrations.messages import as_messages
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.progress import Option as ProgressOption
from ropelime.progress import note
from ropelime.steps import Task
from ropelime.surrogate import resolve_surrogates
from ropelime.surrogate.base import Surrogate
from ropelime.text import segmentation
from ropelime.text.prompt import Prompt, read_prompt
from ropelime.text.similarity import Similarity
from ropelime.verify import Verifier, kept

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
def ask(
    question: str | None = None, *, model: str, stream: Literal[True], **given: Any
) -> Iterator[RankedSentence | Explanation]: ...


@overload
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
    stream: Literal[False] | None = None,
    on_text: OnText | None = None,
    on_answer: Callable[[dict[str, Any]], None] | None = None,
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    progress: ProgressOption = "auto",
    **options: Unpack[OptionKeywords],
) -> Explanation: ...


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
    **options: Any,
) -> Explanation | Iterator[RankedSentence | Explanation]:
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
        retries: Repeats of a failed call by the SDK, 0 to 100; none once a streamed answer has begun.
        cache: Keep the answer in the user's cache folder, and do not repeat a call that is there.
        verify: The most further calls that check the explanation; see :meth:`Explanation.verify`. If
            one fails, the explanation is returned with a warning.
        similarity: Of answers, for ``verify``.
        max_cost: The most that these further calls may cost together, at ``price``.
        stream: True returns an iterator: a :class:`ropelime.RankedSentence` for each sentence as soon
            as it has come, by a quick pass of the first surrogate, and the explanation at the end.
            False receives the answer at once, also where there is ``on_text``.
        on_text: Called with each piece of the answer as it arrives, or once with all of it.
        on_answer: Called with ``e.config["answer"]`` before the answer is explained.
        surrogate: See :func:`ropelime.explain`.
        progress: See :func:`ropelime.explain`.
        **options: See :class:`ropelime.options.Options`.
    """
    sent = as_messages(messages)
    prompt = _prompt(question, read_chunks(context), sent)
    task = Task(prompt, "", Options.of(options, caller="ask"))
    answering = AnsweringModel(model, base_url, api_key, sampling, price, timeout, retries, cache)
    verifier = Verifier(verify, similarity, max_cost) if verify else None
    ask_one = _Ask(task, sent, answering, verifier, progress)
    return ask_one.run(ask_one.check(surrogate), stream, on_text, on_answer)


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

    def run(
        self,
        models: Sequence[Surrogate],
        stream: bool | None,
        on_text: OnText | None,
        on_answer: Callable[[dict[str, Any]], None] | None,
    ) -> Explanation | Iterator[RankedSentence | Explanation]:
        """The explanation, or a stream that ends with it."""
        if not stream:
            return self.explained(models, stream is None, on_text, on_answer)
        check_stream(models[0])
        return self.streamed(models, on_text, on_answer)

    def explained(
        self,
        models: Sequence[Surrogate],
        stream: bool,
        on_text: OnText | None,
        on_answer: Callable[[dict[str, Any]], None] | None,
    ) -> Explanation:
        """Ask, explain, verify."""
        if self.known is not None and on_text is not None:
            on_text(self.known.text)
        stream = stream and on_text is not None
        answer = self.known or self.answering.answer(self.call, stream=stream, on_text=on_text)
        if on_answer is not None:
            on_answer(answer.record)
        with kept_with(answer):
            e = explain_one(replace(self.task, output=answer.text), models, self.progress)
        return self.final(e, answer)

    def streamed(
        self,
        models: Sequence[Surrogate],
        on_text: OnText | None,
        on_answer: Callable[[dict[str, Any]], None] | None,
    ) -> Iterator[RankedSentence | Explanation]:
        """Ask, rank each sentence as it comes, explain, verify.

        A pass ranks all sentences that have come since the one before, so that a fast answer takes few.
        """
        said, ranked = "", 0
        with closing(self._pieces()) as pieces:
            while True:
                try:
                    text = next(pieces)
                except StopIteration as stop:
                    answer: GivenAnswer = stop.value
                    break
                if text is not None:
                    said += text
                    if on_text is not None:
                        on_text(text)
                elif (end := finished(said)) > ranked:
                    task = replace(self.task, output=said[:end].rstrip())
                    yield from rank_sentences(task, models[0], since=ranked)
                    ranked = end
        if on_answer is not None:
            on_answer(answer.record)
        task = replace(self.task, output=answer.text)
        with kept_with(answer):
            for item in stream_one(task, models, self.progress, since=ranked):
                yield self.final(item, answer) if isinstance(item, Explanation) else item

    def _pieces(self) -> Generator[str | None, None, GivenAnswer]:
        """The pieces of the answer; one if it is known already."""
        if self.known is None:
            return (yield from self.answering.receive(self.call))
        yield self.known.text
        return self.known

    def final(self, e: Explanation, answer: GivenAnswer) -> Explanation:
        """The explanation with what is known about the answer, verified where that was wanted.

        Raises:
            Interrupted: After Ctrl-C, with the explanation and the outcomes until then.
        """
        e = answer.into(e)
        if self.verifier is None:
            return e
        try:
            return verified(e, self.verifier, self.answering, self.messages, self.progress)
        except RopeLimeError as error:  # the answer and its explanation are kept
            return kept(e, self.verifier, self.answering, error)


@contextmanager
def kept_with(answer: GivenAnswer) -> Iterator[None]:
    """After Ctrl-C, what is known about the answer stays with the explanation of what was scored."""
    try:
        yield
    except Interrupted as stop:
        e = stop.kept
        if isinstance(e, Explanation) and "answer" in e.config:  # while it was being verified
            raise
        raise Interrupted(answer.into(e) if isinstance(e, Explanation) else None) from None


def finished(said: str) -> int:
    """Where the last sentence of an answer begins, which may not be complete; those before it are."""
    spans = segmentation.sentences(said)
    return spans[-1][0] if spans else 0


def _prompt(question: Any, context: Any, messages: Any) -> Prompt:
    if context is not None and question is None:
        raise InputError("There is context and no question: say what to ask about it.")
    if messages is not None and question is not None:
        raise InputError("Pass a question or messages=[...], not both.")
    if question is None and messages is None:
        raise InputError("There is nothing to ask: pass a question, or messages=[...].")
    alone = question if context is None else None
    return read_prompt(alone, context, None if context is None else question, messages)
