"""Citations: which parts of the prompt each sentence of the answer comes from, if from any."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import regex

from ropelime.errors import RopeLimeError
from ropelime.results.annotations import SourcedSpan, anthropic_blocks, openai_part
from ropelime.results.explanation import ExplanationData, fit_span
from ropelime.results.grounding import (
    GroundedSentence,
    Measures,
    SentenceSource,
    measure,
    possible_sources,
)
from ropelime.text.lexical import asks, question
from ropelime.text.prompt import Span
from ropelime.typing import Floats, Masks

MAX_SOURCES = 3  # of one sentence
FACTOR = 1.5  # times the normalised weight that every feature would have if all were equal
ENOUGH = 0.15  # a normalised weight this large is enough, however few features there are
BESIDE = 0.125  # of the largest weight in the sentence: smaller ones are not cited beside it
_CODE = regex.compile(  # a fenced block, also in a list or a quotation
    r"^[ \t]*+(?:(?:[>*+-]|\d{1,9}[.)])[ \t]++)*+(`{3,}+(?![^\n]*`)|~{3,}+)"
    r".*?(?:^[ \t>]*+\1[`~]*+[ \t]*+$|\Z)",
    regex.MULTILINE | regex.DOTALL,
)
MIN_CHANGE = 0.1  # nats per token: a sentence that no mask changed by more rests on nothing


@dataclass(frozen=True)
class Source:
    """A feature that is cited.

    Attributes:
        number: Its number in the list, from 1, in the order of first citation.
        feature: Its index among the features.
        text: Its text.
        where: Its chunk, with source and page, or its message; empty for a plain prompt.
    """

    number: int
    feature: int
    text: str
    where: str


@dataclass(frozen=True)
class CitedSentence:
    """A sentence of the answer.

    Attributes:
        start: Where it begins in the answer.
        end: Where it ends.
        sources: Numbers of its sources, the largest weight first.
        weights: The share of each of them in this sentence.
        probability: The chance that the sentence comes from the prompt.
    """

    start: int
    end: int
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    probability: float


@dataclass(frozen=True)
class Cited:
    """An answer with its sources; ``str()`` gives it as plain text.

    Fenced code gets no marks in the text, which would break it, and its sources are not listed there;
    ``sentences`` and ``sources`` have them. A sentence that ends in such code is marked before it.

    Attributes:
        answer: The answer.
        sentences: Its sentences, with the numbers of their sources.
        sources: The sources by number.
        explained: The explanation that it was made from.
    """

    answer: str
    sentences: tuple[CitedSentence, ...]
    sources: tuple[Source, ...]
    explained: ExplanationData = field(repr=False, compare=False)

    def __str__(self) -> str:
        text, marked = self._marked("[{}]", "[–]")
        sources = [f"[{each.number}] {_line(each)}" for each in self.sources if each.number in marked]
        if None in marked:
            sources.append(f"[–] {self._no_source}")
        return "\n".join([text, "", *sources])

    def to_markdown(self) -> str:
        """The same with Markdown footnotes; the answer keeps its Markdown, sources are escaped."""
        text, marked = self._marked("[^{}]", "[^none]")
        sources = [
            f"[^{each.number}]: {_escaped(_line(each))}"
            for each in self.sources
            if each.number in marked
        ]
        if None in marked:
            sources.append(f"[^none]: {self._no_source}")
        return "\n".join([text, "", *sources]).rstrip("\n") + "\n"

    def to_openai(
        self, *, file_ids: Mapping[str, str] | None = None, quote: bool = False
    ) -> dict[str, Any]:
        """The answer as OpenAI's Responses API returns it, with annotations; see :func:`openai_part`.

        Args:
            file_ids: The id of each file, by the source of its chunk; the source itself if not given.
            quote: Add the cited text to each annotation as ``quote``, a field that the API does not
                have.
        """
        return openai_part(self.explained, self._sourced(), file_ids or {}, quote=quote)

    def to_anthropic(self) -> list[dict[str, Any]]:
        """The answer in blocks of Anthropic's Messages API; see :func:`anthropic_blocks`."""
        return anthropic_blocks(self.explained, self._sourced())

    @property
    def _no_source(self) -> str:
        place = "documents" if self.explained.prompt.kind == "context" else "prompt"
        return f"Not in the {place}: no part of the prompt was found to be its source."

    def _sourced(self) -> list[SourcedSpan]:
        feature = {source.number: source.feature for source in self.sources}
        return [
            SourcedSpan((each.start, each.end), tuple(feature[number] for number in each.sources))
            for each in self.sentences
        ]

    def _marked(self, mark: str, none: str) -> tuple[str, set[int | None]]:
        """The answer with marks, and the numbers in them; None is for a sentence without a source."""
        text, at = "", 0
        code = [found.span() for found in _CODE.finditer(self.answer)]
        marked: set[int | None] = set()
        for sentence in self.sentences:
            place = sentence.end
            if block := next((b for b in code if b[0] < sentence.end <= b[1]), None):
                place = len(self.answer[: block[0]].rstrip())  # in the block, a mark would break it
            if place <= sentence.start:
                continue
            numbers = sentence.sources or (None,)
            marked.update(numbers)
            marks = "".join(none if number is None else mark.format(number) for number in numbers)
            text, at = f"{text}{self.answer[at:place]} {marks}", place
        return text + self.answer[at:], marked


