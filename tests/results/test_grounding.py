"""Grounding: whether a sentence of the answer comes from the prompt, and from which part."""

from __future__ import annotations

import numpy as np
import pytest

from ropelime import explain
from ropelime.results.grounding import measure, sentences_of
from ropelime.text.features import split
from ropelime.text.lexical import coverage, stems
from ropelime.text.prompt import from_text
from toy import additive, scoring

DOCUMENTS = ["The mill was built in 1882.", "Its owner was Ada Brook.", "Cats sleep all day."]
ANSWER = "The mill was built in 1882. Napoleon slept there once."


def test_coverage_counts_rare_words_for_more() -> None:
    parts = ["the red mill", "the blue house", "the house"]
    assert coverage("the mill", parts)[0] == 1
    assert coverage("nothing", parts).tolist() == [0, 0, 0]
    assert coverage("", parts).tolist() == [0, 0, 0]
    covered = coverage("the mill", parts)
    assert covered[1] == covered[2] < 0.2, "a word that all parts have hardly counts"
    assert coverage("mills", parts)[0] == 0 < coverage("mills", parts, terms=stems)[0]


def test_measures_of_two_sentences() -> None:
    text = "red mill. Blue sky."
    features = split(from_text("red mill is here\n\nnothing else"), "paragraph")
    spans = [(0, 3), (4, 9), (10, 14), (15, 19)]
    scores = scoring([[1, 1], [0, 0]], [[-1.0, -1.0, -4.0, -4.0], [-3.0, -5.0, -4.0, -3.0]])
    sentences = sentences_of(text, (0, len(text)), spans)
    assert sentences == ((0, 9), (10, 19))
    found = measure(text, sentences, spans, features, scores, asked="Is the sky blue?")
    assert found.tokens.tolist() == [2, 2]
    assert found.gain.tolist() == [3.0, 0.0], "a fall counts as nothing"
    np.testing.assert_allclose(found.explained, [6 / 8.5, 0])
    np.testing.assert_allclose(found.covered, [1, 0])
    assert found.grounded[0] > found.grounded[1]


@pytest.mark.parametrize("answer", ["yes", "No.", "True"])
def test_a_yes_or_no_says_what_was_asked(answer: str) -> None:
    features = split(from_text("The mill has a red roof.\n\nCats sleep."), "paragraph")
    scores = scoring([[1, 1], [0, 0]], [[-1.0], [-1.5]])
    spans = [(0, len(answer))]
    near, far, none = (
        measure(answer, spans, spans, features, scores, asked=asked)
        for asked in ("Has the mill a red roof?", "Is Rome in Peru?", "")
    )
    assert (
        near.covered[0] == coverage("Has the mill a red roof?", [f.text for f in features]).max() > 0.9
    )
    assert far.covered[0] == none.covered[0] == 0
    assert near.grounded[0] > far.grounded[0]
    more = f"{answer} indeed"
    assert measure(more, [(0, len(more))], spans, features, scores, asked="The mill?").covered[0] == 0


def grounded(answer: str = ANSWER, documents: list[str] = DOCUMENTS, first: float = 6.0) -> list[bool]:
    coef = np.zeros((len(documents), 2))
    coef[0, 0] = first
    e = explain(
        output=answer, context=documents, question="What about the mill?", features="document",
        surrogate=additive(coef, -7.0), target="nll", kernel="uniform", progress=False,
    )  # fmt: skip
    return [sentence.grounded for sentence in e.grounding]


def test_an_invented_sentence_has_no_source() -> None:
    assert grounded() == [True, False]


def test_it_holds_wherever_the_document_stands_and_whatever_else_there_is() -> None:
    more = ["Rain fell on Monday.", "The train was late.", "Bread costs little."]
    assert grounded(documents=[*DOCUMENTS, *more]) == [True, False]
    assert grounded(documents=[DOCUMENTS[0], *more, *DOCUMENTS[1:]]) == [True, False]


def test_unrelated_documents_give_nothing_a_source() -> None:
    assert grounded(documents=["Cats sleep all day.", "Bread costs little."], first=0.0) == [
        False,
        False,
    ]


def test_sources_have_their_document_and_place() -> None:
    coef = np.zeros((3, 2))
    coef[0, 0] = 6.0
    e = explain(
        output=ANSWER, context=DOCUMENTS, question="?", features="document",
        surrogate=additive(coef, -7.0), target="nll", kernel="uniform", progress=False,
    )  # fmt: skip
    first, second = e.grounding
    assert e.output[slice(*first.span)] == first.text == "The mill was built in 1882."
    (source,) = first.sources
    assert (source.feature, source.document) == (0, 0)
    assert source.share == pytest.approx(1.0)
    assert e.prompt.text[slice(*source.span)] == DOCUMENTS[0]
    assert second.sources == ()
    text = str(e.cite())
    assert text.startswith("The mill was built in 1882. [1] Napoleon slept there once. [–]\n")
    assert text.endswith(
        "\n[–] Not in the documents: no part of the prompt was found to be its source."
    )
    assert "[^none]: Not in the documents" in e.cite().to_markdown()
