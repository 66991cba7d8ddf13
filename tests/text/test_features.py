"""Prompts are cut into features that tile their parts, or into the spans that the caller names."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.errors import InputError
from ropelime.surrogate import FunctionSurrogate
from ropelime.text.features import split, token_owners, with_tokens
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
    found = split(
        from_text("abcd"), "token", token_spans=lambda prompt: [(0, 1), (1, len(prompt.text))]
    )
    assert texts(found) == ["a", "bcd"]
    with pytest.raises(InputError, match="needs a surrogate that has a tokenizer"):
        split(from_text("abcd"), "token")


def test_tokens_that_reach_over_parts_and_white_space() -> None:
    prompt = from_context(["One two", "three "], None)
    text = prompt.text
    at = text.index
    spans = [
        (0, 9), (at("One"), at(" two")), (at(" two"), at("\n\nthree") + 1),
        (at("\n\nthree") + 1, at("ree")), (at("ree"), len(text) - 1), (len(text) - 1, len(text)),
    ]  # fmt: skip
    found = split(prompt, "token", token_spans=lambda _: spans)
    assert [(f.text, f.part) for f in found] == [("One ", 0), ("two", 0), ("th", 1), ("ree ", 1)]
    assert token_owners(found, [None, *spans], text).tolist() == [-1, -1, 0, 1, 2, 3, 3]


def test_features_smaller_than_a_token_join_the_one_that_owns_it() -> None:
    prompt = from_text("one two three four")
    spans = [(0, 3), (3, 10), (10, 13), (13, 18)]  # "two th" is one token
    found = split(prompt, "word", token_spans=lambda _: spans)
    assert texts(found) == ["one ", "two ", "three ", "four"], "each owns the token that it begins"
    coarse = [(0, 3), (3, 13), (13, 18)]  # and here "two three"
    found = split(prompt, "word", token_spans=lambda _: coarse)
    assert texts(found) == ["one ", "two three ", "four"]
    assert texts(split(prompt, "word")) == ["one ", "two ", "three ", "four"]
    message = r"features\[1\] = \(8, 13\) 'three' shares its only token with a neighbour.* Join the two"
    with pytest.raises(InputError, match=message):
        split(prompt, [(4, 7), (8, 13)], token_spans=lambda _: coarse)
    with pytest.raises(InputError, match=r"The first feature has no token of its own. Use coarser"):
        split(prompt, "word", token_spans=lambda _: spans[1:])


def test_features_that_join_into_one_are_refused() -> None:
    letters = split(from_text("ab"), [(0, 1), (1, 2)])
    with pytest.raises(InputError, match="1 feature and an attribution needs at least two"):
        with_tokens(letters, [(0, 2)], "ab", given=False)


def test_a_surrogate_without_a_tokenizer_leaves_features_as_they_are() -> None:
    surrogate = FunctionSurrogate(len)
    prompt = from_text("one two")
    assert texts(split(prompt, "word", token_spans=surrogate.token_spans)) == ["one ", "two"]
    with pytest.raises(InputError, match=r"function has no tokenizer. Use features='word'"):
        split(prompt, "token", token_spans=surrogate.token_spans)


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
