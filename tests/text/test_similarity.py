"""How similar two answers are: figures that can be counted by hand."""

from __future__ import annotations

import pytest

from ropelime.text.similarity import token_f1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Kessel.", "kessel", 1.0),
        ("the river Dray", "Dray, the river", 1.0),
        ("Dray", "the river Dray", 2 * 1 / (1 + 3)),
        ("a a b", "a b b", 2 * 2 / 6),
        ("yes", "no", 0.0),
        ("", "", 1.0),
        ("?!", "...", 1.0),  # neither has a word
        ("", "no", 0.0),
        ("東京です", "東京だ", 2 * 2 / 7),  # by characters: these scripts have no spaces
        ("3.50 in 京都", "in 京", 2 * 2 / 7),
    ],
)
def test_f1_of_words(one: str, other: str, expected: float) -> None:
    assert token_f1(one, other) == pytest.approx(expected)
    assert token_f1(other, one) == pytest.approx(expected)
