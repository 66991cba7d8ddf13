"""The same small run in every form gives the same steps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import ropelime
from ropelime.text.prompt import read_prompt
from ropelime.traces.steps import Message, Step, ToolCall
from trace_samples import (
    ANSWER,
    ARGUMENTS,
    CALL_ID,
    MODEL,
    RESULT,
    SAMPLES,
    SYSTEM,
    THOUGHT,
    TOOL,
    USER,
    inspect_zip,
    langfuse,
    openai,
    openinference,
    otel,
    responses,
)


def check(steps: tuple[Step, ...], keeps: frozenset[str]) -> None:
    """The two model calls of the run."""
    first, second = steps
    prompt = [("system", SYSTEM), ("user", USER)]
    assert [(m.role, m.content) for m in first.messages] == prompt
    assert json.loads(first.output) == {"name": TOOL, "arguments": ARGUMENTS}
    assert first.call_spans == ((0, len(first.output)),)
    assert first.text == ""
    (call,) = first.calls
    assert call.id == CALL_ID
    assert json.loads(call.arguments) == ARGUMENTS
    more = [("assistant", ""), ("tool", RESULT)]
    assert [(m.role, m.content) for m in second.messages] == prompt + more
    assert second.messages[2].tool_calls == first.calls
    assert (second.messages[3].name, second.messages[3].tool_call_id) == (TOOL, CALL_ID)
    assert (second.output, second.calls) == (ANSWER, ())
    assert second.reasoning == (THOUGHT if "reasoning" in keeps else "")
    assert {step.model for step in steps} == {MODEL if "model" in keeps else ""}
    if "time" in keeps:
        assert [step.seconds for step in steps] == [2, 2]
        assert first.started is not None
        assert first.started.tzinfo is not None


@pytest.mark.parametrize("name", SAMPLES)
def test_every_form_gives_the_same_steps(name: str, tmp_path: Path) -> None:
    data, keeps = SAMPLES[name]
    found = ropelime.trace(data)
    check(found.model_steps, keeps)
    assert not found.problems
    file = tmp_path / "run.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    again = ropelime.trace(str(file))
    assert (again.name, again.steps) == ("run.json", found.steps)
    for step in found.model_steps:
        assert read_prompt(messages=step.prompt()).kind == "messages", "as explain takes it"


@pytest.mark.parametrize(
    "name",
    ["openai", "responses", "anthropic", "gemini", "agentdojo", "tau-bench", "openinference", "otel",
     "langfuse", "langsmith", "inspect"],
)  # fmt: skip
def test_tools_are_steps_too(name: str) -> None:
    (tool,) = [step for step in ropelime.trace(SAMPLES[name][0]) if step.kind == "tool"]
    assert (tool.name, tool.output, tool.number) == (TOOL, RESULT, tool.number)
    (call,) = tool.calls
    assert (call.name, json.loads(call.arguments)) == (TOOL, ARGUMENTS)


def test_an_inspect_log_as_zip(tmp_path: Path) -> None:
    file = tmp_path / "log.eval"
    file.write_bytes(inspect_zip())
    found = ropelime.trace(file)
    check(found.model_steps, SAMPLES["inspect"][1])
    assert [step.kind for step in found] == ["agent", "model", "tool", "model"]
    assert found.form == "Inspect log"


@pytest.mark.parametrize("encode", [gzip.compress, lambda raw: raw.decode().encode("utf-16"),
                                    lambda raw: b"\xef\xbb\xbf" + raw])  # fmt: skip
def test_compressed_files_and_other_encodings(encode: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.json.gz"
    file.write_bytes(encode(json.dumps(otel()).encode()))
    check(ropelime.trace(file).model_steps, SAMPLES["otel"][1])


def test_json_lines_of_spans_with_a_damaged_one(tmp_path: Path) -> None:
    lines = [json.dumps(span) for span in openinference()]
    file = tmp_path / "spans.jsonl"
    file.write_text("\n".join([lines[0], '{"name": "cut', "", *lines[1:], '{"odd": 1}']), "utf-8")
    found = ropelime.trace(file)
    check(found.model_steps, SAMPLES["openinference"][1])
    first, second = found.problems
    assert first.startswith("line 2: not JSON (")
    assert second == "line 8: no step of a known form: an object with the keys odd"


def test_spans_are_in_the_order_of_time_with_their_parents() -> None:
    found = ropelime.trace(openinference())
    assert [(step.id, step.kind) for step in found] == [
        ("b0", "agent"), ("b1", "model"), ("b2", "tool"), ("b3", "model"), ("b4", "retrieval"),
    ]  # fmt: skip
    assert [step.parent for step in found] == ["", "b0", "b0", "b0", "b0"]
    assert {step.trace_id for step in found} == {"t1"}
    (document,) = found["b4"].documents
    assert (document.text, document.source) == ("Holm & Co. owns the house.", "lease.txt")
    assert (document.id, document.score) == ("d1", 0.5)
    assert found["b4"].messages == (Message("user", "rent"),)
    assert (found["b0"].messages[0].content, found["b0"].output) == (USER, ANSWER)


def test_columns_of_a_table_of_spans() -> None:
    """As ``get_spans_dataframe().to_json(orient="records")`` writes them."""
    rows = []
    for span in openinference():
        row: dict[str, Any] = {"name": span["name"], "span_kind": span["span_kind"]}
        row |= {"parent_id": span["parent_id"], "start_time": span["start_time"]}
        row |= {"end_time": span["end_time"], "context.span_id": span["context"]["span_id"]}
        row |= {"context.trace_id": "t1"}
        row |= {f"attributes.{key}": value for key, value in span["attributes"].items()}
        rows.append(row)
    found = ropelime.trace(rows)
    check(found.model_steps, SAMPLES["openinference"][1])
    assert found["b4"].documents == ropelime.trace(openinference())["b4"].documents


def test_a_model_call_around_another_is_an_agent() -> None:
    data = langfuse()
    outer = {**data["observations"][0], "id": "b0", "parentObservationId": None}
    outer["startTime"] = "2026-06-01T09:00:00Z"
    data["observations"].append(outer)
    found = ropelime.trace(data)
    assert found["b0"].kind == "agent"
    check(found.model_steps, SAMPLES["langfuse"][1])


def test_several_runs_in_one_file() -> None:
    one, other = openinference(), openinference()
    for span in other:
        span["context"] = {**span["context"], "trace_id": "t0"}
    found = ropelime.trace({"first": one, "second": other})
    assert [step.trace_id for step in found] == ["t0"] * 5 + ["t1"] * 5, "run by run"
    with pytest.raises(ropelime.InputError, match=r"Several steps have the id 'b1'.*\(2, 7\)"):
        found["b1"]


def test_what_is_not_text_is_named() -> None:
    given: list[dict[str, Any]] = openai()
    given[1]["content"] = [
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": USER},
    ]
    given[0]["role"] = "narrator"
    found = ropelime.trace(given)
    assert found.model_steps[0].messages[1].content == f"[image_url]\n{USER}"
    assert found.problems == (
        "messages[0]: the role 'narrator' is not known; it is taken as user",
        "messages[1].content[0]: image_url is not text and is shown in brackets",
    )


def test_a_request_of_the_responses_api_with_its_response() -> None:
    instructions, *items = responses()
    request = {"model": MODEL, "instructions": instructions["content"], "input": items[:3]}
    response = {"object": "response", "output": items[3:], "prompt": None}
    for data in (
        {"request": request, "response": response},
        {"request": json.dumps(request), "response": json.dumps(response)},
        [{**request, **response}],
    ):
        found = ropelime.trace(data)
        check(found.model_steps, SAMPLES["anthropic"][1])
        assert [step.kind for step in found] == ["model", "tool", "model"]
        assert not found.problems


def test_messages_as_langchain_stores_them() -> None:
    call = {"name": TOOL, "args": ARGUMENTS, "id": CALL_ID, "type": "tool_call"}
    thought = [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}]
    use = {"type": "tool_use", "id": CALL_ID, "name": TOOL, "input": ARGUMENTS}
    given: list[tuple[str, dict[str, Any]]] = [
        ("system", {"content": SYSTEM}),
        ("human", {"content": USER}),
        ("ai", {"content": [use], "tool_calls": [call]}),
        ("tool", {"content": RESULT, "tool_call_id": CALL_ID}),
        ("ai", {"content": thought, "tool_calls": []}),
    ]
    for data in (
        [{"type": kind, "data": data} for kind, data in given],
        [{"type": kind, **data} for kind, data in given],
    ):
        check(ropelime.trace(data).model_steps, SAMPLES["openai"][1])


def test_tau2_bench() -> None:
    """Arguments are objects, and the id of a result is that of its call."""
    messages = openai(reasoning=False)
    messages[2]["tool_calls"] = [{"id": CALL_ID, "name": TOOL, "arguments": ARGUMENTS}]
    messages[3] = {"role": "tool", "id": CALL_ID, "content": RESULT}
    data = {"info": {}, "tasks": [{"id": "7"}], "simulations": [{"id": "s", "messages": messages}]}
    check(ropelime.trace(data).model_steps, SAMPLES["tau-bench"][1])


@pytest.mark.parametrize(
    ("part", "content", "problem"),
    [
        ({"type": "blob", "mime_type": "image/png", "content": "aGk="}, "[blob]", "blob is not text"),
        ({"type": "redacted_thinking", "data": "x"}, "", "reasoning is encrypted and left out"),
        ({"inlineData": {"data": "aGk="}}, "[inlineData]", "inlineData is not text"),
        ({"type": "document", "title": "A", "source": {"type": "text", "data": "B."}}, "A\nB.", ""),
        ({"type": "refusal", "refusal": "No."}, "No.", ""),
    ],
)
def test_other_parts(part: dict[str, Any], content: str, problem: str) -> None:
    found = ropelime.trace([{"role": "assistant", "content": [part]}])
    assert found.model_steps[0].text == content
    assert problem in "".join(found.problems)
    assert bool(problem) == bool(found.problems)


def test_several_results_of_tools_in_one_message() -> None:
    results = [{"type": "tool_result", "tool_use_id": str(i), "content": f"result {i}"} for i in (1, 2)]
    uses = [{"type": "tool_use", "id": str(i), "name": f"t{i}", "input": {}} for i in (1, 2)]
    given = [
        {"role": "user", "content": "Do both."},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}, *uses]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And now?"}]},
        {"role": "assistant", "content": "Done."},
    ]
    found = ropelime.trace(given)
    last = found.model_steps[1]
    assert [(m.role, m.content, m.name) for m in last.messages[2:]] == [
        ("tool", "result 1", "t1"), ("tool", "result 2", "t2"), ("user", "And now?", ""),
    ]  # fmt: skip
    first = found.model_steps[0]
    assert first.output == ('Yes.\n{"name": "t1", "arguments": {}}\n{"name": "t2", "arguments": {}}')
    assert [first.output[a:b] for a, b in first.call_spans] == first.output.split("\n")[1:]


def test_the_instructions_that_a_response_returns() -> None:
    data = langfuse()
    for each in data["observations"][:2]:
        prompt = json.loads(each["input"])["messages"]
        each["input"] = json.dumps(prompt[1:])
        answer = json.loads(each["output"])
        content = [{"type": "output_text", "text": answer["content"]}] if answer["content"] else []
        output: list[dict[str, Any]] = [{"type": "message", "role": "assistant", "content": content}]
        if "tool_calls" in answer:
            function = answer["tool_calls"][0]["function"]
            output = [{"type": "function_call", "call_id": CALL_ID, **function}]
        response = {"object": "response", "instructions": SYSTEM, "output": output}
        each["output"] = json.dumps(response)
    check(ropelime.trace(data).model_steps, SAMPLES["langfuse"][1])


def test_a_call_whose_arguments_are_not_json() -> None:
    call = ToolCall("1", "run", "ls -l {")
    assert str(call) == '{"name": "run", "arguments": "ls -l {"}'
    assert str(ToolCall("1", "now")) == '{"name": "now", "arguments": {}}'


def test_text_that_no_tokenizer_can_encode_is_replaced() -> None:
    given = [{"role": "user", "content": "a\0b\ud800c"}, {"role": "assistant", "content": "x"}]
    (step,) = ropelime.trace(given).model_steps
    assert step.messages[0].content == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert read_prompt(messages=step.prompt())
    assert str(ToolCall("1", "say", r'{"x": "\ud800"}')) == (
        '{"name": "say", "arguments": {"x": "\N{REPLACEMENT CHARACTER}"}}'
    )
