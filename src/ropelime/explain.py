"""The public calls: a prompt and an answer in, an explanation out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from ropelime.answering import AnsweringModel
from ropelime.errors import InputError, Interrupted
from ropelime.files import Savable
from ropelime.integrations.messages import as_messages
from ropelime.integrations.responses import arguments
from ropelime.long import any_length
from ropelime.long import check as check_length
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.progress import Callback, note, reporting
from ropelime.progress import Option as ProgressOption
from ropelime.registry import unknown
from ropelime.results import serialization
from ropelime.results.citations import Cited, cite, ground
from ropelime.results.ensemble import combine, for_output
from ropelime.results.explanation import ExplanationData, RankedFeature, with_verified
from ropelime.results.grounding import GroundedSentence
from ropelime.results.rows import dataframe
from ropelime.steps import INTERRUPTED, Errors, Task, check_capabilities, drive
from ropelime.surrogate import resolve_surrogate, resolve_surrogates
from ropelime.surrogate.base import Surrogate
from ropelime.text.display import shorten
from ropelime.text.integrations import as_chunks
from ropelime.text.prompt import Prompt, Span, check_text, read_prompt
from ropelime.text.similarity import Similarity
from ropelime.verify import Verifier, recorded, recorded_messages
from ropelime.views import html, plots

if TYPE_CHECKING:
    from typing_extensions import Unpack

SCORING_MASKS = "Scoring masked prompts"
# What must be known of an explanation to extend it.
_EXTENDED = ("masks", "features", "sampler", "ablation", "scoring", "seed", "preset", "instead_of")
# What an extended explanation takes over as it was.
_KEPT = ("budget", "interactions", "answer", "reasoning")


class Explanation(ExplanationData, Savable):
    """Which parts of a prompt an output depends on; see :class:`ExplanationData` for its fields."""

    members: tuple[Explanation, ...]
    also: Explanation | None

    @classmethod
    def of(cls, data: ExplanationData) -> Explanation:
        """The same data with the methods of this class."""
        known = {field.name: getattr(data, field.name) for field in fields(data)}
        known["members"] = tuple(map(cls.of, data.members))
        known["also"] = None if data.also is None else cls.of(data.also)
        return cls(**known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        first = self.top(1)[0]
        return (
            f"<Explanation of {self.output[:40]!r} over {len(self.features)} features; "
            f"first is {shorten(first.text, 60)!r} with {first.normalized_weight:.0%}>"
        )

    def for_output(self, start: int, end: int) -> Explanation:
        """The explanation of one span of the output, fitted to the scores that are there.

        Args:
            start: First character of the span in the output.
            end: The character after its last.
        """
        return Explanation.of(for_output(self, start, end))

    def extend(
        self, more: int, *, surrogate: Any = None, progress: ProgressOption = "auto"
    ) -> Explanation:
        """The same explanation out of more masks; the one of another preset stays as it is.

        Args:
            more: How many masks to score in addition.
            surrogate: The model that made it; loaded by its name if not given.
            progress: As in :func:`explain`.
        """
        if isinstance(more, bool) or not isinstance(more, int) or more < 1:
            raise InputError(f"extend() takes a whole number of masks of at least 1, not {more!r}.")
        if self.members:
            given = surrogate if isinstance(surrogate, (list, tuple)) else [surrogate]
            given = given * len(self.members) if len(given) == 1 else given
            if len(given) != len(self.members):
                raise InputError(
                    f"{len(self.members)} surrogates made it, and {len(given)} were given."
                )
            each = zip(self.members, given, strict=True)
            joined = combine([m.extend(more, surrogate=s, progress=progress) for m, s in each])
            return with_verified(Explanation.of(replace(joined, also=self.also)), self.verified)
        if self.span != (0, len(self.output)):
            raise InputError("This explains a part of the answer; extend that of the whole answer.")
        if not {*_EXTENDED} <= self.config.keys():
            raise InputError(
                "This was saved by an older release and cannot be extended; make it again."
            )
        if not self.strategies().target.needs_masks:
            raise InputError(
                "This explanation is not fitted to masks, so more of them would change nothing. "
                "Explain with preset='evidence' or 'faithful' instead."
            )
        model = _same_surrogate(self.config["surrogate"], surrogate)
        task = Task(self.prompt, self.output, _options_of(self), self, more)
        found = explain_one(task, [model], progress)
        kept = {n: self.config[n] for n in _KEPT if n in self.config}
        found = replace(found, config={**found.config, **kept}, also=self.also)
        return with_verified(found, self.verified)

    def verify(
        self,
        calls: int = 4,
        *,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        sampling: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        price: tuple[float, float] | None = None,
        timeout: float = 120.0,
        retries: int = 2,
        cache: bool = True,
        similarity: Similarity | None = None,
        max_cost: float | None = None,
        progress: ProgressOption = "auto",
    ) -> Explanation:
        """Check the explanation by a few further calls of the answering model.

        Parts at the top of the ranking are removed one by one, or kept alone, and the model is asked
        again; :mod:`ropelime.verify` has the order. ``e.verified`` holds the outcomes, and ranks and
        trust follow them. What the calls take is printed before the first one. If one fails after
        others were answered, the outcomes so far are returned with a warning.

        Args:
            calls: The most calls to make, in addition to those of an earlier verification.
            model: The answering model; the one that ``ask`` recorded if not given.
            base_url: As in :func:`ropelime.ask`; what ``ask`` recorded if not given.
            api_key: As in :func:`ropelime.ask`.
            sampling: As in :func:`ropelime.ask`; what ``ask`` recorded if not given.
            messages: The chat as it was sent. Without it, tool calls that ``ask`` did not record are
                written out as text.
            price: As in :func:`ropelime.ask`; what ``ask`` recorded if not given.
            timeout: As in :func:`ropelime.ask`.
            retries: As in :func:`ropelime.ask`.
            cache: As in :func:`ropelime.ask`; the same prompt is always sent anew.
            similarity: A function of two answers that returns 0 to 1; an answer has changed if it is
                below 0.5. By default ``answer_f1``, the F1 of what both answers say beyond the
                question; docs/how-to/closed-api.md has its rules.
            max_cost: The most that these calls may cost together, at ``price``.
            progress: As in :func:`explain`; False prints nothing.

        Raises:
            ropelime.errors.Interrupted: After Ctrl-C; its ``kept`` is the explanation with the outcomes
                until then.
        """
        how = {"base_url": base_url, "api_key": api_key, "sampling": sampling, "price": price}
        answering = recorded(self, model, **how, timeout=timeout, retries=retries, cache=cache)
        return verified(self, Verifier(calls, similarity, max_cost), answering, messages, progress)

    @property
    def grounding(self) -> tuple[GroundedSentence, ...]:
        """Whether each sentence of the answer comes from the prompt; see :func:`citations.ground`."""
        return ground(self)

    def cite(self) -> Cited:
        """The answer with marks on its sentences, and its sources; see :func:`citations.cite`."""
        return cite(self)

    def _page(self) -> str:
        return html.report(self)

    def _repr_html_(self) -> str:
        return html.frame(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data as :meth:`save` writes it and :func:`load` reads it; no times are in it.

        The keys are those of the fields (:class:`ExplanationData`), with ``format`` and ``version``.
        Arrays are lists; large ones (``token_weights`` and those in ``surrogate_scores``) are objects
        with a ``shape`` and little-endian ``float64`` in base64. What is undefined is None.
        """
        return serialization.to_dict(self)

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row for each part of the prompt, in the order of the ranking.

        The index is that of the feature. The columns are ``rank``, ``text``, ``weight``,
        ``normalized_weight``, ``low`` and ``high`` (the ends of the 90 % interval of the weight),
        ``verified`` ("changed" or "same": what became of the answer in a verifying call without this
        part alone; empty if there was none), ``document`` with ``source`` and ``page``, ``message``
        with ``role``, ``start`` and ``end`` in the text of the prompt, and one for each signal, as
        ``signal_words``. Documents and messages are counted from 1 and empty where the prompt has none.
        """
        return dataframe(self)

    def plot(self, kind: Literal["ranking", "tokens"] = "ranking", *, top: int | None = None) -> Any:
        """Draw it, and return the matplotlib figure: ``e.plot().savefig("why.svg")``.

        Args:
            kind: ``"ranking"`` draws the largest weights as bars, with what verifying calls showed;
                ``"tokens"`` how much each part moves each token of the answer.
            top: How many parts to draw; 10 in a ranking and 12 beside tokens if not given.
        """
        draw = {"ranking": plots.ranked, "tokens": plots.heat_map}
        if kind not in draw:
            raise unknown("kind of plot", kind, draw)
        if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
            raise InputError(f"plot() draws a whole number of parts of at least 1, not top={top!r}.")
        return draw[kind](self) if top is None else draw[kind](self, top=top)


@dataclass(frozen=True)
class RankedSentence:
    """A sentence of an answer with its ranking by ``preset="instant"``, before the full explanation.

    Attributes:
        text: The sentence.
        span: Where it lies in the answer.
        explanation: What this sentence depends on, by one pass over the prompt and the answer so far.
    """

    text: str
    span: Span
    explanation: Explanation

    def top(self, k: int | None = None) -> list[RankedFeature]:
        """The features in their ranking for this sentence; all of them, or the first ``k``."""
        return self.explanation.top(k)


def load(path: str | os.PathLike[str]) -> Explanation:
    """Read an explanation that :meth:`Explanation.save` wrote."""
    return Explanation.of(serialization.load(path))


@overload
def explain(
    prompt: str | None = None, output: str | None = None, *, stream: Literal[True], **given: Any
) -> Iterator[RankedSentence | Explanation]: ...


@overload
def explain(
    prompt: str | None = None,
    output: str | None = None,
    *,
    context: Sequence[str | Mapping[str, Any] | Any] | None = None,
    question: str | None = None,
    messages: Sequence[Mapping[str, Any] | Any] | None = None,
    response: Any = None,
    request: Mapping[str, Any] | None = None,
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    stream: Literal[False] = False,
    progress: ProgressOption = "auto",
    **options: Unpack[OptionKeywords],
) -> Explanation: ...


@takes_options
def explain(
    prompt: str | None = None,
    output: str | None = None,
    *,
    context: Sequence[str | Mapping[str, Any] | Any] | None = None,
    question: str | None = None,
    messages: Sequence[Mapping[str, Any] | Any] | None = None,
    response: Any = None,
    request: Mapping[str, Any] | None = None,
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    stream: bool = False,
    progress: ProgressOption = "auto",
    **options: Any,
) -> Explanation | Iterator[RankedSentence | Explanation]:
    """Explain which parts of a prompt an output depends on.

    Pass exactly one of ``prompt``, ``context`` (with a ``question``), ``messages`` and ``response``.
    Ctrl-C raises :class:`ropelime.errors.Interrupted`; its ``kept`` is the explanation of what was
    scored until then, if that is enough for one.

    Args:
        prompt: The prompt as one text. As the others, it may be longer than the surrogate's window.
        output: The answer to explain, as the model gave it.
        context: Retrieved chunks; they are the features, the question is not. Each is a text, a mapping
            with ``text``, ``source`` and ``page``, or a document of LangChain or LlamaIndex.
        question: The question about the context.
        messages: Chat messages, each with ``role`` and ``content`` or ``tool_calls``, or the
            message objects of LangChain, Anthropic, Gemini or Pydantic AI.
        response: What another library returned: a response of OpenAI, Anthropic, Gemini or LiteLLM, or
            a message of LangChain (each with its ``request``), a run of the OpenAI Agents SDK, Pydantic
            AI or a LangChain chain or agent, a LlamaIndex response (with the ``question``). The model's
            own reasoning is kept in ``e.config["reasoning"]``; it is not a part of the prompt.
        request: The keyword arguments of the call that returned the response of an API.
        surrogate: The open model that scores the answer: a short name (see ``ropelime models``), a
            directory, a ``.gguf`` file, a hub id, ``"http://HOST:8000/v1#MODEL"`` (vLLM), a function of
            masks, or a :class:`Surrogate`. Several in a list are averaged (``e.members``).
        stream: Return an iterator: a :class:`RankedSentence` for each sentence, then the explanation.
        progress: ``"auto"``, True, False, or a function of (done, total): the tokens done and in
            all. Some take longer than others: ``done / total`` is about the part of the time.
        **options: See :class:`ropelime.options.Options`.
    """
    others = {"prompt": prompt, "output": output, "context": context, "messages": messages}
    given, said, reasoning = _read(others, question, response, request)
    task = Task(given, check_text("output", said), Options.of(options))  # before a model is loaded
    models = resolve_surrogates(surrogate, say=None if progress is False else note)
    for model in models:
        check_capabilities(model, task.options)
    if stream:
        check_stream(models[0])
        return (
            _with_reasoning(item, reasoning) if isinstance(item, Explanation) else item
            for item in stream_one(task, models, progress)
        )
    return _with_reasoning(explain_one(task, models, progress), reasoning)


def _read(
    given: dict[str, Any], question: str | None, response: Any, request: Mapping[str, Any] | None
) -> tuple[Prompt, str | None, str]:
    """The prompt, the output and the reasoning of what was given: itself, or a response."""
    output, reasoning = given["output"], ""
    prompt, context, messages = given["prompt"], given["context"], given["messages"]
    if response is not None or request is not None:
        output, read = _from_response(response, request, question, given)
        reasoning = read.pop("reasoning", "")
        context, question, messages = (read.get(k) for k in ("context", "question", "messages"))
    elif prompt is None:
        context, messages = read_chunks(context), as_messages(messages)
    return read_prompt(prompt, context, question, messages), output, reasoning


def read_chunks(context: Any) -> Any:
    """The chunks of a context, those of other libraries as mappings; one text alone is refused."""
    if isinstance(context, str):
        raise InputError(
            "context must be a list of texts, one for each chunk. Of one text: context=[text].",
            field="context",
        )
    return as_chunks(context)


def _with_reasoning(e: Explanation, reasoning: str) -> Explanation:
    """The explanation with what the model wrote before its answer, where it gave that."""
    if not reasoning:
        return e
    length = f"{len(reasoning):,} characters"
    said = f"Before it the model wrote {length} of reasoning, which are not a part of the prompt."
    diagnostics = replace(e.diagnostics, notes=(*e.diagnostics.notes, said))
    return replace(e, config={**e.config, "reasoning": reasoning}, diagnostics=diagnostics)


def explain_one(
    task: Task, surrogates: Sequence[Surrogate], progress: ProgressOption = "auto"
) -> Explanation:
    """Explain one answer, with progress.

    Raises:
        Interrupted: After Ctrl-C, with the explanation of what was scored until then.
    """
    with reporting(progress, SCORING_MASKS) as report:
        (e,) = explain_many([task], surrogates, progress=report, keep=True)
    assert isinstance(e, Explanation)
    if e.config.get(INTERRUPTED):
        raise Interrupted(e)
    return e


def stream_one(
    task: Task,
    surrogates: Sequence[Surrogate],
    progress: ProgressOption = "auto",
    *,
    since: int = 0,
) -> Iterator[RankedSentence | Explanation]:
    """The sentences of an answer that begin at ``since`` or later, ranked at once; then all of it."""
    if task.options.preset == "instant" and len(surrogates) == 1:  # that is the same pass
        e = explain_one(task, surrogates, progress)
        yield from _ranked(e, since)
    else:
        called = progress if callable(progress) else False  # a bar would stand between the sentences
        yield from rank_sentences(task, surrogates[0], called, since=since)
        e = explain_one(task, surrogates, progress)
    yield e


def rank_sentences(
    task: Task, surrogate: Surrogate, progress: ProgressOption = False, *, since: int = 0
) -> list[RankedSentence]:
    """The sentences of an answer that begin at ``since`` or later, by one pass over all of it."""
    given = task.options
    options = Options(features=given.features, ablation=given.ablation, preset="instant")
    return _ranked(explain_one(replace(task, options=options), [surrogate], progress), since)


def _ranked(e: Explanation, since: int) -> list[RankedSentence]:
    spans = [span for span in e.output_sentences if span[0] >= since]
    return [RankedSentence(e.output[slice(*span)], span, e.for_output(*span)) for span in spans]


def check_stream(surrogate: Surrogate) -> None:
    """Refuse to stream with a surrogate that cannot rank sentences in one pass."""
    if surrogate.only_output:
        raise InputError(
            f"stream=True ranks sentences by preset='instant', and {surrogate.name} does not show its "
            "attention: models in this process do, functions and servers do not. Leave stream out, or "
            "put another surrogate first."
        )


def explain_many(
    tasks: Sequence[Task],
    surrogates: Sequence[Surrogate],
    *,
    progress: Callback | None = None,
    forgive: Errors = (),
    keep: bool = False,
) -> list[Explanation | Exception]:
    """Explain several answers together: their masked prompts are packed into the same forward passes.

    Args:
        tasks: What to explain, and how.
        surrogates: The models; with several, each explains by itself and the weights are averaged.
        progress: As in :func:`ropelime.steps.drive`.
        forgive: Errors that are returned in the place of the explanation that they are about.
        keep: As in :func:`ropelime.steps.drive`.
    """
    ways = [
        [task] if task.options.also is None else [task, replace(task, options=task.options.second())]
        for task in tasks
    ]
    begun = [(model, any_length(way, model)) for both in ways for way in both for model in surrogates]
    done = iter(drive(begun, progress=progress, forgive=forgive, keep=keep))
    found: list[Explanation | Exception] = []
    for both in ways:
        each = [[next(done) for _ in surrogates] for _ in both]
        try:
            first, *second = [_joined(members) for members in each]
            found.append(Explanation.of(replace(first, also=second[0] if second else None)))
        except forgive as error:
            found.append(error)
    return found


def verified(
    e: Explanation,
    verifier: Verifier,
    answering: AnsweringModel,
    messages: Any = None,
    progress: ProgressOption = "auto",
) -> Explanation:
    """The explanation with what further calls of the answering model showed."""
    if e.span != (0, len(e.output)):
        raise InputError("This explains a part of the answer; verify that of the whole answer.")
    sent = recorded_messages(e) if messages is None else as_messages(messages)
    with reporting(progress, "Asking the answering model") as report:
        say = None if progress is False else note
        return verifier.run(e, answering, messages=sent, say=say, report=report)


def check(prompt: Prompt, options: Options, surrogates: Sequence[Surrogate]) -> None:
    """Refuse what cannot be explained, whatever the answer will be, before a call is paid for."""
    for surrogate in surrogates:
        check_length(prompt, options, surrogate)


def _joined(members: Sequence[ExplanationData | Exception]) -> ExplanationData:
    """The explanation of all surrogates, or the first error."""
    whole = []
    for member in members:
        if isinstance(member, Exception):
            raise member
        whole.append(member)
    return combine(whole) if len(whole) > 1 else whole[0]


def _same_surrogate(known: Mapping[str, Any], given: Any) -> Surrogate:
    """The model that made an explanation, loaded by its name if it is not given."""
    model = resolve_surrogate(known.get("name") if given is None else given)
    here = model.describe()
    if different := [k for k in ("name", "architecture", "dtype") if here.get(k) != known.get(k)]:
        differs = ", ".join(f"{k} {known.get(k)!r} and not {here.get(k)!r}" for k in different)
        raise InputError(f"It was made by a surrogate with {differs}; pass that one as surrogate=...")
    return model


def _options_of(explanation: ExplanationData) -> Options:
    """The options that an explanation was made with."""
    config, recipe = explanation.config, explanation.strategies()
    spans = tuple((feature.start, feature.end) for feature in explanation.features)
    return Options(
        features=spans if config["features"] == "spans" else config["features"],
        sampler=config["sampler"],
        target=recipe.target,
        kernel=recipe.kernel,
        regressor=recipe.regressor,
        ablation=config["ablation"],
        scoring=config["scoring"],
        seed=config["seed"],
        preset=config["preset"],
        instead_of=config["instead_of"],
    )


def _from_response(
    response: Any,
    request: Mapping[str, Any] | None,
    question: str | None,
    others: Mapping[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """The answer of another library, and the arguments that say what it was asked."""
    if response is None:
        raise InputError("request goes with response=...; pass messages=[...] otherwise.")
    if names := [name for name, value in others.items() if value is not None]:
        raise InputError(f"response holds the prompt and the output; {' and '.join(names)} came too.")
    read = arguments(response, request, question)
    return read.pop("output"), read
