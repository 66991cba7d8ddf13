"""Prompts without some of their features, as messages that a server accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import byte_level, metaspace
from ropelime import InputError
from ropelime.surrogate import Ablation
from ropelime.surrogate.chat_template import Encoder
from ropelime.surrogate.tokens import ContextWindow, tokenize
from ropelime.text.ablated import Chat, ablated, messages_of
from ropelime.text.features import split
from ropelime.text.prompt import from_context, from_messages, from_text

CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": "Kessel"}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is it? Tell me.", "name": "ann"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "On the Dray."},
]


def cut(
    messages: Sequence[Mapping[str, Any]], removed: Iterable[int], features: str = "message"
) -> Chat:
    prompt = from_messages(messages)
    return ablated(prompt, split(prompt, features), removed, messages_of(prompt, messages))


def test_a_prompt_is_one_message() -> None:
    prompt = from_text("One. Two. Three.")
    chat = messages_of(prompt)
    assert chat == [{"role": "user", "content": "One. Two. Three."}]
    features = split(prompt, "sentence")
    assert ablated(prompt, features, [1], chat)[0]["content"] == "One. Three."
    assert ablated(prompt, features, [0, 2], chat)[0]["content"] == "Two. "
    assert ablated(prompt, features, [], chat) == chat


def test_a_removed_chunk_leaves_no_empty_lines() -> None:
    prompt = from_context(["One.", "Two."], "What?")
    features = split(prompt, "document")
    (message,) = ablated(prompt, features, [0], messages_of(prompt))
    assert message["content"] == "Context:\nTwo.\n\nWhat?"


def test_messages_keep_what_is_not_text() -> None:
    assert cut(CHAT, []) == CHAT
    assert cut(CHAT, [0]) == CHAT[1:], "a message of which nothing is left is dropped"
    asked = cut(CHAT, [2], "sentence")[1]
    assert asked == {"role": "user", "content": "Where is it? ", "name": "ann"}


def test_calls_and_results_stay_together() -> None:
    emptied = {"role": "tool", "tool_call_id": "1", "content": ""}
    assert cut(CHAT, [3]) == [*CHAT[:3], emptied]
    call = cut(CHAT, [2])[2]["tool_calls"][0]
    assert call == {**CALL, "function": {"name": "find", "arguments": "{}"}}
    assert cut(CHAT, [2, 3]) == CHAT[:2]
    assert CHAT[2]["tool_calls"] == [CALL], "what was given stays as it is"


def test_what_is_left_of_arguments_is_json_or_nothing() -> None:
    chat = [{"role": "user", "content": "Hi."}, {**CHAT[2], "content": "Wait."}, CHAT[3]]
    prompt = from_messages(chat)
    start = prompt.text.index('"Kessel"')
    features = split(prompt, [(0, 3), (start, start + 8)])
    left = ablated(prompt, features, [1], messages_of(prompt, chat))
    assert left[1]["content"] == "Wait."
    assert left[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": "{}"}


def test_the_last_question_is_never_dropped_altogether() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    assert cut(chat, [1]) == [chat[0], {"role": "user", "content": ""}]


def test_lists_of_contents() -> None:
    parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    chat: Chat = [{"role": "user", "content": parts}, {"role": "user", "content": "Three."}]
    assert cut(chat, [0], "sentence")[0]["content"] == parts[1:]
    assert cut(chat, [0, 1], "sentence") == chat[1:]


def test_old_function_calls() -> None:
    called = {"name": "find", "arguments": "{}"}
    chat: Chat = [{"role": "user", "content": "Where?"}]
    chat.append({"role": "assistant", "function_call": called})
    assert cut(chat, [0])[1]["function_call"] == called
    assert cut(chat, [1]) == chat[:1]
    chat[1]["content"] = ""
    assert cut(chat, [1]) == chat[:1], "an empty content has no place in the prompt"


def test_messages_out_of_the_prompt_alone() -> None:
    plain = [*CHAT[:1], {"role": "user", "content": "Where?"}]
    assert messages_of(from_messages(plain)) == plain
    prompt = from_messages(CHAT)
    features = split(prompt, "message")
    whole = ablated(prompt, features, [], messages_of(prompt))
    assert whole[2] == {"role": "assistant", "content": 'find({"q": "Kessel"})'}, "it is written out"
    assert whole[3] == {"role": "user", "content": "Result of a tool:\nOn the Dray."}
    assert ablated(prompt, features, [3], messages_of(prompt)) == whole[:3]
    with pytest.raises(InputError, match="not those that were explained"):
        messages_of(from_messages(plain), CHAT)
    with pytest.raises(InputError, match="go with an explanation of messages"):
        messages_of(from_text("One."), CHAT)


@given(st.sets(st.integers(0, 5)))
def test_every_request_is_valid(removed: set[int]) -> None:
    left = cut(CHAT, removed, "sentence")
    called = {call["id"] for m in left for call in m.get("tool_calls", ())}
    answered = {m["tool_call_id"] for m in left if m["role"] == "tool"}
    assert called == answered
    assert any(m["role"] == "user" for m in left)
    assert all(isinstance(m.get("content"), str) or m.get("tool_calls") for m in left)


CONTEXT = from_context(["One is here. Two is there.", "Three.", "Four."], "Which one?")


@pytest.mark.parametrize("make", [byte_level, metaspace])
@pytest.mark.parametrize("granularity", ["sentence", "word", "paragraph"])
def test_it_is_what_the_surrogate_scores(make: Any, granularity: str) -> None:
    """The tokens that the ablation "delete" keeps, as text, under random masks."""
    tokenizer = make("chatml")
    encoder, window = Encoder(tokenizer), ContextWindow("tiny", None)
    features = split(CONTEXT, granularity, token_spans=encoder.token_spans)
    tokenized = tokenize(encoder, CONTEXT, features, "x", ablation=Ablation("delete"), window=window)
    for mask in np.random.default_rng(0).random((20, len(features))) < 0.5:
        sequence = tokenized.sequence(0, mask)
        ids = sequence.ids[: len(sequence.ids) - len(tokenized.output_ids) + 1]
        scored = tokenizer.decode(ids, skip_special_tokens=True)
        removed = np.flatnonzero(~mask).tolist()
        (message,) = ablated(CONTEXT, features, removed, messages_of(CONTEXT))
        # Some tokens hold the white space before them, others that behind them.
        assert "".join(scored.split()) == "".join(["user", *message["content"].split(), "assistant"])
