"""Words that features have in common with the question and the answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ropelime.text.features import split
from ropelime.text.lexical import bm25, paragraphs, shared_words, stems, words
from ropelime.text.prompt import from_context, from_text, read_prompt

ONCE = math.log(1 + 2.5 / 1.5)  # idf of a word that one of three parts holds; all are equally long


def test_words_are_in_lower_case_and_without_marks() -> None:
    assert words("Louvre's 2 wings, in PARIS.") == ["louvre", "s", "2", "wings", "in", "paris"]


def test_bm25_of_nothing_in_common() -> None:
    assert bm25("Paris", ["in rome", "in bonn"]).tolist() == [0, 0]
    assert bm25("", ["in rome", ""]).tolist() == [0, 0]


def test_the_pinned_question_counts_once_and_the_answer_twice() -> None:
    prompt = from_context(["Apples grow.", "Bears sleep.", "Cats purr."], "Who are the bears?")
    features = split(prompt, "document")
    assert [feature.text for feature in features] == ["Apples grow.", "Bears sleep.", "Cats purr."]
    np.testing.assert_allclose(shared_words(prompt, features, "Cats."), [0, ONCE, 2 * ONCE])
    np.testing.assert_allclose(shared_words(prompt, features, "Bears."), [0, 3 * ONCE, 0])
    np.testing.assert_allclose(shared_words(prompt, features, "Dogs."), [0, ONCE, 0])


def test_a_sentence_counts_for_more_in_a_paragraph_that_has_to_do_with_the_question() -> None:
    prompt = from_text("Apples grow. Bears purr.\n\nCats purr. Cats sleep.\n\nDogs bark.")
    features = split(prompt, "sentence")
    assert paragraphs(prompt, features) == [0, 0, 1, 1, 2]
    assert paragraphs(prompt, features[::-1]) == [0, 1, 1, 2, 2]
    found = shared_words(prompt, features, "A cat purrs.")
    assert found[2] > found[3] > found[1] > 0, "the second sentence has one word of the answer"
    assert found[[0, 4]].tolist() == [0, 0]


def test_endings_do_not_count() -> None:
    assert stems("Designed houses") == stems("design house")
    prompt = from_context(["Apples grow.", "Bears sleep."], "?")
    assert shared_words(prompt, split(prompt, "document"), "A bear slept.")[1] > 0


def test_nothing_is_pinned_in_a_prompt_that_is_all_features() -> None:
    prompt = from_text("Apples grow. Bears sleep. Cats purr.")
    features = split(prompt, "sentence")
    found = shared_words(prompt, features, "Cats.")
    assert found[:2].tolist() == [0, 0]
    assert found[2] > 0


def test_what_lies_between_chosen_spans_is_pinned() -> None:
    text = "Apples grow. Ask the bears! Bears sleep. Cats purr. Bears?"
    spans = [
        (text.index(part), text.index(part) + len(part)) for part in ("Cats purr.", "Bears sleep.")
    ]
    spans += [(0, len("Apples grow."))]  # in no order
    prompt = from_text(text)
    features = split(prompt, sorted(spans))
    found = shared_words(prompt, features, "Cats.")
    assert found[0] == 0
    assert found[1] == pytest.approx(found[2])
    np.testing.assert_allclose(shared_words(prompt, features[::-1], "Cats."), found[::-1])


def test_a_bare_yes_has_the_words_of_its_question() -> None:
    chat = [
        {"role": "system", "content": "You are a bot. Returns are free. Shipping takes two days."},
        {"role": "user", "content": "Are returns free?"},
    ]
    prompt = read_prompt(messages=chat)
    shared = shared_words(prompt, split(prompt, "sentence"), "Yes.")
    assert shared.argmax() == 1
    assert shared[3] == 0, "the question itself does not count"
    assert not shared_words(prompt, split(prompt, "sentence"), "Kessel.").any()


def test_words_keep_their_marks() -> None:
    assert words("वह दिल्ली में रहती है") == ["वह", "दिल्ली", "में", "रहती", "है"]
    assert words("ที่") == ["ที", "ี่"], "pairs of characters, marks among them"
