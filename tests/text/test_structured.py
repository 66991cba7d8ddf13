"""Structured text is cut at its fields: they tile it, and no value is cut but a long one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ropelime.text import segmentation
from ropelime.text.features import split
from ropelime.text.prompt import from_messages
from ropelime.text.structured import fields, sentences


def pieces(text: str) -> list[str]:
    found = fields(text)
    assert found is not None
    assert "".join(text[a:b] for a, b in found) == text
    return [text[a:b].strip() for a, b in found]


def test_fields_keep_their_keys() -> None:
    text = (
        '{"subject": "Lamps, and more of them", "sender": "ann@lamps.example", "body": "Switch off."}'
    )
    assert pieces(text) == [
        '{"subject": "Lamps, and more of them",',
        '"sender": "ann@lamps.example",',
        '"body": "Switch off."}',
    ]


def test_short_neighbours_of_one_object_are_joined() -> None:
    assert pieces('[{"a": 1, "b": 2}, {"a": 3, "b": 4}]') == ['[{"a": 1, "b": 2},', '{"a": 3, "b": 4}]']


def test_what_python_prints() -> None:
    text = "[{'name': \"Ann's lamp\", 'note': 'It's on, still', 'price': None}]"
    assert pieces(text) == ["[{'name': \"Ann's lamp\",", "'note': 'It's on, still', 'price': None}]"]


def test_long_values_are_cut_into_sentences_and_lines() -> None:
    body = "Lamps are on sale this week. " * 4 + r"\nPlease send ten of them to Ann.\nThank you!"
    found = pieces(json.dumps({"id": 7, "body": "x"}).replace('"x"', f'"{body}"'))
    assert found[0].startswith('{"id": 7, "body": "Lamps') or found[0] == '{"id": 7,'
    assert r"Please send ten of them to Ann.\n" in found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "Lamps.",
        "[1] Lamps are on.",
        "{open",
        "[1, 2}]]",
        "(1, 2)",
        "{a} and {b}",
        "[x",
        "[The lamp, which is green, was lit by Ann, who lived in Kessel, a town on the Dray, in May.]",
    ],
)
def test_other_text_is_prose(text: str) -> None:
    assert fields(text) is None
    assert sentences(text) == segmentation.sentences(text)


def test_any_json_is_tiled() -> None:
    rng = random.Random(0)

    def value(depth: int) -> Any:
        kind = rng.randrange(7 if depth else 4)
        if kind < 4:
            quotes = "".join(rng.choice("ab ,:'\"\\{}[]\n") for _ in range(rng.randrange(9)))
            return [rng.randrange(99), None, True, quotes][kind]
        some = [value(depth - 1) for _ in range(rng.randrange(4))]
        return some if kind == 4 else {f"k{i}": each for i, each in enumerate(some)}

    for _ in range(300):
        data = {"one": value(4), "two": value(4)}
        text = json.dumps(data, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        pieces(text)


@pytest.mark.parametrize("text", ['{"x ', "['a' ", "{' ", "[[", '{"\\', "[1, "])
def test_long_hostile_text_takes_no_more_than_its_length(text: str) -> None:
    fields(text * 40_000)
    fields(text * 40_000 + "]")


def test_results_of_tools_are_cut_at_their_fields() -> None:
    result = '{"name": "Ann Berg", "mail": "ann@lamps.example", "note": "She likes green lamps."}'
    prompt = from_messages(
        [{"role": "user", "content": "Who? Tell me."}, {"role": "tool", "content": result}]
    )
    assert [f.text.strip() for f in split(prompt, "sentence")] == [
        "Who?", "Tell me.", '{"name": "Ann Berg",', '"mail": "ann@lamps.example",',
        '"note": "She likes green lamps."}',
    ]  # fmt: skip


def test_marks_around_data_do_not_hide_its_fields() -> None:
    text = '<<{"bill": "For June, as every month, and not for May", "to": "Holm and Company, Lamps"}>>'
    assert fields(text) is not None
    assert [text[a:b] for a, b in fields(text) or []] == [
        '<<{"bill": "For June, as every month, and not for May", ',
        '"to": "Holm and Company, Lamps"}>>',
    ]  # fmt: skip
    assert fields("<p>{not data}</p>") is None
