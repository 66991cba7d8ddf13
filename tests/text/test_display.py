"""Text is cut to the room that there is, and never longer than that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.text.display import shorten


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("as it is", 8, "as it is"),
        ("one\n  line\t", 8, "one line"),
        ("too long for it", 8, "too lon…"),
        ("to be cut here", 7, "to be…"),  # no space before the ellipsis
        ("ab", 1, "…"),
        ("", 5, ""),
    ],
)
def test_shorten(text: str, limit: int, expected: str) -> None:
    assert shorten(text, limit) == expected


def test_the_end_of_a_path_is_kept() -> None:
    assert shorten("/a/long/path/to/a.txt", 9, keep_end=True) == "…to/a.txt"
    assert shorten("a.txt", 9, keep_end=True) == "a.txt"
    assert shorten("a.txt", 1, keep_end=True) == "…"


@given(st.text(), st.integers(1, 40), st.booleans())
def test_never_longer_than_allowed(text: str, limit: int, keep_end: bool) -> None:
    assert len(shorten(text, limit, keep_end=keep_end)) <= limit
