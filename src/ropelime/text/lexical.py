"""Words that texts have in common: what an explanation knows before any model is asked."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import regex

from ropelime.text import actions
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.text.segmentation import questions
from ropelime.text.similarity import is_bare
from ropelime.text.vocabulary import UNSPACED, character_pairs, stem
from ropelime.typing import Floats, Masks

Terms = Callable[[str], list[str]]  # cuts a text
_K1, _B = 1.5, 0.75
_WORD = regex.compile(r"[\w\p{M}]+")
_UNSPACED = regex.compile(rf"[{UNSPACED}]")
_RUN = regex.compile(rf"(?:[{UNSPACED}]\p{{M}}*)+|[^{UNSPACED}]+")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")


def words(text: str) -> list[str]:
    """The words of a text, in lower case; of scripts without spaces the pairs of characters."""
    found: list[str] = _WORD.findall(text.lower())
    if not _UNSPACED.search(text):
        return found
    return [term for word in found for run in _RUN.findall(word) for term in _terms(run)]


def _terms(run: str) -> list[str]:
    return character_pairs(run) if _UNSPACED.match(run) else [run]


def stems(text: str) -> list[str]:
    """The words of a text without their endings."""
    return [stem(word) for word in words(text)]


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


def question(prompt: Prompt, features: Sequence[Feature]) -> str:
    """What a prompt asks.

    It is the text outside the features, and the sentences that ask in a prompt of one text, or in the
    last message of the user.
    """
    asked = [prompt.text[start:end] for start, end in _asking(prompt)]
    return "\n".join([pinned(prompt, features), *asked])


def asks(prompt: Prompt, features: Sequence[Feature]) -> Masks:
    """(n,) which features lie in the sentences that ask: a prompt may hold its own question."""
    spans = _asking(prompt)
    starts = [start for start, _ in spans]
    at = [bisect_right(starts, feature.start) - 1 for feature in features]
    inside = [i >= 0 and f.end <= spans[i][1] for i, f in zip(at, features, strict=True)]
    return np.array(inside, dtype=bool)


def _asking(prompt: Prompt) -> list[Span]:
    """The sentences that ask in a prompt of one text, or in the last message of the user."""
    begin, end = (0, len(prompt.text)) if prompt.kind == "prompt" else (0, 0)
    if prompt.kind == "messages":
        users = [message for message in prompt.messages if message.role == "user"]
        begin, end = (users[-1].start, users[-1].end) if users else (0, 0)
    parts = [(start, stop) for start, stop in prompt.parts if begin <= start and stop <= end]
    return [(at + a, at + b) for at, stop in parts for a, b in questions(prompt.text[at:stop])]


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
    among others that say what was asked for is a likelier source than one that stands alone. A mere yes
    or no says what the question says, wherever that stands, and features that ask are none of its
    sources.

    Of tool calls: what each feature has of them, as :func:`ropelime.text.actions.asked_for` says;
    calls that were made before have nothing.
    """
    texts = [feature.text for feature in features]
    if (call := actions.fields(output)) is not None:
        before = actions.earlier_calls(prompt, [(each.start, each.end) for each in features])
        return (1.0 - before) * actions.asked_for(call, texts)
    bare = is_bare(output)
    asked = question(prompt, features) if bare else pinned(prompt, features)
    query = f"{asked} {output} {output}"
    own = bm25(query, texts, terms=stems)
    numbers = paragraphs(prompt, features)
    joined = [""] * (max(numbers, default=-1) + 1)
    for number, text in zip(numbers, texts, strict=True):
        joined[number] += f" {text}"
    around = bm25(query, joined, terms=stems)[numbers]
    counted = ~asks(prompt, features) if bare else 1.0
    return np.asarray(np.cbrt(own**2 * around) * counted)
