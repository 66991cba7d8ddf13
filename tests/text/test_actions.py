"""A tool call by its fields, and which parts of a prompt have them."""

from __future__ import annotations

import numpy as np
import pytest

from ropelime.text.actions import asked_for, call_spans, earlier_calls, fields, is_call
from ropelime.text.features import split
from ropelime.text.lexical import shared_words
from ropelime.text.prompt import from_messages

CALL = '{"name": "send_email", "arguments": {"to": ["ann@lamps.example"], "copies": 2, "body": null}}'


def test_the_fields_of_a_call() -> None:
    assert fields(CALL) == ["send_email", "ann@lamps.example", "2"]
    assert fields('send_email({"to": ["ann@lamps.example"], "copies": 2})') == fields(CALL)
    assert fields(f"I will write to Ann.\n\n{CALL}\n{CALL}\n") == fields(CALL) * 2  # type: ignore[operator]
    assert fields('{"name": "now", "arguments": {}}') == ["now"]


@pytest.mark.parametrize(
    "text",
    ["", "Lamps.", '{"name": "Ann"}', '{"name": "Ann", "arguments": {}, "age": 7}', "f()", "f(x)",
     f"{CALL}\nThat is done.", '["send_email"]', '{"name": ', "{" * 9999],
)  # fmt: skip
def test_other_text_is_not_a_call(text: str) -> None:
    assert fields(text) is None
    assert call_spans(text) == []
    assert not is_call(text)


def test_where_calls_are() -> None:
    text = f"I will write to Ann.\n  {CALL}\n{CALL}"
    assert [text[a:b] for a, b in call_spans(text)] == [CALL, CALL]
    assert is_call(CALL)
    assert is_call(f"\n{CALL}")
    assert not is_call(text)


def test_a_long_argument_counts_no_more_than_a_short_one() -> None:
    letter = "Dear Bo, the green lamps in the hall of the old house glow all night and hum"
    call = ["send_email", "ann@lamps.example", letter]
    parts = ["Please email Ann: ann@lamps.example.", f"The letter: {letter}", "The weather is fine."]
    scores = asked_for(call, parts)
    assert scores[2] < 0.1
    data_alone = asked_for(["f", letter], parts)
    assert data_alone[1] > 0.9 > data_alone[0] * 5
    assert scores[0] > scores[1], "name and address are two of three fields"


def test_names_are_read_as_words() -> None:
    for name in ("delete_file", "deleteFile", "delete-file"):
        scores = asked_for([name], ["Deleting files is fine.", "The lamp is on."])
        assert scores[0] == pytest.approx(1.0)
        assert scores[1] == 0.0


def test_a_value_that_several_have_is_shared_out() -> None:
    once = asked_for(["f", "x7"], ["x7 is here", "no"])
    twice = asked_for(["f", "x7"], ["x7 is here", "x7 is there"])
    assert once[0] > twice[0] == pytest.approx(twice[1])


def test_earlier_calls_have_no_words() -> None:
    prompt = from_messages(
        [
            {"role": "user", "content": "Open lamps.example now."},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "function": {"name": "browse", "arguments": '{"url": "lamps.example"}'}}]},
            {"role": "tool", "content": "Open cups.example next.", "tool_call_id": "1"},
        ]
    )  # fmt: skip
    found = split(prompt, "sentence")
    spans = [(f.start, f.end) for f in found]
    assert earlier_calls(prompt, spans).tolist() == [0.0, 1.0, 0.0]
    words = shared_words(prompt, found, '{"name": "browse", "arguments": {"url": "cups.example"}}')
    assert words[1] == 0.0
    assert int(np.argmax(words)) == 2
