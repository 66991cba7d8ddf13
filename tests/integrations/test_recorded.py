"""Responses and messages of other libraries: light stand-ins, in the shapes of their objects."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from integrations.recorded import ALL, ASKED, CHAT, FOUND, RESPONSES, RULE, THOUGHT, Recorded
from ropelime import InputError, explain, load
from ropelime.integrations.messages import as_messages
from ropelime.integrations.responses import arguments
from ropelime.text.prompt import answer_text, from_messages, reasoning_text
from toy import additive


def check(read: dict[str, Any], recorded: Recorded) -> None:
    """A response was read as it must be, and explain takes what was read."""
    assert [m["role"] for m in read["messages"]] == recorded.roles
    assert [answer_text(m) for m in read["messages"]] == recorded.texts
    assert read["output"] == recorded.output
    assert read.get("reasoning", "") == recorded.reasoning
    assert from_messages(read["messages"]).kind == "messages"


class Model:
    """As a pydantic model."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return copy.deepcopy(self.data)


@pytest.mark.parametrize("name", ALL)
def test_a_response_as_data_and_as_an_object(name: str) -> None:
    recorded = ALL[name]
    before = copy.deepcopy(recorded)
    check(arguments(recorded.response, recorded.request), recorded)
    check(arguments(Model(recorded.response), recorded.request), recorded)
    assert recorded == before, "what was given is not changed"


def test_reasoning_before_the_answer_is_part_of_the_prompt_and_its_own_is_kept() -> None:
    read = arguments(ALL["anthropic"].response, ALL["anthropic"].request)
    assert [reasoning_text(m) for m in read["messages"]] == ["", "", "I must look.", "", ""]
    read = arguments(RESPONSES.response, RESPONSES.request)
    assert [reasoning_text(m) for m in read["messages"]] == ["", "", "I must look.", "", THOUGHT]


def toy_chat(**given: Any) -> Any:
    return explain(
        response=CHAT.response, request=CHAT.request, features="message", progress=False,
        surrogate=additive([1.0, 2.0]), sampler="hadamard:1", target="nll", **given,
    )  # fmt: skip


def test_the_reasoning_of_the_answer_is_in_the_explanation(tmp_path: Any) -> None:
    e = toy_chat()
    assert e.config["reasoning"] == THOUGHT
    assert e.diagnostics.notes[-1] == (
        "Before it the model wrote 18 characters of reasoning, which are not a part of the prompt."
    )
    assert e.extend(1, surrogate=additive([1.0, 2.0])).config["reasoning"] == THOUGHT
    e.save(tmp_path / "why.json")
    assert load(tmp_path / "why.json") == e
    assert THOUGHT in e.to_html()


@dataclass
class Part:
    """As the parts of Pydantic AI."""

    content: Any
    part_kind: str
    tool_name: str = ""
    tool_call_id: str = ""
    args: Any = None


@dataclass
class Turn:
    """As ModelRequest and ModelResponse."""

    parts: list[Any]
    kind: str
    instructions: str | None = None


@dataclass
class PydanticRun:
    messages: list[Turn] = field(default_factory=list)

    def all_messages(self) -> list[Turn]:
        return self.messages


def pydantic_run() -> PydanticRun:
    call = Part(None, "tool-call", "find", "c1", {"q": 1})
    return PydanticRun(
        [
            Turn([Part("Be kind.", "system-prompt"), Part(ASKED, "user-prompt")], "request", RULE),
            Turn([Part("I must look.", "thinking"), call], "response"),
            Turn([Part({"found": FOUND}, "tool-return", "find", "c1")], "request", RULE),
            Turn([Part(THOUGHT, "thinking"), Part("On the Dray.", "text")], "response"),
        ]
    )


def test_a_run_of_pydantic_ai() -> None:
    said = ["Be kind.", RULE, ASKED, 'find({"q": 1})', f'{{"found": "{FOUND}"}}']
    roles = ["system", "system", "user", "assistant", "tool"]
    read = arguments(pydantic_run())
    check(read, Recorded({}, {}, roles, said, "On the Dray.", THOUGHT))
    assert reasoning_text(read["messages"][3]) == "I must look."
    assert as_messages(pydantic_run().messages)[-1]["content"] == "On the Dray."


def test_a_run_of_pydantic_ai_that_ends_with_a_tool() -> None:
    run = pydantic_run()
    run.messages[3] = Turn(
        [Part(None, "tool-call", "final_result", "c2", '{"town": "Kessel"}')], "response"
    )
    run.messages.append(
        Turn([Part("Final result processed.", "tool-return", "final_result", "c2")], "request")
    )
    assert arguments(run)["output"] == 'final_result({"town": "Kessel"})'
    retried = Turn(
        [Part("Use the tool.", "retry-prompt"), Part("No.", "retry-prompt", "find", "c1")], "request"
    )
    assert [m["role"] for m in as_messages([retried])] == ["user", "tool"]


def agents_run(**given: Any) -> Any:
    items = [*RESPONSES.request["input"], *RESPONSES.response["output"]]
    items[0] = {"role": "user", "content": ASKED}
    agent = SimpleNamespace(instructions=RULE)
    return SimpleNamespace(**{"to_input_list": lambda: items, "last_agent": agent, **given})