def ground(e: ExplanationData) -> tuple[GroundedSentence, ...]:
    """The chance of each sentence of the explained answer that it comes from the prompt, with sources.

    A sentence that probably comes from the prompt has the features as its sources whose share in it is
    at least

    - one and a half times what it would be if all features were equal (or 15 %, if that is less), and
    - an eighth of the largest one in this sentence.

    These are three at most. A plain prompt or a chat holds its question too, which is the source of
    sentences that say nothing else.
    """
    asked, asking = question(e.prompt, e.features), asks(e.prompt, e.features)
    return tuple(
        replace(each, sources=_sources(e, *each.span, possible_sources(each.text, asked, asking)))
        if each.grounded
        else each
        for each in judge_sentences(e)
    )


def judge_sentences(e: ExplanationData) -> tuple[GroundedSentence, ...]:
    """The same without the sources, each of which takes a fit."""
    spans = e.output_sentences
    chances = np.mean([measure_sentences(each, spans).grounded for each in e.members or (e,)], axis=0)
    return tuple(
        GroundedSentence(span, e.output[slice(*span)], float(chance), ())
        for span, chance in zip(spans, chances, strict=True)
    )


def measure_sentences(e: ExplanationData, spans: Sequence[Span]) -> Measures:
    """What sentences owe to the prompt, by one surrogate."""
    return measure(
        e.output,
        spans,
        e.output_spans,
        e.features,
        e.surrogate_scores,
        asked=question(e.prompt, e.features),
        asking=asks(e.prompt, e.features),
        token_weights=e.token_weights,
    )


def _weights(e: ExplanationData, start: int, end: int) -> Floats:
    """(n,) weights for a span of the output, by one surrogate."""
    try:
        return fit_span(e, start, end, tokens=False).weights
    except RopeLimeError:  # a loaded one, by strategies of the user's own or of another release
        return np.asarray(e.token_weights[:, slice(*e.tokens_in(start, end))].sum(1))


def _sources(e: ExplanationData, start: int, end: int, sources: Masks) -> tuple[SentenceSource, ...]:
    if not sources.any():
        return ()
    each = [_weights(part, start, end) * sources for part in e.members or (e,)]
    shares = np.mean([weights / (np.abs(weights).sum() or 1.0) for weights in each], axis=0)
    enough = min(FACTOR / int(sources.sum()), ENOUGH)
    threshold = max(enough, BESIDE * float(np.abs(shares).max()))
    order = np.argsort(-shares, kind="stable")[:MAX_SOURCES]
    found = [(int(i), e.features[i]) for i in order if shares[i] >= threshold]
    return tuple(
        SentenceSource(i, (f.start, f.end), float(shares[i]), f.part, e.prompt.where(f.part))
        for i, f in found
    )


def cite(e: ExplanationData) -> Cited:
    """Cite the sources of every sentence of the explained answer, as :func:`ground` finds them."""
    numbers: dict[int, int] = {}
    sentences = []
    for found in ground(e):
        marks = tuple(numbers.setdefault(s.feature, len(numbers) + 1) for s in found.sources)
        shares = tuple(source.share for source in found.sources)
        sentences.append(CitedSentence(*found.span, marks, shares, found.probability))
    sources = tuple(
        Source(number, i, e.features[i].text.strip(), e.prompt.where(e.features[i].part))
        for i, number in numbers.items()
    )
    return Cited(e.output, tuple(sentences), sources, e)


def largest_change(e: ExplanationData, first: int, last: int) -> float:
    """The most that a masked prompt changed the log-probability of these tokens, in nats per token."""
    logprob = e.surrogate_scores.logprob[:, first:last]
    return float(np.abs(logprob - logprob[0]).mean(1).max())


def _line(source: Source) -> str:
    return " ".join(source.text.split()) + (f" ({source.where})" if source.where else "")


def _escaped(text: str) -> str:
    text = re.sub(r"([\\`*_\[\]<>&|~])", r"\\\1", text)
    return re.sub(r"^(\d*)([#+\-.)])", r"\1\\\2", text)  # it must not open a heading or a list
