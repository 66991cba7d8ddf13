"""The documents of a prompt: where they are, and which of them a reference means."""

from __future__ import annotations

from typing import Any

import pytest

from ropelime import InputError
from ropelime.text.documents import Documents, read_documents, with_documents
from ropelime.text.marks import Reference
from ropelime.text.prompt import from_context, from_messages, from_text

CHUNKS: list[Any] = [
    {"text": "Lamps carry a guarantee of six years.", "source": "docs/guarantee.pdf", "page": 1},
    {"text": "Send a photograph of the lamp.", "source": "docs/guarantee.pdf", "page": 3},
    {"text": "Parcels leave in two days.", "source": "https://www.lamps.example/Parcels/", "id": "p-7"},
    {"text": "The shop opens at nine.", "title": "Opening hours", "file_id": "file-abc"},
    "Nobody named this one.",
]


def documents() -> Documents:
    return read_documents(from_context(CHUNKS, "How?"), CHUNKS)


def cited(**reference: Any) -> list[int]:
    return [document.index for document in documents().cited(Reference(**reference))]


def test_chunks_are_documents() -> None:
    found = documents()
    assert [document.number for document in found.all] == [1, 2, 3, 4, 5]
    assert [document.text for document in found.all][4] == "Nobody named this one."
    assert str(found.all[1]) == "document 2, docs/guarantee.pdf, page 3"
    start = found.prompt.text.index("photograph")
    assert found.at(start, start + 3) == found.all[1]
    assert found.at(0, 3) is None
    counted = read_documents(found.prompt, CHUNKS, first=0)
    assert [document.number for document in counted.all] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("docs/guarantee.pdf", [0, 1]),
        ("guarantee.pdf", [0, 1]),
        ("./docs/Guarantee.pdf", [0, 1]),
        ("https://lamps.example/parcels", [2]),
        ("http://www.lamps.example/parcels/?utm_source=openai#top", [2]),
        ("p-7", [2]),
        ("opening hours", [3]),
        ("file-abc", [3]),
        ("https://other.example/parcels", []),
        ("history.md", []),
        ("", []),
    ],
)
def test_names_and_addresses(name: str, found: list[int]) -> None:
    assert cited(names=(name,)) == found


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("guarantee.pdf", [0, 1]),
        ("The guarantee, docs/guarantee.pdf, page 3", [1]),
        ("Lamps carry a guarantee of six years. (chunk 1, docs/guarantee.pdf, page 1)", [0]),
        ("“Send a photograph of the lamp”", [1]),
        (r"Send a photograph of the lamp\. (chunk 2)", [1]),
        ("[Parcels](https://lamps.example/parcels)", [2]),
        ("Document 5", [4]),
        ("invented.pdf", []),
        ("https://invented.example", []),
        ("Something in other words", [2]),  # names nothing: the number stands
    ],
)
def test_lists_of_sources(says: str, found: list[int]) -> None:
    assert cited(number=3, definition=says) == found


def test_places_pages_and_quotations() -> None:
    assert cited(number=4) == [3]
    assert cited(number=9) == []
    assert cited(index=0) == [0]
    assert cited(index=9) == []
    assert cited(index=1, names=("docs/guarantee.pdf",)) == [1]
    assert cited(index=0, names=("Opening hours",)) == [3], "the title says more than the place"
    assert cited(index=0, names=("Unheard of",)) == [0]
    assert cited(names=("guarantee.pdf",), pages=(3, 4)) == [1]
    assert cited(names=("guarantee.pdf",), quote="send a  photograph") == [1]


@pytest.mark.parametrize(
    "prompt",
    [
        "Use these:\n[1] Lamps are blue.\nVery.\n[2] Cups are red.\n\nWhat is blue?",
        "Document 1: Lamps are blue.\nVery.\nDocument 2: Cups are red.\n\nWhat is blue?",
        '<document index="1">\nLamps are blue.\nVery.\n</document>\n'
        '<document index="2">Cups are red.</document>\nWhat is blue?',
    ],
)
def test_passages_with_numbers_are_documents(prompt: str) -> None:
    for given in (from_text(prompt), from_messages([{"role": "user", "content": prompt}])):
        found = read_documents(given)
        assert [(each.number, each.text) for each in found.all] == [
            (1, "Lamps are blue.\nVery."),
            (2, "Cups are red."),
        ]


def test_passages_may_have_titles_and_empty_lines() -> None:
    text = "[3] Title: a.txt\n\nLamps are blue.\n\n[7] Source: b.txt\n\nCups are red."
    found = read_documents(from_text(text)).all
    assert [(each.number, each.names) for each in found] == [(3, ("a.txt",)), (7, ("b.txt",))]
    assert found[1].text.endswith("Cups are red.")


def test_blocks_of_messages_are_documents() -> None:
    chat = with_documents(
        [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "document", "title": "Lamps",
                     "source": {"type": "text", "media_type": "text/plain", "data": "Lamps are blue."}},
                    {"type": "text", "text": " "},
                    {"type": "document", "source": {"type": "content",
                     "content": [{"type": "text", "text": "A."}, {"type": "text", "text": "B."}]}},
                    {"type": "search_result", "source": "https://cups.example", "title": "Cups",
                     "content": [{"type": "text", "text": "Cups are red."}]},
                    {"type": "text", "text": "What is blue?"},
                ],
            },
        ]
    )  # fmt: skip
    found = read_documents(from_messages(chat), chat)
    assert [each.text for each in found.all] == ["Lamps are blue.", "A.\nB.", "Cups are red."]
    assert [each.names for each in found.all] == [("Lamps",), (), ("https://cups.example", "Cups")]


def test_a_pdf_is_refused() -> None:
    block = {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}}
    with pytest.raises(InputError, match=r"messages\[0\]\['content'\]\[0\] has no text"):
        with_documents([{"role": "user", "content": [block]}])


def test_results_of_tools_are_documents() -> None:
    chat = [
        {"role": "user", "content": "When?"},
        {"role": "tool", "content": "From nine."},
        {"role": "tool", "content": "Not on Mondays."},
    ]
    assert [each.text for each in read_documents(from_messages(chat), chat).all] == [
        "From nine.",
        "Not on Mondays.",
    ]


def test_a_prompt_without_documents_is_refused() -> None:
    with pytest.raises(InputError, match="no documents that a mark could cite"):
        read_documents(from_text("What is blue?"))