def test_a_run_of_the_agents_sdk() -> None:
    check(arguments(agents_run()), RESPONSES)
    dynamic = SimpleNamespace(instructions=lambda context, agent: RULE)
    with pytest.raises(InputError, match=r"are a function: pass request=\{'instructions'"):
        arguments(agents_run(last_agent=dynamic))
    check(arguments(agents_run(last_agent=dynamic), {"instructions": RULE}), RESPONSES)
    left_out = arguments(agents_run(), {"instructions": ""})
    assert left_out["messages"][0]["role"] == "user"
    with pytest.raises(InputError, match="has not ended"):
        arguments(agents_run(is_complete=False))


def langchain(kind: str, content: Any, **more: Any) -> Model:
    return Model(
        {"type": kind, "content": content, "additional_kwargs": {}, "response_metadata": {}, **more}
    )


LANGCHAIN = [
    langchain("system", RULE),
    langchain("human", [{"type": "text", "text": ASKED}, "Please."]),
    langchain(
        "ai",
        [
            {"type": "thinking", "thinking": "I must look.", "signature": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": 1}},
        ],
        tool_calls=[{"name": "find", "args": {"q": 1}, "id": "c1", "type": "tool_call"}],
        invalid_tool_calls=[{"name": "find", "args": "{q", "id": "c2", "error": "JSON"}],
    ),
    langchain("tool", FOUND, name="find", tool_call_id="c1"),
]
ANSWER = langchain("ai", "On the Dray.")
ANSWER.data["additional_kwargs"] = {"reasoning_content": THOUGHT}


def test_langchain_messages() -> None:
    e = explain(
        messages=LANGCHAIN, output="x", features="message", progress=False, target="nll",
        surrogate=additive([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0]),
    )  # fmt: skip
    assert [m.role for m in e.prompt.messages] == ["system", "user", "assistant", "tool"]
    assert [f.text for f in e.features] == [
        RULE, ASKED, "Please.", "I must look.", "I look.", 'find({"q": 1})', "find({q)", FOUND,
    ]  # fmt: skip
    assert as_messages(LANGCHAIN)[3]["tool_call_id"] == "c1"


def test_what_a_langchain_model_or_agent_returns() -> None:
    for response, request in (
        (ANSWER, {"messages": LANGCHAIN}),
        ({"messages": [*LANGCHAIN, ANSWER]}, None),
    ):
        read = arguments(response, request)
        assert (read["output"], read["reasoning"], len(read["messages"])) == (
            "On the Dray.",
            THOUGHT,
            4,
        )


def test_plain_messages_pass_as_they_are() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given = [
        {"role": "developer", "content": RULE},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "document", "source": {}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "r"},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    assert as_messages(given) == given
    assert as_messages("text") == "text"
    assert as_messages([5, "text"]) == [5, "text"]


IMAGE = {"type": "image", "source": {"type": "base64", "data": "iVBOR"}}


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (
            [{"role": "usr", "content": "x"}],
            r"messages\[0\]: Unknown role 'usr'. Did you mean 'user'\? Known:",
        ),
        (
            [{"role": "user", "content": "x"}, {"role": "user", "text": "hi"}],
            r"messages\[1\] has no 'content', only 'role', 'text'. Pass its text as 'content'",
        ),
        (
            [langchain("remove", "")],
            "must be a mapping with 'role' and 'content', and it is of type 'remove'",
        ),
        ([Turn([Part(b"", "file")], "response")], r"messages\[0\].parts\[0\] is file, and only text"),
        (
            [Turn([Part(["See", SimpleNamespace(url="u")], "user-prompt")], "request")],
            r"\[1\] is SimpleN",
        ),
        (
            [{"role": "user", "content": [{"type": "tool_result", "content": [IMAGE]}]}],
            "is image, and only",
        ),
        (
            [{"role": "user", "parts": [{"inline_data": {"data": b"", "mime_type": "x"}}]}],
            "only text can",
        ),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}],
            "a tool call with a name",
        ),
        ([{"type": "item_reference", "id": "m"}], "is a reference without text"),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "x"}], "messages is empty"),
    ],
)
def test_messages_that_cannot_be_explained(messages: list[Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        explain(messages=messages, output="x", surrogate=additive([1.0]), progress=False)


@pytest.mark.parametrize(
    ("response", "request_", "error"),
    [
        (
            ALL["anthropic"].response,
            None,
            "An Anthropic response does not hold its prompt: pass request=",
        ),
        (ALL["anthropic"].response, {"system": "x"}, "request has no 'messages'.*messages.create"),
        (ALL["anthropic"].response, {"messages": 5}, "messages must be a list"),
        (ALL["gemini"].response, None, "A Gemini response does not hold its prompt"),
        (ALL["gemini"].response, {"messages": []}, "request has no 'contents'.*generate_content"),
        ({"candidates": []}, {"contents": "x"}, "has no content: the model was blocked"),
        (ANSWER, None, "A message of LangChain does not hold its prompt"),
        ({"messages": LANGCHAIN[:2]}, None, "does not end with a message of the model"),
        (PydanticRun(), None, "does not end with a message of the model"),
    ],
)
def test_responses_that_cannot_be_explained(response: Any, request_: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        explain(response=response, request=request_, surrogate=additive([1.0]), progress=False)
