"""How similar two answers are, by their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

Similarity = Callable[[str, str], float]

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # scripts that write no space between words
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")


def _words(text: str) -> list[str]:
    """The words of a text, in lower case; each Chinese or Japanese character is one."""
    return _WORD.findall(text.lower())


def token_f1(answer: str, reference: str) -> float:
    """F1 of the words that two answers share, as for SQuAD, articles included.

    1 if both have the same words, in any order, and 0 if they share none.
    """
    one, other = Counter(_words(answer)), Counter(_words(reference))
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total()) if shared else float(one == other)
