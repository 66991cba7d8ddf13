"""Three forms of input become one text with parts; what no tokenizer can read is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.errors import InputError
from ropelime.text.features import split
from ropelime.text.prompt import (
    Origin,
    answer_text,
    check_text,
    from_context,
    from_messages,
    from_text,
    read_prompt,
)

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


# What the Chat Completions API sends and gives back besides plain texts.

CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": "Kessel"}'}},
        {"id": "2", "type": "custom", "custom": {"name": "run", "input": "ls"}},
    ],
}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "Kessel lies on the Dray."}


def parts(messages: list[dict[str, Any]]) -> list[str]:
    prompt = from_messages(messages)
    return [prompt.text[a:b] for a, b in prompt.parts]


def test_tool_calls_and_their_results_are_parts() -> None:
    question = {"role": "user", "content": "Where is Kessel?"}
    prompt = from_messages([question, CALL, RESULT])
    assert [m.role for m in prompt.messages] == ["user", "assistant", "tool"]
    assert prompt.content(prompt.messages[1]) == 'find({"q": "Kessel"})\nrun(ls)'
    assert parts([question, CALL, RESULT]) == [
        "Where is Kessel?",
        'find({"q": "Kessel"})',
        "run(ls)",
        "Kessel lies on the Dray.",
    ]
    found = split(prompt, "message")
    assert [f.part for f in found] == [0, 1, 1, 2], "each call by itself, and whose it is"
    assert [f.part for f in split(prompt, "word")] == [0] * 3 + [1] * 3 + [2] * 5


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": "Let me look.", "tool_calls": CALL["tool_calls"][:1]},
         ["Let me look.", 'find({"q": "Kessel"})']),
        ({"content": "", "tool_calls": CALL["tool_calls"][:1]}, ['find({"q": "Kessel"})']),
        ({"tool_calls": CALL["tool_calls"][:1]}, ['find({"q": "Kessel"})']),
        ({"content": "Hi.", "tool_calls": None}, ["Hi."]),
        ({"function_call": {"name": "old", "arguments": "{}"}}, ["old({})"]),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"é": 1}}}]}, ['f({"é": 1})']),
        ({"tool_calls": [{"function": {"name": "now"}}]}, ["now()"]),
        ({"content": None, "refusal": "I cannot."}, ["I cannot."]),
        ({"content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
         ["One.", "Two."]),
        ({"content": [{"type": "text", "text": "One."}, {"type": "text", "text": " "}]}, ["One."]),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, ["No."]),
    ],
)  # fmt: skip
def test_what_a_message_says(message: dict[str, Any], said: list[str]) -> None:
    assert parts([{"role": "assistant", **message}]) == said


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (
            {"content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "is image_url, and only text",
        ),
        ({"content": ["One."]}, r"\['content'\]\[0\] is str, and only text"),
        ({"content": [{"type": "text", "text": "a\0"}]}, r"\['content'\]\[0\] has a NUL"),
        ({"tool_calls": "find"}, r"\['tool_calls'\] must be a list, not str"),
        ({"tool_calls": ["find"]}, r"\['tool_calls'\]\[0\] must be a tool call"),
        ({"tool_calls": [{"function": {"arguments": "{}"}}]}, r"must be a tool call"),
        ({"tool_calls": [], "content": None}, r"\['content'\] must be a string"),
        ({"tool_calls": []}, "must be a mapping with 'role' and 'content'"),
    ],
)
def test_messages_that_say_nothing_readable(message: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        from_messages([{"role": "assistant", **message}])


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_part_before_what_follows_it(key: str) -> None:
    call = {
        "role": "assistant",
        "content": "",
        key: "I must look.",
        "tool_calls": CALL["tool_calls"][:1],
    }
    prompt = read_prompt(messages=[{"role": "user", "content": "Where?"}, call])
    assert [prompt.text[a:b] for a, b in prompt.parts] == [
        "Where?", "I must look.", 'find({"q": "Kessel"})',
    ]  # fmt: skip
    assert prompt.content(prompt.messages[1]) == 'I must look.\nfind({"q": "Kessel"})'
    assert answer_text(call) == 'find({"q": "Kessel"})', "an answer is what came after it"
    blank = {"role": "assistant", "content": "Kessel.", key: " "}
    assert read_prompt(messages=[blank]).text == "Kessel."


def test_chunks_may_say_where_they_come_from() -> None:
    prompt = from_context(
        [
            {"text": "One.", "source": "report.pdf", "page": 4, "score": 0.3},
            "Two.",
            {"text": "Three.", "source": "two\nlines"},
        ],
        "Which?",
    )
    assert prompt.text == "Context:\nOne.\n\nTwo.\n\nThree.\n\nWhich?", "it is not sent"
    assert prompt.origins == (Origin("report.pdf", "4"), Origin(), Origin("two lines"))
    assert [prompt.where(i) for i in range(3)] == [
        "chunk 1, report.pdf, page 4",
        "chunk 2",
        "chunk 3, two lines",
    ]
    assert from_context([{"text": "One."}, "Two."], None).origins == ()


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"source": "x"}, r"context\[0\] must be a string or a mapping with 'text'"),
        ({"text": 5}, r"context\[0\] must be a string, not int"),
        ({"text": "a", "source": 1.5}, r"context\[0\]\['source'\] must be a string, not float"),
        ({"text": "a", "page": "\0"}, r"context\[0\]\['page'\] has a NUL"),
    ],
)
def test_wrong_chunks(chunk: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_context([chunk], "Q?")


# One reader of all prompts: its errors name the argument that is wrong.

CHAT = [
    {"role": "system", "content": "Answer in short."},
    {"role": "user", "content": "Where is Kessel?"},
]


def test_a_prompt_comes_in_one_of_three_forms() -> None:
    assert read_prompt(prompt="Hello.").kind == "prompt"
    assert read_prompt(context=["One.", {"text": "Two."}], question="Why?").text.endswith("Why?")
    assert read_prompt(messages=CHAT).kind == "messages"


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({}, "prompt", "exactly one of prompt, context and messages; got none of them"),
        ({"prompt": "x", "context": ["x"]}, "context", "got prompt and context"),
        ({"prompt": "x", "messages": CHAT}, "messages", "got prompt and messages"),
        ({"prompt": "x", "question": "y"}, "question", "question goes with context"),
        ({"prompt": " "}, "prompt", "prompt is empty"),
        ({"prompt": 5}, "prompt", "prompt must be a string, not int"),
        ({"context": "x"}, "context", "must be a list of strings"),
        ({"context": []}, "context", "context is empty"),
        ({"context": ["x", " "]}, "context.1", r"context\[1\] is empty"),
        ({"context": ["x", {"source": "y"}]}, "context.1", r"context\[1\] must be a string"),
        ({"context": ["x"], "question": "a\0"}, "question", "NUL character"),
        ({"messages": []}, "messages", "messages is empty"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "lone surrogate"),
    ],
)
def test_errors_name_the_argument(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_prompt(**given)
    assert caught.value.field == field
