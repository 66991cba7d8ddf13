"""Marks in an answer: which text is one, what it cites, and the answer without it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.text.marks import MarkedAnswer, read_marks

URL = "https://lamps.example/guarantee"


@dataclass(frozen=True)
class Four:
    """Four documents, two of them with a name."""

    names: tuple[str, ...] = ("guarantee.pdf", URL)

    def numbered(self, number: int) -> bool:
        return 1 <= number <= 4

    def named(self, name: str) -> bool:
        return name in self.names

    def mentions(self, text: str) -> bool:
        return text == "https://lamps.example/form"


def read(text: str) -> MarkedAnswer:
    return read_marks(text, Four())


def numbers(answer: MarkedAnswer) -> list[int | None]:
    return [mark.reference.number for mark in answer.marks]


@pytest.mark.parametrize(
    ("text", "clean", "cited"),
    [
        ("It is. [1]", "It is.", [1]),
        ("It is [1].", "It is.", [1]),
        ("It is.[1] So.", "It is. So.", [1]),
        ("It is. [1][2] So.", "It is. So.", [1, 2]),
        ("It is. [1], [2]", "It is.", [1, 2]),
        ("It is [1, 3].", "It is.", [1, 3]),
        ("It is ([1]; [2]).", "It is.", [1, 2]),
        ("It is [1-3].", "It is.", [1, 2, 3]),
        ("It is [2–3; 1].", "It is.", [2, 3, 1]),
        ("It is【1†source】.", "It is.", [1]),
        ("It is 【2】.", "It is.", [2]),
        ("It is [doc2], and [Document 3].", "It is, and.", [2, 3]),
        ("It is.<sup>1</sup> So<sup>[2, 3]</sup>.", "It is. So.", [1, 2, 3]),
        ("It is.¹ Such,² lamps³.", "It is. Such, lamps.", [1, 2, 3]),
        ("It is.¹˒² So.", "It is. So.", [1, 2]),
        ("It is.¹² So.", "It is. So.", [1, 2]),  # there is no document 12
        ("It is.[^1] So.[^2]", "It is. So.", [1, 2]),
        ("[1] It is.\n- [2] So.", "It is.\n- So.", [1, 2]),
        ("It is. [9]", "It is.", [9]),  # none has that number: the audit says so
        ("Two [1]\n\nlines [2]\n", "Two\n\nlines", [1, 2]),
    ],
)
def test_marks_are_read_and_taken_out(text: str, clean: str, cited: list[int]) -> None:
    answer = read(text)
    assert answer.clean == clean
    assert numbers(answer) == cited


@pytest.mark.parametrize(
    "text",
    [
        "12 m² or x² or 10³, since [2020].",
        "`a[1]` and\n```\nb[2]\n```\n",
        "A [note] and a [ ] and ![1](x.png) and [x].",
        "Fill in [the form](https://lamps.example/form), see https://other.example/x.",
        "[Above](#top), [mail](mailto:a@example.org).",
        "1. One.\n2. Two.",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    answer = read(text)
    assert answer.marks == ()
    assert answer.clean == text


@pytest.mark.parametrize("form", ["[{}]", "[^{}]", "[^{}]: It says so.", "【{}†source】", "[1-{}]"])
def test_a_number_of_thousands_of_digits_is_read(form: str) -> None:
    answer = read(f"It is red [1].\n\n{form.format('9' * 5000)} And blue.")
    assert 1 in numbers(answer)


def test_links_cite_by_their_address() -> None:
    answer = read(f"Six years ([source]({URL})). Or [1]({URL}), [guarantee.pdf](guarantee.pdf).")
    assert answer.clean == "Six years. Or."
    assert [mark.reference.names for mark in answer.marks] == [(URL,), (URL,), ("guarantee.pdf",)]
    assert read(f"Six years [[1]]({URL}).").clean == "Six years."
    assert read(f"Six years ([The guarantee]({URL}), [it]({URL})).").clean == "Six years."
    assert read(f"Six years. [The guarantee]({URL}) So it is.").clean == "Six years. So it is."
    assert (
        read(f"Six years.\n[The guarantee]({URL}) is long.").clean
        == "Six years.\nThe guarantee is long."
    )
    assert read(f"Six years <{URL}>.").clean == "Six years."
    assert read("Six years [guarantee.pdf].").clean == "Six years."


def test_words_of_a_link_stay() -> None:
    answer = read(f"They have [six years]({URL}) of it.")
    assert answer.clean == "They have six years of it."
    (mark,) = answer.marks
    assert mark.label == f"[six years]({URL})"
    assert answer.to_text(10, 19) == (11, 20)


def test_an_invented_link_is_a_mark() -> None:
    (mark,) = read("It is ([here](https://invented.example/a)).").marks
    assert mark.reference.names == ("https://invented.example/a",)


def test_a_search_result_is_counted_from_zero_or_named() -> None:
    first, second = read("It is 【4:0†unknown.pdf】. So 【4:1†guarantee.pdf】.").marks
    assert (first.reference.index, first.reference.names) == (0, ())
    assert (second.reference.index, second.reference.names) == (None, ("guarantee.pdf",))


def test_footnotes_say_what_they_cite() -> None:
    answer = read("It is.[^a] So.[^2]\n\n[^a]: guarantee.pdf,\n    page 3\n[^2]: Other.\n")
    assert answer.clean == "It is. So."
    assert [mark.reference.definition for mark in answer.marks] == ["guarantee.pdf, page 3", "Other."]
    assert [mark.label for mark in answer.marks] == ["[^a]", "[^2]"]


@pytest.mark.parametrize(
    "tail",
    [
        "\n\n[1] guarantee.pdf\n[2] Other.",
        "\n\n[1]: guarantee.pdf\n[2]: Other.\n",
        "\n\nSources:\n1. guarantee.pdf\n2. Other.\n",
        "\n\n## References\n\n- [1] guarantee.pdf\n- [2] Other.",
        "\n\n**Sources**\n¹ guarantee.pdf\n² Other.",
    ],
)
def test_a_list_of_sources_says_what_numbers_mean(tail: str) -> None:
    answer = read("It is [1]. So [2]." + tail)
    assert answer.clean == "It is. So."
    assert [mark.reference.definition for mark in answer.marks] == ["guarantee.pdf", "Other."]


def test_a_list_that_nothing_cites_is_part_of_the_answer() -> None:
    text = "Steps:\n\n1. Send it.\n2. Wait."
    assert read(text).clean == text
    answer = read("Two things.\n\n[1] One is.\n[2] Two is.")
    assert answer.clean == "Two things.\n\nOne is.\nTwo is."
    assert all(mark.leads for mark in answer.marks)


def test_places_are_mapped_both_ways() -> None:
    answer = read("It is [1]. So (see [2]) it was.")
    assert answer.clean == "It is. So (see) it was."
    assert answer.to_text(0, 6) == (0, 10)
    assert answer.text[slice(*answer.to_text(7, 23))] == "So (see [2]) it was."
    assert answer.to_clean(len(answer.text)) == len(answer.clean)
    assert [answer.to_clean(mark.start) for mark in answer.marks] == [5, 14]


@given(
    st.lists(
        st.sampled_from(
            ["It is", ". ", "[1]", " [2]", "¹", "[^1]", "(", ")", "\n", "`", "[1]: x\n", f"[a]({URL})",
             "【1†s】", "[", "]", "<sup>1</sup>", "\n\n[1] x"]
        ),
        max_size=12,
    ).map("".join)
)  # fmt: skip
def test_nothing_is_lost_but_what_is_removed(text: str) -> None:
    answer = read(text)
    at = 0
    for start, end in answer.removed:
        assert at <= start <= end <= len(text)
        at = end
    kept = "".join(
        text[a:b]
        for a, b in zip(
            [0, *(end for _, end in answer.removed)],
            [*(start for start, _ in answer.removed), len(text)],
            strict=True,
        )
    )
    assert answer.clean == kept
    for place, letter in enumerate(kept):
        start, end = answer.to_text(place, place + 1)
        assert text[start:end] == letter
        assert answer.to_clean(start) == place


def test_long_answers_take_no_longer_per_character() -> None:
    text = "It is so [1]. " * 20_000 + "[" * 20_000 + "(" * 20_000
    assert len(read(text).marks) == 20_000
