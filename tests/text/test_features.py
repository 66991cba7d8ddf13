"""Prompts are cut into features that tile their parts, or into the spans that the caller names."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.errors import InputError
from ropelime.text.features import split
from ropelime.text.prompt import from_context, from_messages, from_text

CONTEXT = from_context(["One is here. Two is there.", "Three.\n\nFour."], "Which one?")
CHAT = from_messages([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}])


def texts(found: Any) -> list[str]:
    return [feature.text for feature in found]


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("sentence", ["One is here. ", "Two is there.", "Three.\n\n", "Four."]),
        ("paragraph", ["One is here. Two is there.", "Three.\n\n", "Four."]),
        ("document", ["One is here. Two is there.", "Three.\n\nFour."]),
        ("word", ["One ", "is ", "here. ", "Two ", "is ", "there.", "Three.\n\n", "Four."]),
    ],
)
def test_granularities_cut_the_chunks_and_never_the_question(
    granularity: str, expected: list[str]
) -> None:
    found = split(CONTEXT, granularity)
    assert texts(found) == expected
    assert all(CONTEXT.text[f.start : f.end] == f.text for f in found)


def test_a_feature_knows_its_chunk() -> None:
    assert [feature.part for feature in split(CONTEXT, "sentence")] == [0, 0, 1, 1]
    assert [(f.text, f.part) for f in split(CHAT, "message")] == [("Be brief.", 0), ("Why?", 1)]


def test_tokens_come_from_the_surrogate() -> None:
    found = split(from_text("abcd"), "token", token_spans=lambda text: [(0, 1), (1, len(text))])
    assert texts(found) == ["a", "bcd"]
    with pytest.raises(InputError, match="needs a surrogate that has a tokenizer"):
        split(from_text("abcd"), "token")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab .\n\u4eca", min_size=3).filter(str.strip), min_size=2, max_size=4))
def test_named_granularities_tile_every_part(chunks: list[str]) -> None:
    prompt = from_context(chunks, "Q?")
    for granularity in ("word", "sentence", "paragraph", "document"):
        found = split(prompt, granularity)
        for number, (start, end) in enumerate(prompt.parts):
            inside = [f for f in found if f.part == number]
            assert (inside[0].start, inside[-1].end) == (start, end)
            assert all(a.end == b.start for a, b in pairwise(inside))


def test_spans_of_the_caller_pin_the_rest() -> None:
    prompt = from_text("Say: red or blue?")
    found = split(prompt, [(5, 8), np.array([12, 16])])  # type: ignore[list-item]
    assert texts(found) == ["red", "blue"]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 3), (2, 5)], r"features\[1\] = \(2, 5\) overlaps or stands before"),
        ([(4, 7), (0, 3)], "sorted and disjoint"),
        ([(0, 3), (4, 99)], r"\(4, 99\) does not lie in the prompt, which has 11 characters"),
        ([(-1, 3), (4, 7)], "does not lie in the prompt"),
        ([(3, 3), (4, 7)], "start < end"),
        ([(0, 3), (3, 4)], "only white space"),
        ([(0, 3), 5], r"features\[1\] must be \(start, end\), not 5"),
        ([(0, 3), (4, 5, 6)], r"must be \(start, end\)"),
        ([(0, 3), (4.5, 7)], r"must be \(start, end\)"),
        (["12", "34"], r"features\[0\] must be \(start, end\)"),
        (7, "must be a granularity or a list"),
        (None, "must be a granularity or a list"),
        ([], "0 features and an attribution needs at least two"),
        ([(0, 3)], "1 feature and"),
    ],
)
def test_wrong_spans(spans: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(from_text("one two thr"), spans)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("sentense", "Did you mean 'sentence'. Known: document, message, paragraph"),
        ("sentence", "1 feature and .* Cut it finer"),
        ("document", r"needs context=\[...\]; this is a prompt"),
        ("message", r"needs messages=\[...\]"),
    ],
)
def test_a_granularity_that_does_not_fit(features: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(from_text("Only one sentence."), features)
