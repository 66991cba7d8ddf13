"""The answer with its sources: which parts of the prompt each sentence of it rests on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ropelime.results.explanation import ExplanationData

MOST = 3  # sources of one sentence
ABOVE = 1.5  # times the share that a feature would have if all were alike
FULL = 0.5  # a share this large is enough, however few features there are
BESIDE = 0.125  # of the sentence's largest share: less is not named beside it
MOVED = 0.1  # nats a token: a sentence that no mask moved by more rests on nothing in the prompt


@dataclass(frozen=True)
class Source:
    """A part of the prompt that is cited.

    Attributes:
        number: Its number in the list, from 1, in the order of the first mention.
        feature: Its place among the features.
        text: The part itself.
        where: What it was cut from, as far as that has a name: a chunk with its source and page, or a
            message.
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
        sources: Numbers of its sources, the largest share first.
        shares: The share of each of them in this sentence.
    """

    start: int
    end: int
    sources: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Cited:
    """An answer with its sources; ``str()`` gives it as plain text.

    Attributes:
        answer: The answer as it was given.
        sentences: Its sentences, with the numbers of their sources.
        sources: What the numbers stand for.
    """

    answer: str
    sentences: tuple[CitedSentence, ...]
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        lines = [self._marked("[{}]"), ""]
        for source in self.sources:
            where = f" ({source.where})" if source.where else ""
            lines.append(f"[{source.number}] {_line(source.text)}{where}")
        if not self.sources:
            lines.append("No part of the prompt stands out as a source.")
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """The same with Markdown's footnotes; the answer keeps its own Markdown, sources are text."""
        lines = [self._marked("[^{}]"), ""]
        for source in self.sources:
            where = f" ({_escaped(source.where)})" if source.where else ""
            lines.append(f"[^{source.number}]: {_escaped(_line(source.text))}{where}")
        return "\n".join(lines).rstrip("\n") + "\n"

    def _marked(self, mark: str) -> str:
        text, at = "", 0
        for sentence in self.sentences:
            marks = "".join(mark.format(number) for number in sentence.sources)
            text += self.answer[at : sentence.end] + (f" {marks}" if marks else "")
            at = sentence.end
        return text + self.answer[at:]


def cite(e: ExplanationData) -> Cited:
    """Name the sources of every sentence of the explained answer.

    A sentence cites the features that support it most. The weight of a feature in a sentence is the
    sum of its weights over the sentence's tokens, and its share is that weight against all weights in
    the sentence. A feature is cited when it supports the sentence and its share is at least

    - one and a half times that of a feature if all were alike (or a half, where that is less), and
    - an eighth of the largest share in this sentence,

    the three largest at most. A sentence that no masked prompt moved by 0.1 nats a token, such as a
    phrase of courtesy, cites nothing: its shares would be shares of noise.
    """
    enough = min(ABOVE / len(e.features), FULL)
    numbers: dict[int, int] = {}
    sentences = []
    for start, end in e.output_sentences:
        first, last = e.tokens_in(start, end)
        weights = e.token_weights[:, first:last].sum(1)
        total = np.abs(weights).sum()
        chosen: list[int] = []
        shares = weights / total if total > 0 else weights
        if moved(e, first, last) >= MOVED:
            bar = max(enough, BESIDE * float(np.abs(shares).max()))
            order = np.argsort(-shares, kind="stable")[:MOST]
            chosen = [int(i) for i in order if shares[i] >= bar]
        sentences.append(
            CitedSentence(
                start,
                end,
                tuple(numbers.setdefault(i, len(numbers) + 1) for i in chosen),
                tuple(float(shares[i]) for i in chosen),
            )
        )
    sources = tuple(
        Source(number, i, e.features[i].text.strip(), e.prompt.where(e.features[i].part))
        for i, number in numbers.items()
    )
    return Cited(e.output, tuple(sentences), sources)


def moved(e: ExplanationData, first: int, last: int) -> float:
    """By how much the masked prompt that moved these output tokens most did so, in nats a token."""
    read = e.surrogate_scores.logprob[:, first:last]
    return float(np.abs(read - read[0]).mean(1).max())


def _line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    text = re.sub(r"([\\`*_\[\]<>&|~])", r"\\\1", text)
    return re.sub(r"^(\d*)([#+\-.)])", r"\1\\\2", text)  # nor may it open a heading or a list
