"""Explanations inside LangChain and LlamaIndex: the libraries themselves, with fake models."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import pytest

from ropelime import InputError, ModelError
from toy import additive

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
EXTRA = "pip install 'ropelime[adapters]'"
HOW: dict[str, Any] = {"features": "message", "target": "nll", "kernel": "uniform"}
COEF = [0.0, 2.0]


@pytest.mark.parametrize(
    ("library", "module", "command"),
    [
        ("langchain_core.callbacks", "langchain", "pip install langchain-core"),
        ("llama_index.core.base.base_query_engine", "llama_index", "pip install llama-index-core"),
        ("mcp.server.mcpserver", "mcp", r"pip install 'ropelime\[mcp\]'"),
    ],
)
def test_without_the_library(
    library: str, module: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    monkeypatch.delitem(sys.modules, f"ropelime.integrations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModelError, match=command):
        import_module(f"ropelime.integrations.{module}")


def langchain(answers: list[Any], **how: Any) -> tuple[Any, Any, list[Any]]:
    """A chat model that gives these answers, the callback, and a chat."""
    models = pytest.importorskip("langchain_core.language_models", reason=EXTRA)
    messages = pytest.importorskip("langchain_core.messages")
    from ropelime.integrations.langchain import ExplainCallback

    model = models.GenericFakeChatModel(messages=iter(answers))
    chat = [messages.SystemMessage("Be brief."), messages.HumanMessage("Where is Kessel?")]
    return model, ExplainCallback(surrogate=additive(COEF), **{**HOW, **how}), chat


def test_a_langchain_answer_carries_its_explanation() -> None:
    model, why, chat = langchain(["On the Dray.", "At the Dray."])
    answer = model.invoke(chat, config={"callbacks": [why]})
    found = answer.response_metadata["ropelime"]
    assert (found["parts"][0]["text"], found["parts"][0]["where"]) == (
        "Where is Kessel?",
        "message 2, user",
    )
    json.dumps(found)
    asyncio.run(model.ainvoke(chat, config={"callbacks": [why]}))
    assert [e.output for e in why.explanations.values()] == ["On the Dray.", "At the Dray."]
    assert why.errors == {}


def test_the_reasoning_of_a_langchain_answer_is_kept() -> None:
    messages = pytest.importorskip("langchain_core.messages", reason=EXTRA)
    reply = messages.AIMessage("On the Dray.", additional_kwargs={"reasoning_content": "Hm."})
    model, why, chat = langchain([reply])
    model.invoke(chat, config={"callbacks": [why]})
    (e,) = why.explanations.values()
    assert e.config["reasoning"] == "Hm."


def test_a_langchain_answer_in_a_chain_and_as_a_stream() -> None:
    model, why, _ = langchain(["On the Dray.", "On the Dray."])
    prompts = pytest.importorskip("langchain_core.prompts")
    prompt = prompts.ChatPromptTemplate.from_messages([("system", "Be {how}."), ("human", "{asked}")])
    given = {"how": "brief", "asked": "Where is Kessel?"}
    (prompt | model).invoke(given, config={"callbacks": [why]})
    "".join(chunk.content for chunk in (prompt | model).stream(given, config={"callbacks": [why]}))
    assert [e.output for e in why.explanations.values()] == ["On the Dray."] * 2


def test_a_langchain_answer_is_not_lost_if_it_cannot_be_explained() -> None:
    model, why, chat = langchain(["On the Dray.", " "])
    answer = model.invoke(chat[:1], config={"callbacks": [why]})
    assert answer.content == "On the Dray."
    assert "needs at least two" in answer.response_metadata["ropelime"]["error"]
    assert model.invoke(chat, config={"callbacks": [why]}).content == " "
    assert len(why.errors) == 2
    why.on_llm_error(ValueError(), run_id=uuid4())
    with pytest.raises(InputError, match="Unknown preset"):
        langchain([], preset="evidense")


def test_a_model_of_langchain_that_takes_a_text() -> None:
    models = pytest.importorskip("langchain_core.language_models", reason=EXTRA)
    from ropelime.integrations.langchain import ExplainCallback

    why = ExplainCallback(surrogate=additive(COEF), **{**HOW, "features": "sentence"})
    model = models.FakeListLLM(responses=["On the Dray."])
    found = model.generate(["Be brief, please. Where is Kessel?"], callbacks=[why]).generations[0][0]
    assert found.generation_info["ropelime"]["parts"][0]["text"].strip() == "Where is Kessel?"


def engine(**how: Any) -> Any:
    """A query engine over two nodes, with its explanations."""
    pytest.importorskip("llama_index.core", reason=EXTRA)
    from llama_index.core import SummaryIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    from ropelime.integrations.llama_index import ExplainedQueryEngine

    streaming = how.pop("streaming", False)
    nodes = [TextNode(text="One."), TextNode(text="Two.", metadata={"file_name": "b.pdf"})]
    plain = SummaryIndex(nodes).as_query_engine(llm=MockLLM(max_tokens=8), streaming=streaming)
    options = {**HOW, "features": "document", "surrogate": additive(COEF), **how}
    return ExplainedQueryEngine(plain, **options)


def test_a_llama_index_response_carries_its_explanation() -> None:
    explained = engine(top=1)
    for response in explained.query("Which?"), asyncio.run(explained.aquery("Which?")):
        found = response.metadata["ropelime"]
        assert [(part["text"], part["where"]) for part in found["parts"]] == [
            ("Two.", "chunk 2, b.pdf")
        ]
        assert explained.explanation.output == str(response)
        assert len(response.metadata) == 3, "the metadata of the nodes is kept"


def test_a_llama_index_response_is_not_lost_if_it_cannot_be_explained() -> None:
    explained = engine(streaming=True)
    response = explained.query("Which?")
    assert "consume it first" in response.metadata["ropelime"]["error"]
    assert explained.explanation is None
    assert str(response.get_response())
    from ropelime.integrations.llama_index import ExplainedQueryEngine, attach

    e = attach(
        response.get_response(), "Which?", surrogate=additive(COEF), **{**HOW, "features": "document"}
    )
    assert e.features[1].text == "Two."
    with pytest.raises(InputError, match="must be a query engine, not str"):
        ExplainedQueryEngine("engine")
