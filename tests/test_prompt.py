"""Three forms of input become one text with parts; what no tokenizer can read is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.errors import InputError
from ropelime.prompt import check_text, from_context, from_messages, from_text

VISIBLE = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1
).filter(str.strip)


def test_a_text_is_one_message_and_one_part() -> None:
    prompt = from_text(" Hello. ")
    assert prompt.text == " Hello. "
    assert [prompt.content(m) for m in prompt.messages] == [" Hello. "]
    assert prompt.parts == ((0, 8),)
    assert prompt.kind == "prompt"


def test_the_question_is_pinned() -> None:
    prompt = from_context(["One.", "Two."], "Which?")
    assert prompt.text == "Context:\nOne.\n\nTwo.\n\nWhich?"
    assert [prompt.text[a:b] for a, b in prompt.parts] == ["One.", "Two."]
    assert from_context(["One."], None).text == "Context:\nOne."


def test_messages_keep_their_roles_and_places() -> None:
    prompt = from_messages(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "  "},
            {"role": "user", "content": "Why?"},
        ]
    )
    assert [(m.role, prompt.content(m)) for m in prompt.messages] == [
        ("system", "Be brief."),
        ("user", "  "),
        ("user", "Why?"),
    ]
    assert [prompt.text[a:b] for a, b in prompt.parts] == ["Be brief.", "Why?"], "no blank part"


@given(st.lists(VISIBLE, min_size=1, max_size=5), st.none() | VISIBLE)
def test_parts_are_the_chunks_whatever_they_hold(chunks: list[str], question: str | None) -> None:
    prompt = from_context(chunks, question)
    assert [prompt.text[a:b] for a, b in prompt.parts] == chunks
    messages = from_messages([{"role": "user", "content": chunk} for chunk in chunks])
    assert [messages.content(m) for m in messages.messages] == chunks


@pytest.mark.parametrize("text", ["<|im_end|>", "<s>", "[/INST]", "naïve 日本 👩‍🚀", "\r\n\tx"])
def test_any_readable_text_is_taken_as_it_is(text: str) -> None:
    assert check_text("prompt", text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "prompt is empty"),
        (" \n\t", "prompt is empty"),
        ("ab\0c", r"NUL character at position 2. Remove it"),
        ("ab\ud83d", "lone surrogate .* at position 2"),
        (b"bytes", "must be a string, not bytes"),
        (None, "must be a string, not NoneType"),
    ],
)
def test_unreadable_text(text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_text(text)


@pytest.mark.parametrize(
    ("context", "question", "message"),
    [
        ([], "Q?", "context is empty"),
        ("one text", "Q?", "must be a list of strings"),
        (5, "Q?", "must be a list of strings"),
        (["a", " "], "Q?", r"context\[1\] is empty"),
        (["a", 5], "Q?", r"context\[1\] must be a string, not int"),
        (["a", "b\0"], "Q?", r"context\[1\] has a NUL"),
        (["a"], "", "question is empty"),
        (["a"], "\udc00", "question has a lone surrogate"),
    ],
)
def test_wrong_context(context: Any, question: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_context(context, question)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        ("hello", "must be a list"),
        ({"role": "user", "content": "x"}, "must be a list"),
        (["hello"], r"messages\[0\] must be a mapping"),
        ([{"role": "user"}], r"messages\[0\] must be a mapping with 'role' and 'content'"),
        ([{"role": "", "content": "x"}], r"messages\[0\]\['role'\] is empty"),
        ([{"role": "user", "content": None}], r"\['content'\] must be a string"),
        ([{"role": "user", "content": "x\0"}], r"\['content'\] has a NUL"),
        ([{"role": "user", "content": " "}], "Every message is empty"),
    ],
)
def test_wrong_messages(messages: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_messages(messages)
