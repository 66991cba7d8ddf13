"""Documents or memory: whether each sentence of an answer comes from the prompt.

Two measures of a sentence need nothing that an explanation does not have already. *Explained*: without
the features the surrogate is surprised by the sentence, and with them less; the part of its surprise
that is gone. *Covered*: the words of the sentence that one single feature has, rare ones counting for
more. A mere yes or no says what the question says, so its words are those of the question. Both count
for the sentence itself and, as means, for the whole answer: an answer that was written from the
documents is so in most of its sentences. An answer that has few words of the prompt is *foreign* to it:
any text before an answer explains some of that. ``python -m benchmarks calibrate`` learns how much
each counts.

A question that is itself among the features explains its answer, whoever knows it: what it has and
what it moves does not count for a source, unless the sentence says nothing that the question does not
say, as where a request holds what is to be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropelime.method.learnt import chance
from ropelime.method.scores import Scores
from ropelime.text import segmentation
from ropelime.text.features import Feature
from ropelime.text.lexical import coverage_by, words
from ropelime.text.prompt import Span
from ropelime.text.similarity import is_bare, repeats
from ropelime.typing import Floats, Masks

_GROUNDED = 0.5  # a sentence of a smaller chance is said to have no source
_FAMILIAR = 0.3  # of its words, on average: an answer of which features have fewer is foreign
_SURE = 0.5  # nats: a sentence without any surprise has nothing to explain


@dataclass(frozen=True)
class SentenceSource:
    """A feature that a sentence comes from.

    Attributes:
        feature: Its index among the features.
        span: Where it lies in the prompt's text.
        share: Its share in this sentence.
        document: The index of its document or message, counted from 0.
        where: Its document, with source and page, or its message; empty for a plain prompt.
    """

    feature: int
    span: Span
    share: float
    document: int
    where: str


@dataclass(frozen=True)
class GroundedSentence:
    """A sentence of the answer.

    Attributes:
        span: Where it lies in the answer.
        text: The sentence.
        probability: The chance that it comes from the given prompt, and not from the model's memory.
        sources: The features that it comes from, the largest share first; empty if it has no source.
    """

    span: Span
    text: str
    probability: float
    sources: tuple[SentenceSource, ...]

    @property
    def grounded(self) -> bool:
        """Whether it probably comes from the prompt."""
        return self.probability >= _GROUNDED


@dataclass(frozen=True)
class Measures:
    """What the sentences of an answer owe to the prompt: an entry for each sentence.

    Attributes:
        tokens: How many tokens each has.
        gain: Mean rise of the log-probability of its tokens by the features, where it rises; nats.
        explained: The part of the surprise that the features take away, 0 to 1.
        covered: The part of its words that one feature has, 0 to 1.
    """

    tokens: Floats
    gain: Floats
    explained: Floats
    covered: Floats

    @property
    def share(self) -> Floats:
        """The part of the answer that each sentence is, by its tokens."""
        return np.asarray(self.tokens / self.tokens.sum())

    @property
    def grounded(self) -> Floats:
        """The chance of each sentence that it comes from the prompt."""
        return np.array([sentence_chance(each) for each in self.inputs])

    @property
    def inputs(self) -> list[Mapping[str, float]]:
        """What that chance is estimated from, see :func:`sentence_chance`."""
        explained, covered = float(self.share @ self.explained), float(self.share @ self.covered)
        whole = {"answer_explained": explained, "answer_covered": covered}
        return [
            {"explained": float(e), "covered": float(c), **whole}
            for e, c in zip(self.explained, self.covered, strict=True)
        ]


def completed(measured: Mapping[str, float]) -> dict[str, float]:
    """What was measured of a sentence, with what follows from it."""
    return {**measured, "foreign": max(0.0, 1.0 - measured["answer_covered"] / _FAMILIAR)}


def sentence_chance(measured: Mapping[str, float]) -> float:
    """The chance that a sentence comes from the prompt, by :attr:`Measures.inputs`."""
    return chance("grounded", completed(measured))


def measure(
    output: str,
    sentences: Sequence[Span],
    output_spans: Sequence[Span],
    features: Sequence[Feature],
    scores: Scores,
    *,
    asked: str,
    asking: Masks | None = None,
    token_weights: Floats | None = None,
) -> Measures:
    """Measure the sentences of an answer.

    Args:
        output: The answer.
        sentences: Where its sentences lie.
        output_spans: Where its tokens lie.
        features: The parts of the prompt.
        scores: The full prompt first, then the prompt with no feature.
        asked: What the prompt asks.
        asking: (n,) which features ask, and so are no source of what they do not say; none if None.
        token_weights: (n, T) the weight of each feature for each token; what those that ask weigh of a
            token is taken from its rise.
    """
    with_all, without = scores.logprob[0], scores.logprob[1]
    rise = np.maximum(with_all - without, 0.0)
    asking = np.zeros(len(features), dtype=bool) if asking is None else asking
    every = [set(words(feature.text)) for feature in features]
    tokens, gain, explained, covered = [], [], [], []
    for start, end in sentences:
        inside = [i for i, (a, b) in enumerate(output_spans) if a < end and b > start]
        sources = possible_sources(output[start:end], asked, asking)
        parts = [part for part, counts in zip(every, sources, strict=True) if counts]
        by_sources = 1.0 if token_weights is None else _of(sources, token_weights[:, inside])
        risen, left = float((rise[inside] * by_sources).sum()), float(-with_all[inside].sum())
        tokens.append(len(inside))
        gain.append(risen / len(inside))
        explained.append(risen / (risen + max(left, 0.0) + _SURE))
        text = asked if is_bare(output[start:end]) else output[start:end]
        covered.append(float(coverage_by(words(text), parts).max(initial=0.0)))
    return Measures(*(np.array(each, dtype=float) for each in (tokens, gain, explained, covered)))


def possible_sources(sentence: str, asked: str, asking: Masks) -> Masks:
    """(n,) which features may be sources of a sentence: those that ask only if it repeats them."""
    return np.ones_like(asking) if asking.any() and repeats(sentence, asked) else ~asking


def _of(sources: Masks, token_weights: Floats) -> Floats:
    """(T,) the part of what speaks for a token that some features have; 1 where nothing does."""
    if sources.all():
        return np.ones(token_weights.shape[1])
    weights = np.maximum(token_weights, 0.0)
    total = weights.sum(0)
    return np.where(total > 0, weights[sources].sum(0) / np.where(total > 0, total, 1.0), 1.0)


def sentences_of(output: str, span: Span, output_spans: Sequence[Span]) -> tuple[Span, ...]:
    """Where each sentence of the explained output lies, without the white space around it.

    Args:
        output: The answer.
        span: The part of it that is explained.
        output_spans: Where its tokens lie; a sentence without any is left out.
    """
    first, last = span
    spans = []
    for start, end in segmentation.sentences(output[first:last]):
        text = output[first + start : first + end]
        begin = first + start + len(text) - len(text.lstrip())
        spans.append((begin, begin + len(text.strip())))
    return tuple(
        (start, end)
        for start, end in spans
        if start < end and any(a < end and b > start for a, b in output_spans)
    )
