"""What other libraries give back becomes the arguments of explain: stand-ins, then the libraries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ropelime import InputError, explain
from ropelime.integrations.responses import arguments
from toy import additive

METHOD: dict[str, Any] = {"target": "nll", "kernel": "uniform", "progress": False}
MESSAGES = [
    {"role": "system", "content": "Answer in short."},
    {"role": "user", "content": "Where is Kessel?"},
]
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "On the Dray."},
        }
    ],
}
CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}


class Node:
    """As LlamaIndex's text nodes."""

    def __init__(self, text: str, metadata: dict[str, Any]) -> None:
        self.text, self.metadata = text, metadata

    def get_content(self) -> str:
        return self.text


def document(text: str, **metadata: Any) -> Any:
    """As LangChain's documents."""
    return SimpleNamespace(page_content=text, metadata=metadata)


# Stand-ins.


def test_a_chat_completion_with_its_request() -> None:
    said = arguments(COMPLETION, {"model": "gpt-4o-mini", "messages": MESSAGES})
    assert said == {"messages": MESSAGES, "output": "On the Dray."}


def test_an_answer_that_calls_a_tool_is_its_call() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    said = arguments({"choices": [{"message": message}]}, {"messages": MESSAGES})
    assert said["output"] == 'find({"q": 1})'


def test_the_responses_api() -> None:
    request = {
        "instructions": "Answer in short.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Where is Kessel?"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": "find", "arguments": "{}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "On the Dray."},
        ],
    }
    said = arguments({"object": "response", "output_text": "On the Dray."}, request)
    assert [m["role"] for m in said["messages"]] == ["system", "user", "assistant", "tool"]
    e = explain(
        response={"object": "response", "output_text": "On the Dray."},
        request=request,
        features="message",
        surrogate=additive([0.0, 0.0, 0.0, 2.0]),
        **METHOD,
    )
    assert [f.text for f in e.features][2:] == ["find({})", "On the Dray."]
    assert arguments({"output_text": "x"}, {"input": "Why?"})["messages"] == [
        {"role": "user", "content": "Why?"}
    ]


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (("query", "result", "source_documents"), "Where?"),
        (("input", "answer", "context"), "Where?"),
        (("question", "answer", "source_documents"), "Where?"),
    ],
)
def test_langchain_results(keys: tuple[str, str, str], asked: str) -> None:
    found = [document("One.", source="a.pdf", page=3), document("Two.")]
    result = dict(zip(keys, (asked, "There.", found), strict=True))
    assert arguments(result) == {
        "context": [
            {"text": "One.", "source": "a.pdf", "page": 3},
            {"text": "Two.", "source": None, "page": None},
        ],
        "question": "Where?",
        "output": "There.",
    }


def test_a_llama_index_response() -> None:
    node = Node("One.", {"file_name": "a.pdf", "file_path": "/docs/a.pdf", "page_label": "iv"})
    response = SimpleNamespace(
        response="There.", source_nodes=[SimpleNamespace(node=node, score=0.7), Node("Two.", {})]
    )
    assert arguments(response, question="Where?") == {
        "context": [
            {"text": "One.", "source": "a.pdf", "page": "iv"},
            {"text": "Two.", "source": None, "page": None},
        ],
        "question": "Where?",
        "output": "There.",
    }


def test_chunks_travel_to_the_citations() -> None:
    result = {
        "input": "Where?",
        "answer": "There.",
        "context": [document("One."), document("Two.", source="b.pdf", page=7)],
    }
    e = explain(response=result, features="document", surrogate=additive([0.0, 2.0]), **METHOD)
    assert str(e.cite()) == "There. [1]\n\n[1] Two. (chunk 2, b.pdf, page 7)"


