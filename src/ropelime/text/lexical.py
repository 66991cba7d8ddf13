"""Words that texts have in common: what an explanation knows before any model is asked."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ropelime.text import actions
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt
from ropelime.typing import Floats

Terms = Callable[[str], list[str]]  # cuts a text
_K1, _B = 1.5, 0.75
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def stems(text: str) -> list[str]:
    """The words of a text without their endings."""
    return [actions.stem(word) for word in words(text)]


def bm25(query: str, parts: Sequence[str], *, terms: Terms = words) -> Floats:
    """Okapi BM25 of each part, with document frequencies from the parts themselves.

    Args:
        query: The query. A term that it holds twice counts twice.
        parts: The texts.
        terms: Cuts a text into terms.
    """
    counts = [Counter(terms(part)) for part in parts]
    lengths = np.array([sum(count.values()) for count in counts], dtype=float)
    norm = _K1 * (1 - _B + _B * lengths / max(lengths.mean(), 1.0))
    scores = np.zeros(len(parts))
    for word, times in Counter(terms(query)).items():
        found = np.array([count[word] for count in counts], dtype=float)
        scores += times * _idf(found) * found * (_K1 + 1) / (found + norm)
    return scores


def coverage(text: str, parts: Sequence[str], *, terms: Terms = words) -> Floats:
    """(parts,) the part of a text's terms that each part has, 0 to 1; rare ones count for more."""
    return coverage_by(terms(text), [set(terms(part)) for part in parts])


def coverage_by(wanted: Sequence[str], sets: Sequence[set[str]]) -> Floats:
    """The same of words, by those of the parts: for many texts."""
    return actions.coverage(Counter(wanted), sets, _idf)


def _idf(found: Floats) -> float:
    """How much a word counts, given how often each part has it."""
    holding = np.count_nonzero(found)
    return float(np.log1p((len(found) - holding + 0.5) / (holding + 0.5)))


def pinned(prompt: Prompt, features: Sequence[Feature]) -> str:
    """The text of a prompt outside its features, such as the question."""
    left, at = "", 0
    for feature in sorted(features, key=lambda feature: feature.start):
        left += prompt.text[at : feature.start]
        at = max(at, feature.end)
    return left + prompt.text[at:]


def paragraphs(prompt: Prompt, features: Sequence[Feature]) -> list[int]:
    """The number of the paragraph that each feature stands in: up to a blank line, in one part."""
    breaks = [found.end() for found in _BLANK_LINE.finditer(prompt.text)]
    numbers: dict[tuple[int, int], int] = {}
    found = []
    for feature in features:
        begin = feature.start + len(feature.text) - len(feature.text.lstrip())
        place = feature.part, bisect_right(breaks, begin)
        found.append(numbers.setdefault(place, len(numbers)))
    return found


def shared_words(prompt: Prompt, features: Sequence[Feature], output: str) -> Floats:
    """(n,) BM25 of each feature for the pinned text, such as the question, and twice the output.

    It is the geometric mean of the BM25 of the feature, counted twice, and of its paragraph: a sentence
    among others that say what was asked for is a likelier source than one that stands alone.

    Of tool calls: what each feature has of them, as :func:`ropelime.text.actions.asked_for` says;
    calls that were made before have nothing.
    """
    texts = [feature.text for feature in features]
    if (call := actions.fields(output)) is not None:
        before = actions.earlier_calls(prompt, [(each.start, each.end) for each in features])
        return (1.0 - before) * actions.asked_for(call, texts)
    query = f"{pinned(prompt, features)} {output} {output}"
    own = bm25(query, texts, terms=stems)
    numbers = paragraphs(prompt, features)
    joined = [""] * (max(numbers, default=-1) + 1)
    for number, text in zip(numbers, texts, strict=True):
        joined[number] += f" {text}"
    around = bm25(query, joined, terms=stems)[numbers]
    return np.asarray(np.cbrt(own**2 * around))
