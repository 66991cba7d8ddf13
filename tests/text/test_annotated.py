"""Answers of OpenAI's and Anthropic's API: their text, and what their citations cite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ropelime import InputError
from ropelime.text.annotated import is_message, read_answer
from ropelime.text.marks import MarkedAnswer


class Nothing:
    """No documents are known."""

    def numbered(self, number: int) -> bool:
        return False

    def named(self, name: str) -> bool:
        return False

    def mentions(self, text: str) -> bool:
        return False


def read(answer: Any) -> MarkedAnswer:
    return read_answer(answer, Nothing())


TEXT = "Lamps are blue. Cups are red."


def responses(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": list(annotations)}
    message = {"type": "message", "role": "assistant", "content": [part]}
    return {"object": "response", "output": [{"type": "reasoning", "summary": []}, message]}


def test_files_in_openais_responses() -> None:
    file = {"type": "file_citation", "index": 15, "file_id": "file-1", "filename": "lamps.pdf"}
    answer = read(responses(TEXT, file, {"type": "file_path", "file_id": "x", "index": 0}))
    (mark,) = answer.marks
    assert (answer.text, answer.clean) == (TEXT, TEXT)
    assert (mark.start, mark.end, mark.label) == (15, 15, "file_citation")
    assert mark.reference.names == ("lamps.pdf", "file-1")


def test_addresses_in_openais_responses() -> None:
    text = "Lamps are blue. ([lamps.example](https://lamps.example?utm_source=openai)) Yes."
    url = {"type": "url_citation", "start_index": 16, "end_index": 74, "url": "https://lamps.example",
           "title": "Lamps"}  # fmt: skip
    answer = read(responses(text, url))
    assert answer.clean == "Lamps are blue. Yes."
    (mark,) = answer.marks
    assert mark.reference.names == ("https://lamps.example", "Lamps")
    assert mark.about is None
    (mark,) = read(responses(TEXT, {**url, "start_index": 0, "end_index": 15})).marks
    assert mark.about == (0, 15), "a span that is not a mark is the statement"


def test_chat_completions_nest_their_annotations() -> None:
    url = {"start_index": 0, "end_index": 15, "url": "https://lamps.example", "title": "Lamps"}
    message = {"role": "assistant", "content": TEXT,
               "annotations": [{"type": "url_citation", "url_citation": url}]}  # fmt: skip
    for given in (message, {"choices": [{"message": message}]}):
        (mark,) = read(given).marks
        assert (mark.about, mark.reference.names[0]) == ((0, 15), "https://lamps.example")


def test_assistants_write_their_marks_into_the_text() -> None:
    text = "Lamps are blue【4:0†lamps.pdf】. Cups are red."
    note = {"type": "file_citation", "text": "【4:0†lamps.pdf】", "start_index": 14, "end_index": 29,
            "file_citation": {"file_id": "file-1"}}  # fmt: skip
    answer = read({"content": [{"type": "text", "text": {"value": text, "annotations": [note]}}]})
    assert answer.clean == "Lamps are blue. Cups are red."
    assert [mark.reference.names for mark in answer.marks] == [("file-1",)]


def anthropic(**citation: Any) -> MarkedAnswer:
    return read(
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Well: "},
                {"type": "text", "text": "lamps are blue.", "citations": [citation]},
                {"type": "text", "text": " Cups are red."},
            ],
        }
    )


@pytest.mark.parametrize(
    ("citation", "index", "names", "pages"),
    [
        ({"type": "char_location", "document_index": 1, "document_title": "Lamps",
          "start_char_index": 0, "end_char_index": 9}, 1, ("Lamps",), None),
        ({"type": "page_location", "document_index": 0, "document_title": None,
          "start_page_number": 2, "end_page_number": 3}, 0, (), (2, 3)),
        ({"type": "content_block_location", "document_index": 2, "document_title": "L",
          "start_block_index": 0, "end_block_index": 1}, 2, ("L",), None),
        ({"type": "search_result_location", "search_result_index": 3, "source": "kb/1", "title": "L",
          "start_block_index": 0, "end_block_index": 1}, 3, ("kb/1", "L"), None),
        ({"type": "web_search_result_location", "url": "https://l.example", "title": "L",
          "encrypted_index": "Eo8..."}, None, ("https://l.example", "L"), None),
    ],
)  # fmt: skip
def test_anthropics_citations(citation: Any, index: Any, names: Any, pages: Any) -> None:
    answer = anthropic(**citation, cited_text="Lamps are blue.")
    assert answer.clean == answer.text == "Well: lamps are blue. Cups are red."
    (mark,) = answer.marks
    assert mark.label == citation["type"]
    assert answer.text[slice(*mark.about or ())] == "lamps are blue."
    assert (mark.reference.index, mark.reference.names) == (index, names)
    assert (mark.reference.pages, mark.reference.quote) == (pages, "Lamps are blue.")


def test_objects_of_an_sdk_are_taken_too() -> None:
    @dataclass
    class Dumps:
        data: dict[str, Any]

        def model_dump(self, **_: Any) -> dict[str, Any]:
            return self.data

    file = {"type": "file_citation", "index": 15, "file_id": "file-1", "filename": "lamps.pdf"}
    assert len(read(Dumps(responses(TEXT, file))).marks) == 1


def test_marks_in_the_text_count_beside_the_objects() -> None:
    file = {"type": "file_citation", "index": 15, "file_id": "file-1", "filename": "lamps.pdf"}
    answer = read(responses("Lamps are blue. Cups are red [2].", file))
    assert [mark.label for mark in answer.marks] == ["file_citation", "[2]"]
    assert answer.clean == TEXT


def test_text_is_text() -> None:
    assert read("Lamps are blue [1].").clean == "Lamps are blue."
    assert not is_message({"lamps": "blue"})
    assert not is_message([1, 2])
    assert is_message(responses(TEXT))
    assert is_message([{"type": "text", "text": "a"}])


@pytest.mark.parametrize("wrong", [None, 5, {}, [], {"choices": []}, {"output": [1]}, {"content": [5]}])
def test_other_things_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="output must be a text, or a message"):
        read(wrong)
