"""Rankings by words alone: what every explanation has to beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from ropelime.text.similarity import words
from ropelime.typing import Floats

_K1, _B = 1.5, 0.75


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


def longest_common(answer: str, parts: Sequence[str]) -> Floats:
    """The longest run of words that each part has in common with the answer, in words."""
    wanted = words(answer)
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    found = []
    for part in parts:
        matcher.set_seq1(words(part))
        found.append(matcher.find_longest_match().size)
    return np.array(found, dtype=float)