def test_documents_and_messages_of_sdks_may_be_passed_as_they_are() -> None:
    documents = [document("One.", url="http://a"), Node("Two.", {"page": 1})]
    e = explain(
        context=documents,
        output="x",
        features="document",
        surrogate=additive([1.0, 2.0]),
        **METHOD,
    )
    assert [str(e.prompt.origin(i)) for i in range(2)] == ["http://a", "page 1"]
    message = SimpleNamespace(model_dump=lambda **_: {"role": "assistant", "tool_calls": [CALL]})
    chat = [*MESSAGES, message, {"role": "tool", "content": "There."}]
    e = explain(
        messages=chat, output="x", features="message", surrogate=additive([1.0, 2.0, 3, 4]), **METHOD
    )
    assert e.features[2].text == 'find({"q": 1})'


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"response": COMPLETION}, r"does not hold its prompt: pass request="),
        ({"response": COMPLETION, "request": {"model": "m"}}, "request has no 'messages'"),
        ({"response": {"output_text": "x"}, "request": {}}, "request has no 'input'"),
        ({"response": {"output_text": "x"}, "request": {"input": 5}}, r"\['input'\] must be a text"),
        ({"request": {"messages": MESSAGES}}, "request goes with response"),
        ({"response": COMPLETION, "request": {"messages": MESSAGES}, "output": "x"}, "output came too"),
        ({"response": {"choices": []}, "request": {"messages": MESSAGES}}, "output is empty"),
        ({"response": {"query": "q", "result": "r"}}, r"query, result\..*return_source_documents=True"),
        ({"response": {}}, "response has the keys none"),
        ({"response": "text"}, "response is str. It must be a response of OpenAI"),
        ({"response": SimpleNamespace(source_nodes=[], response="x")}, "pass question="),
        (
            {"response": SimpleNamespace(source_nodes=[], response=None), "question": "?"},
            r"text is NoneType.*get_response\(\)",
        ),
        (
            {"response": SimpleNamespace(source_nodes=[], response="x"), "question": "?"},
            "context is empty",
        ),
    ],
)
def test_what_cannot_be_read(call: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        explain(**call, surrogate=additive([1.0, 2.0]), **METHOD)


# The libraries themselves.


def test_the_openai_sdks_objects() -> None:
    chat = pytest.importorskip("openai.types.chat", reason="pip install 'ropelime[ask]'")
    responses = pytest.importorskip("openai.types.responses")
    completion = chat.ChatCompletion.model_validate(COMPLETION)
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    before = chat.ChatCompletionMessage.model_validate(calls)
    request = {"messages": [*MESSAGES, before, {"role": "tool", "content": "Dray."}]}
    e = explain(
        response=completion,
        request=request,
        features="message",
        surrogate=additive([0.0, 0.0, 1.0, 2.0]),
        **METHOD,
    )
    assert e.output == "On the Dray."
    assert [f.text for f in e.features][2:] == ['find({"q": 1})', "Dray."]
    text = {"type": "output_text", "text": "On the Dray.", "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    call = {"type": "function_call", "name": "find", "arguments": "{}", "call_id": "c"}
    for output, said in ([item], "On the Dray."), ([call], "find({})"):
        response = responses.Response.model_construct(
            id="r", object="response", output=[_item(responses, entry) for entry in output]
        )
        assert arguments(response, {"input": "Where?"})["output"] == said


def _item(responses: Any, entry: dict[str, Any]) -> Any:
    kinds = {"message": "ResponseOutputMessage", "function_call": "ResponseFunctionToolCall"}
    return getattr(responses, kinds[entry["type"]]).model_validate(entry)


def test_langchain_itself() -> None:
    documents = pytest.importorskip(
        "langchain_core.documents", reason="pip install 'ropelime[adapters]'"
    )
    runnables = pytest.importorskip("langchain_core.runnables")
    found = [
        documents.Document(page_content="One.", metadata={"source": "a.pdf", "page": 0}),
        documents.Document(page_content="Two.", metadata={"source": "b.pdf", "page_label": "5"}),
    ]
    # What create_retrieval_chain is made of: the input, then the chunks, then the answer beside them.
    chain = runnables.RunnablePassthrough.assign(context=lambda _: found).assign(
        answer=lambda given: f"{len(given['context'])} chunks."
    )
    result = chain.invoke({"input": "How many?"})
    e = explain(response=result, features="document", surrogate=additive([0.0, 2.0]), **METHOD)
    assert e.output == "2 chunks."
    assert e.prompt.text.endswith("How many?")
    assert e.cite().sources[0].where == "chunk 2, b.pdf, page 5"


@pytest.mark.filterwarnings("ignore")  # theirs
def test_llama_index_itself() -> None:
    pytest.importorskip("llama_index.core", reason="pip install 'ropelime[adapters]'")
    from llama_index.core import SummaryIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    nodes = [
        TextNode(text="One.", metadata={"file_name": "a.pdf", "page_label": "2"}),
        TextNode(text="Two.", metadata={"file_name": "b.pdf", "page_label": "3"}),
    ]
    engine = SummaryIndex(nodes).as_query_engine(llm=MockLLM(max_tokens=8))
    response = engine.query("Which?")
    e = explain(
        response=response,
        question="Which?",
        features="document",
        surrogate=additive([0.0, 2.0]),
        **METHOD,
    )
    assert e.output == str(response)
    assert [f.text for f in e.features] == ["One.", "Two."]
    assert e.cite().sources[0].where == "chunk 2, b.pdf, page 3"
