"""Citations as OpenAI's annotations and Anthropic's citations: fields, offsets and quotations."""

from __future__ import annotations

from typing import Any

import pytest

from ropelime import Explanation
from toy import additive, toy

TWO = "Yes it is. Now it was."  # two sentences, a token each
CHUNKS: list[Any] = [
    {"text": "Lamps last. They are blue.", "source": "docs/lamps.pdf"},
    {"text": "Cups break.", "source": "https://cups.example/a"},
    "Bags tear.",
]
NONE = [0.0, 0.0]


def made(*coef: Any, **options: Any) -> Explanation:
    given = {"context": CHUNKS, "question": "?", **options}
    chosen = {"features": "sentence", "sampler": "exhaustive", **given}
    return toy(None, TWO, surrogate=additive(coef), **chosen)


def test_files_and_addresses_for_openai() -> None:
    cited = made(NONE, [3.0, 0.0], [0.0, 3.0], NONE).cite()
    assert cited.to_openai() == {
        "type": "output_text",
        "text": TWO,
        "annotations": [
            {
                "type": "file_citation",
                "index": 10,
                "file_id": "docs/lamps.pdf",
                "filename": "docs/lamps.pdf",
            },
            {
                "type": "url_citation",
                "start_index": 11,
                "end_index": 22,
                "url": "https://cups.example/a",
                "title": "https://cups.example/a",
            },
        ],
    }
    given = cited.to_openai(file_ids={"docs/lamps.pdf": "file-1"}, quote=True)["annotations"]
    assert [note.get("file_id") for note in given] == ["file-1", None]
    assert [note["quote"] for note in given] == ["They are blue.", "Cups break."]


def test_openais_sdk_reads_them() -> None:
    text = pytest.importorskip("openai.types.responses.response_output_text")
    part = made(NONE, [3.0, 0.0], [0.0, 3.0], NONE).cite().to_openai()
    read = text.ResponseOutputText.model_validate(part)
    assert [type(note).__name__ for note in read.annotations] == [
        "AnnotationFileCitation",
        "AnnotationURLCitation",
    ]


def test_blocks_for_anthropic() -> None:
    blocks = made(NONE, [3.0, 0.0], NONE, [2.0, 0.0]).cite().to_anthropic()
    assert "".join(block["text"] for block in blocks) == TWO
    first, rest = blocks
    assert rest == {"type": "text", "text": " Now it was."}
    assert (first["type"], first["text"]) == ("text", "Yes it is.")
    assert first["citations"] == [
        {
            "type": "char_location",
            "cited_text": "They are blue.",
            "document_index": 0,
            "document_title": "docs/lamps.pdf",
            "start_char_index": 12,
            "end_char_index": 26,
        },
        {
            "type": "char_location",
            "cited_text": "Bags tear.",
            "document_index": 2,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": 10,
        },
    ]
    for citation in first["citations"]:
        chunk = CHUNKS[citation["document_index"]]
        text = chunk if isinstance(chunk, str) else chunk["text"]
        quoted = text[citation["start_char_index"] : citation["end_char_index"]]
        assert quoted == citation["cited_text"]


def test_messages_and_plain_prompts_are_documents_too() -> None:
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Is it. Is it so."}]
    cited = made(NONE, NONE, [3.0, 0.0], context=None, question=None, messages=chat).cite()
    (citation,) = cited.to_anthropic()[0]["citations"]
    assert (citation["document_index"], citation["start_char_index"]) == (1, 7)
    assert cited.to_openai()["annotations"][0]["filename"] == "message 2, user"
    plain = toy(
        "It is! So it is.", TWO, features="sentence", surrogate=additive([NONE, [3.0, 0.0]])
    ).cite()
    (citation,) = plain.to_anthropic()[0]["citations"]
    assert (citation["document_index"], citation["start_char_index"]) == (0, 7)
    assert plain.to_openai()["annotations"][0]["filename"] == "prompt"


def test_an_answer_without_sources_is_one_block() -> None:
    cited = made(NONE, NONE, NONE, NONE).cite()
    assert cited.to_anthropic() == [{"type": "text", "text": TWO}]
    assert cited.to_openai()["annotations"] == []
