"""Which parts of the prompt each sentence of the answer comes from."""

from __future__ import annotations

from dataclasses import dataclass

from ropelime.results.citations import cite
from ropelime.results.explanation import ExplanationData
from ropelime.text.prompt import Span


@dataclass(frozen=True)
class GroundedSource:
    """A feature that a sentence comes from.

    Attributes:
        feature: Its index among the features.
        span: Where it lies in the prompt.
        share: How much of the sentence it accounts for, from 0 to 1.
        document: The index of its chunk; None in prompts that have none.
    """

    feature: int
    span: Span
    share: float
    document: int | None = None


@dataclass(frozen=True)
class GroundedSentence:
    """A sentence of the answer.

    Attributes:
        span: Where it lies in the output.
        text: Its text.
        probability: That it comes from the given prompt.
        sources: The features that it comes from, the largest share first; empty if it has no source.
    """

    span: Span
    text: str
    probability: float
    sources: tuple[GroundedSource, ...]


def grounding(e: ExplanationData) -> tuple[GroundedSentence, ...]:
    """The sentences of the answer with the sources that :func:`cite` finds."""
    cited = cite(e)
    feature = {source.number: source.feature for source in cited.sources}
    return tuple(
        GroundedSentence(
            (sentence.start, sentence.end),
            e.output[sentence.start : sentence.end],
            min(sum(sentence.weights), 1.0),
            tuple(
                _source(e, feature[number], weight)
                for number, weight in zip(sentence.sources, sentence.weights, strict=True)
            ),
        )
        for sentence in cited.sentences
    )


def _source(e: ExplanationData, index: int, share: float) -> GroundedSource:
    own = e.features[index]
    document = own.part if e.prompt.kind == "context" else None
    return GroundedSource(index, (own.start, own.end), share, document)
