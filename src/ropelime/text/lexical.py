"""Words that texts have in common: what an explanation knows before any model is asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt
from ropelime.typing import Floats

_K1, _B = 1.5, 0.75


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def bm25(query: str, parts: Sequence[str]) -> Floats:
    """Okapi BM25 of each part, with document frequencies from the parts themselves.

    A word that the query holds twice counts twice.
    """
    counts = [Counter(words(part)) for part in parts]
    lengths = np.array([sum(count.values()) for count in counts], dtype=float)
    norm = _K1 * (1 - _B + _B * lengths / max(lengths.mean(), 1.0))
    scores = np.zeros(len(parts))
    for word, times in Counter(words(query)).items():
        found = np.array([count[word] for count in counts], dtype=float)
        holding = np.count_nonzero(found)
        idf = np.log1p((len(parts) - holding + 0.5) / (holding + 0.5))
        scores += times * idf * found * (_K1 + 1) / (found + norm)
    return scores


def shared_words(prompt: Prompt, features: Sequence[Feature], output: str) -> Floats:
    """(n,) BM25 of each feature for the pinned text, such as the question, and twice the output."""
    pinned, at = "", 0
    for feature in sorted(features, key=lambda feature: feature.start):
        pinned += prompt.text[at : feature.start]
        at = max(at, feature.end)
    pinned += prompt.text[at:]
    return bm25(f"{pinned} {output} {output}", [feature.text for feature in features])
