"""The libraries themselves, without a network: ``make test-adapters`` installs them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integrations.recorded import ALL, ASKED, CHAT, FOUND, RESPONSES, RULE, THOUGHT, Recorded
from integrations.test_recorded import check
from ropelime.integrations.messages import as_messages
from ropelime.integrations.responses import arguments
from ropelime.text.prompt import reasoning_text

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
EXTRA = "pip install 'ropelime[adapters]'"


@pytest.mark.parametrize("name", ["anthropic", "anthropic_search"])
def test_anthropic(name: str) -> None:
    types = pytest.importorskip("anthropic.types", reason=EXTRA)
    recorded = ALL[name]
    message = types.Message.model_validate(recorded.response)
    check(arguments(message, recorded.request), recorded)
    # A later turn has the earlier answers as objects: the message's content as it was returned.
    chat = [*recorded.request["messages"], {"role": "assistant", "content": message.content}]
    assert as_messages(chat)[-1]["content"] == recorded.output
    assert reasoning_text(as_messages(chat)[-1]) == recorded.reasoning


def test_gemini() -> None:
    types = pytest.importorskip("google.genai.types", reason=EXTRA)
    recorded = ALL["gemini"]
    response = types.GenerateContentResponse.model_validate(recorded.response)
    check(arguments(response, recorded.request), recorded)
    asked, *others = recorded.request["contents"]
    contents = [types.Part(text=asked), *map(types.Content.model_validate, others)]
    for rule in RULE, types.Content(parts=[types.Part(text=RULE)]):
        config = types.GenerateContentConfig(system_instruction=rule)
        read = arguments(response, {"contents": contents, "config": config})
        check(read, recorded)
    chat = [types.Content.model_validate(others[0]), response.candidates[0].content]
    assert [m["role"] for m in as_messages(chat)] == ["assistant", "assistant"]


def test_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network else
    litellm = pytest.importorskip("litellm", reason=EXTRA)
    check(arguments(litellm.ModelResponse(**CHAT.response), CHAT.request), CHAT)
    mocked = litellm.completion(model="gpt-4o", mock_response="On the Dray.", **CHAT.request)
    read = arguments(mocked, CHAT.request)
    assert (read["output"], read["messages"]) == ("On the Dray.", CHAT.request["messages"])


def test_openai_responses() -> None:
    types = pytest.importorskip("openai.types.responses", reason="pip install 'ropelime[ask]'")
    response = types.Response.model_validate(RESPONSES.response)
    check(arguments(response, RESPONSES.request), RESPONSES)
    # The next turn's input: the output items as they were returned.
    request = {**RESPONSES.request, "input": [*RESPONSES.request["input"], *response.output]}
    read = arguments({"output_text": "x"}, request)
    assert [m["role"] for m in read["messages"]] == [*RESPONSES.roles, "assistant"]


def test_the_agents_sdk() -> None:
    agents = pytest.importorskip("agents", reason=EXTRA)
    types = pytest.importorskip("openai.types.responses")
    agents.set_tracing_disabled(True)
    recorded = types.Response.model_validate(RESPONSES.response)
    calls = {**RESPONSES.response, "output": [*RESPONSES.request["input"][1:3]]}
    turns = iter([types.Response.model_validate(calls).output, recorded.output])

    class Replies(agents.Model):  # type: ignore[misc, name-defined]
        async def get_response(self, *_: Any, **__: Any) -> Any:
            return agents.ModelResponse(output=next(turns), usage=agents.Usage(), response_id="r")

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @agents.function_tool  # type: ignore[untyped-decorator, unused-ignore]
    def find(q: int) -> str:
        """Find a town."""
        return FOUND

    agent = agents.Agent("guide", instructions=RULE, model=Replies(), tools=[find])
    check(arguments(agents.Runner.run_sync(agent, ASKED)), RESPONSES)


def test_pydantic_ai() -> None:
    ai = pytest.importorskip("pydantic_ai", reason=EXTRA)
    messages = pytest.importorskip("pydantic_ai.messages")
    functions = pytest.importorskip("pydantic_ai.models.function")

    def reply(chat: Any, info: Any) -> Any:
        if len(chat) == 1:
            parts = [
                messages.ThinkingPart("I must look."),
                messages.ToolCallPart("find", {"q": 1}, "c1"),
            ]
        else:
            parts = [messages.ThinkingPart(THOUGHT), messages.TextPart("On the Dray.")]
        return messages.ModelResponse(parts=parts)

    agent = ai.Agent(functions.FunctionModel(reply), instructions=RULE, system_prompt="Be kind.")

    @agent.tool_plain  # type: ignore[untyped-decorator, unused-ignore]
    def find(q: int) -> dict[str, str]:
        return {"found": FOUND}

    run = agent.run_sync(ASKED)
    said = ["Be kind.", RULE, ASKED, 'find({"q": 1})', f'{{"found":"{FOUND}"}}']
    roles = ["system", "system", "user", "assistant", "tool"]
    read = arguments(run)
    check(read, Recorded({}, {}, roles, said, "On the Dray.", THOUGHT))
    assert reasoning_text(read["messages"][3]) == "I must look."
    stored = as_messages(json.loads(run.all_messages_json()))
    assert [m["role"] for m in stored] == ["system", "user", "assistant", "tool", "assistant"]


def test_pydantic_ai_with_a_structured_answer() -> None:
    ai = pytest.importorskip("pydantic_ai", reason=EXTRA)
    models = pytest.importorskip("pydantic_ai.models.test")
    run = ai.Agent(models.TestModel(custom_output_args=5), output_type=int).run_sync(ASKED)
    read = arguments(run)
    assert [m["content"] for m in read["messages"]] == [ASKED]
    assert read["output"] == 'final_result({"response": 5})'


def test_langchain_messages() -> None:
    langchain = pytest.importorskip("langchain_core.messages", reason=EXTRA)
    calls = [{"name": "find", "args": {"q": 1}, "id": "c1", "type": "tool_call"}]
    thinking = {"type": "thinking", "thinking": "I must look.", "signature": "x"}
    chat = [
        langchain.SystemMessage(RULE),
        langchain.HumanMessage(ASKED),
        langchain.AIMessage([thinking, {"type": "text", "text": "I look."}], tool_calls=calls),
        langchain.ToolMessage(FOUND, tool_call_id="c1", name="find"),
        langchain.ChatMessage(role="user", content="Continue."),
    ]
    answer = langchain.AIMessage("On the Dray.", additional_kwargs={"reasoning_content": THOUGHT})
    said = [RULE, ASKED, 'I look.\nfind({"q": 1})', FOUND, "Continue."]
    expected = Recorded(
        {}, {}, ["system", "user", "assistant", "tool", "user"], said, "On the Dray.", THOUGHT
    )
    check(arguments(answer, {"messages": chat}), expected)
    check(arguments({"messages": [*chat, answer]}), expected)
    chunk = langchain.AIMessageChunk("On the ") + langchain.AIMessageChunk("Dray.")
    assert arguments(chunk, {"messages": chat})["output"] == "On the Dray."
