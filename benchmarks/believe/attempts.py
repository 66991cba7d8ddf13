"""What was tried beside the chances and weights: measures of a sentence, and rankings for a span.

Each is a number for each sentence of FaithBench, or another order of the parts for a span of citations.
They are stored in rows and compared on the page; the package uses none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from benchmarks import lexical
from ropelime.explain import Explanation
from ropelime.method.attribution import Attribution
from ropelime.text.features import Feature
from ropelime.text.lexical import bm25, coverage, pinned, stems
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats

_NAME = re.compile(r"(?<=[\w,;] )[A-Z]\w+")  # a capital letter within a sentence
_SURPRISED, _HELPED = 3.0, 0.5  # nats
_MORE = (2, 4)  # how much more the words count
_BESIDE, _QUESTION = 0.2, 0.25


class ByWords:
    """What words alone tell of the spans of an answer."""

    def __init__(self, prompt: Prompt, features: Sequence[Feature], output: str) -> None:
        """Of this answer to a prompt."""
        self.output = output
        self.asked = pinned(prompt, features)
        self.texts = [feature.text for feature in features]

    @cached_property
    def _stems(self) -> list[list[str]]:
        return [stems(text) for text in self.texts]

    @cached_property
    def known(self) -> set[str]:
        """The words that a part has."""
        return {stem for each in self._stems for stem in each}

    @cached_property
    def _pairs(self) -> set[tuple[str, str]]:
        return {pair for each in self._stems for pair in pairwise(each)}

    def measures(self, span: Span) -> dict[str, float]:
        """Measures of a sentence that may tell that it adds or changes a detail, larger if it does."""
        text = self.output[slice(*span)]
        own, held = stems(text), [set(each) for each in self._stems]
        wanted, pairs = set(own), list(pairwise(own))
        two = [a | b for a, b in pairwise(held)] or held
        new = sum(pair not in self._pairs for pair in pairs)
        found = {
            "words": len(own),
            "words that no part has": len(wanted - self.known),
            "pairs of words that no part has": new,
            "pairs of words that no part has, relative": new / max(len(pairs), 1),
            "words that the best part lacks": min(len(wanted - part) for part in held),
            "words that the best two neighbours lack": min(len(wanted - part) for part in two),
            "numbers that no part has": sum(w.isdigit() for w in wanted - self.known),
            "names that no part has": len(set(stems(" ".join(_NAME.findall(text)))) - self.known),
        }
        return {name: round(float(value), 4) for name, value in found.items()}

    def rankings(self, span: Span) -> Mapping[str, Floats]:
        """Weights of the parts for a span, by its words."""
        texts, said = self.texts, self.output[slice(*span)]
        covered, by_stems = coverage(said, texts, terms=stems), bm25(said, texts, terms=stems)
        asked, whole = (bm25(text, texts, terms=stems) for text in (self.asked, self.output))
        return {
            "words covered": coverage(said, texts),
            "stems covered": covered,
            "stems covered, also by the parts beside": _beside(covered),
            "BM25 of words": bm25(said, texts),
            "BM25 of stems": by_stems,
            "BM25 of stems, and of the question": by_stems + _QUESTION * asked,
            "BM25 of stems, and of the whole answer": by_stems + _QUESTION * whole,
            "longest common run": lexical.longest_common(said, texts),
        }

    def literal(self, span: Span, first: int, right: Sequence[int]) -> tuple[int, int]:
        """The longest run of words that a span shares with a part, and with a right one."""
        runs = lexical.longest_common(self.output[slice(*span)], self.texts)
        return int(runs[first]), int(runs[list(right)].max())


def token_measures(e: Explanation, span: Span) -> dict[str, float]:
    """What the surrogate tells of a sentence, token by token."""
    scores, spans = e.surrogate_scores, e.output_spans
    known = ByWords(e.prompt, e.features, e.output).known
    inside = [i for i, (a, b) in enumerate(spans) if a < span[1] and b > span[0]]
    given, alone = -scores.logprob[0, inside], -scores.logprob[1, inside]
    worst = np.sort(given)[::-1]
    missing = [bool(set(stems(_whole(e.output, spans[i]))) - known) for i in inside]
    found = {
        "surprise at the least likely token": worst[0],
        "surprise at the three least likely tokens": worst[:3].mean(),
        "surprise, sum": given.sum(),
        "surprise, mean": given.mean(),
        "surprise at words that no part has": given[missing].sum(),
        "surprise that the document adds": np.maximum(given - alone, 0.0).sum(),
        "tokens that the document does not help": np.count_nonzero(
            (alone > _SURPRISED) & (alone - given < _HELPED)
        ),
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def mixtures(e: Explanation, own: Attribution) -> Mapping[str, Floats]:
    """The signals of a fit by themselves, and mixtures in which words count for more."""
    counts = e.strategies().target.signals
    mixed = {
        f"words count {more} times": np.asarray(
            sum(
                signal * counts[name] * (more if name == "words" else 1)
                for name, signal in own.signals.items()
            )
        )
        for more in _MORE
    }
    return {**own.signals, **mixed}


def _beside(values: Floats) -> Floats:
    around = np.zeros(len(values))
    around[1:] += values[:-1]
    around[:-1] += values[1:]
    return np.asarray(values + _BESIDE * around)


def _whole(text: str, span: Span) -> str:
    """The words that a span lies in, at least in part."""
    start, end = span
    while start < end and not text[start].isalnum():
        start += 1
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]
