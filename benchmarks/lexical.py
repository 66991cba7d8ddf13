"""Rankings by words alone: what every explanation has to beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

import numpy as np

from benchmarks.names import BM25, LONGEST_COMMON
from ropelime.text.lexical import bm25, words
from ropelime.text.similarity import token_f1
from ropelime.typing import Floats

__all__ = ["bm25", "longest_common", "token_f1", "words"]


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


# Each ranking takes the question, the answer and the parts.
RANKINGS: Mapping[str, Callable[[str, str, Sequence[str]], Floats]] = {
    "BM25(question)": lambda question, answer, parts: bm25(question, parts),
    "BM25(answer)": lambda question, answer, parts: bm25(answer, parts),
    BM25: lambda question, answer, parts: bm25(f"{question} {answer}", parts),
    "BM25(question + 2 × answer)": lambda question, answer, parts: bm25(
        f"{question} {answer} {answer}", parts
    ),
    LONGEST_COMMON: lambda question, answer, parts: longest_common(answer, parts),
}
