"""What is refused and in which words, what steps answer to, and the files of other tools."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ropelime
from ropelime.errors import InputError
from ropelime.text.prompt import read_prompt
from ropelime.traces import contents
from ropelime.traces.reading import read_text
from ropelime.traces.values import tree, when
from trace_samples import (
    inspect_log,
    inspect_zip,
    langfuse,
    langsmith,
    openai,
    openinference,
    otel,
)

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
NO_TRACES = (".schema.json", ".annotations.json", "README.md")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"a": [1,', "is not JSON"),
        (b"Hello there", "is not JSON"),
        (b"\xff\xfa\x00", "it is not text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"text"', "is not a trace: it is str"),
        (b"7", "is not a trace: it is int"),
        (b"[]", "is not a trace: it is a list of 0"),
        (b'{"name": "x", "age": 3}', "an object with the keys name, age. These are read: OpenInf"),
        (b"[[[[[[1]]]]]]", "is not a trace"),
        (b'{"resourceSpans": []}', r"run.json \(OTLP/JSON\) has no steps"),
        (b'{"resourceSpans": [7]}', r"has no steps"),
        (b'{"post": []}', r"\(LangSmith runs\) has no steps"),
        (b'{"eval": {}, "samples": []}', r"has no steps. the log has no samples"),
        (b'[{"role": "user", "content": "Hi."}]', r"\(messages\) has no steps"),
        (b"\x1f\x8b\x08\x00junk", "cannot be decompressed"),
        (b"PK\x03\x04junk", "cannot be unpacked"),
    ],
)
def test_what_is_refused(raw: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(raw)
    with pytest.raises(InputError, match=message):
        ropelime.trace(file)


@pytest.mark.parametrize("path", ["nowhere.json", "a\0b"])
def test_files_that_are_not_there(path: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        ropelime.trace(path)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        ropelime.trace(tmp_path)


@pytest.mark.parametrize("data", [None, 7, object(), [], {}, set(), b"x"])
def test_objects_that_are_no_traces(data: Any) -> None:
    with pytest.raises(InputError, match="is not a trace"):
        ropelime.trace(data)


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contents, "LARGEST", 1 << 10)
    bomb = gzip.compress(json.dumps(openai() * 40).encode())
    assert len(bomb) < 1 << 10
    for raw in (json.dumps(openai() * 40).encode(), bomb):
        file = tmp_path / "run.json"
        file.write_bytes(raw)
        with pytest.raises(InputError, match=r"has more than .* Export one run"):
            ropelime.trace(file)
    file.write_bytes(inspect_zip())
    with pytest.raises(InputError, match=r"unpacks to more than|more than 0 MiB"):
        ropelime.trace(file)


@pytest.mark.parametrize("form", ["json", "jsonl", "zip"])
def test_a_file_of_too_many_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str) -> None:
    """A few hundred kilobytes of gzip can hold as many lists as take ten gigabytes of memory."""
    monkeypatch.setattr(contents, "_MARKS", 5)
    lists = {"json": b"[[],[],[],[]]", "jsonl": b"{}\n[]\n{}\n[]\n{}\n[]\n", "zip": inspect_zip()}
    file = tmp_path / "run"
    file.write_bytes(lists[form])
    with pytest.raises(InputError, match=r"more than 5 values|its header is not an object"):
        ropelime.trace(file)


def test_a_file_of_too_many_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contents, "_LINES", 5)
    (tmp_path / "run.jsonl").write_text("{}\n" * 6)
    with pytest.raises(InputError, match=r"more than 5 lines"):
        ropelime.trace(tmp_path / "run.jsonl")


def sample(content: Any, **more: Any) -> dict[str, Any]:
    """A sample of Inspect with one call of a model."""
    said = {"choices": [{"message": {"role": "assistant", "content": "x"}}]}
    event = {"event": "model", "input": [{"role": "user", "content": content}], "output": said}
    return {"id": 1, "epoch": 1, "events": [{**event, **more.pop("event", {})}], **more}


REPEATED = {
    "pool": sample(
        "", message_pool=[{"role": "user"}] * 2000, event={"input_refs": [[0, 2000]] * 1100}
    ),
    "attachment": sample(["attachment://a"] * 200, attachments={"a": "word " * 20_000}),
}


@pytest.mark.parametrize("data", REPEATED.values(), ids=REPEATED)
def test_what_refers_to_itself_without_measure_is_refused(data: Any) -> None:
    """Some kilobytes that stand for gigabytes."""
    with pytest.raises(InputError, match=r"trace is too large: .* Take one run, or a part of it"):
        ropelime.trace(data)


def test_what_is_put_together_takes_room() -> None:
    one = sample(["attachment://a"] * 20, attachments={"a": "word " * 10_000})  # a million characters
    assert read_text("x", json.dumps(one), room=2_000_000).steps
    with pytest.raises(InputError, match=r"x is too large: it has too many messages"):
        read_text("x", json.dumps([{**one, "id": i} for i in range(3)]), room=2_000_000)


def test_a_text_that_is_stored_once_takes_no_room_again() -> None:
    """Logs refer to the same long messages in every event."""
    whole = sample("attachment://a", attachments={"a": "word " * 50_000})
    whole["events"] *= 4400  # 1.1 GB, if each had a text of its own
    assert len(ropelime.trace(whole).steps) == 4400


@pytest.mark.parametrize("kind", ["calls", "items", "logs"])
def test_long_lists_are_read_in_linear_time(kind: str) -> None:
    def seconds(n: int) -> float:
        call = {"type": "function_call", "name": "f", "arguments": "{}"}
        span = {"spanId": "1", "traceId": "2", "attributes": []}
        calls = [{"id": str(i), "function": {"name": "f"}} for i in range(n)]
        forms: dict[str, Any] = {
            "calls": {"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": calls}]},
            "items": {"model": "m", "input": [call] * n},
            "logs": {
                "resourceSpans": [{"scopeSpans": [{"spans": [span]}]}],
                "resourceLogs": [{"scopeLogs": [{"logRecords": [span] * n}]}],
            },
        }
        start = time.process_time()
        ropelime.trace(forms[kind])
        return time.process_time() - start

    few, many = (min(seconds(n) for _ in range(3)) for n in (1000, 8000))
    assert many < 30 * few, "8 times as many; in quadratic time it would be 64"


def test_a_zip_that_is_not_a_log(tmp_path: Path) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("notes.txt", "Hi.")
    with pytest.raises(InputError, match="not a log of Inspect: it has no header"):
        ropelime.trace(file)


def test_a_damaged_sample_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    packed = io.BytesIO(inspect_zip())
    with zipfile.ZipFile(packed, "a") as file:
        file.writestr("samples/2_epoch_1.json", '{"id": 2, "mess')
    (tmp_path / "log.eval").write_bytes(packed.getvalue())
    found = ropelime.trace(tmp_path / "log.eval")
    assert len(found.model_steps) == 2
    (problem,) = found.problems
    assert problem.startswith("samples/2_epoch_1.json: cannot be read: Unterminated string")


def test_a_span_that_cannot_be_read_is_named() -> None:
    data: Any = otel()
    nest: Any = 1
    for _ in range(3000):
        nest = [nest]
    spans = data["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["attributes"].append({"key": "gen_ai.output.messages", "value": nest})
    found = ropelime.trace(data)
    assert len(found.steps) == 2
    (problem,) = found.problems
    assert problem.startswith("resourceSpans[0].scopeSpans[0].spans[0]")


def test_records_that_are_no_objects_are_named() -> None:
    spans: Any = otel()
    spans["resourceSpans"].append(7)
    spans["resourceSpans"][0]["scopeSpans"][0]["spans"].insert(1, "x")
    observations, runs, log, chat = langfuse(), langsmith(), inspect_log(), openai()
    observations["observations"].append(None)
    runs["post"].insert(0, [])
    log["samples"][0]["events"].append(3)
    chat[2]["tool_calls"] = "find"
    for data, problems in [
        (spans, ("resourceSpans[0].scopeSpans[0].spans[1]: an object is needed, not str",
                 "resourceSpans[1]: an object is needed, not int")),
        (observations, ("observations[3]: an object is needed, not NoneType",)),
        (runs, ("run 1: an object is needed, not list",)),
        (log, ("samples[0] events[4]: an object is needed, not int",)),
        (chat, ("messages[2]: tool calls are a list, not str",)),
    ]:  # fmt: skip
        found = ropelime.trace(data)
        assert found.problems == problems
        assert len(found.model_steps) == 2


def test_missing_attachments_are_named() -> None:
    log = inspect_log()
    log["samples"][0]["attachments"] = {}
    found = ropelime.trace(log)
    assert found.problems == ("samples[0]: the text of 'attachment://a1' is not in the file",)
    assert found.model_steps[0].messages[0].content == "attachment://a1"


def test_an_inspect_log_without_events() -> None:
    log = inspect_log()
    log["samples"][0]["events"] = []
    log["samples"][0]["messages"][0]["content"] = "attachment://a1"
    found = ropelime.trace(log)
    assert [step.kind for step in found] == ["model", "tool", "model"]
    assert {step.trace_id for step in found} == {"sample 1, epoch 1"}
    assert found.model_steps[0].messages[0].content == log["samples"][0]["attachments"]["a1"]


def test_many_problems_are_counted() -> None:
    spans = [{"odd": i} for i in range(300)]
    found = ropelime.trace([*openinference(), *spans])
    assert len(found.problems) == 101
    assert found.problems[-1] == "200 more problems"


def test_steps_by_number_and_by_id() -> None:
    found = ropelime.trace(openinference())
    assert found[1] is found.steps[0]
    assert found["b3"].number == 4
    assert [step.number for step in found] == [1, 2, 3, 4, 5]
    assert len(found) == 5
    assert repr(found) == "<Trace 'trace', spans: 5 steps, 2 of models>"
    assert repr(found[4]) == "<Step 4: model of gpt-x, 'I have paid 900 to Holm & Co.'>"
    for wrong, message in [
        (0, "There is no step 0: trace has steps 1 to 5"),
        (6, "no step 6"),
        ("b9", "No step has the id 'b9'"),
        (True, "not bool"),
        (1.5, "not float"),
    ]:
        with pytest.raises(InputError, match=message):
            found[wrong]  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2026-06-01T00:00:00Z", 1780272000.0),
        ("2026-06-01T02:00:00.5+02:00", 1780272000.5),
        ("2026-06-01 00:00:00.123456789", 1780272000.123456),
        (1780272000, 1780272000.0),
        (1780272000500, 1780272000.5),
        ("1780272000000000000", 1780272000.0),
        ([1780272000, 500_000_000], 1780272000.5),
    ],
)
def test_times_as_tools_write_them(given: Any, seconds: float) -> None:
    found = when(given)
    assert found is not None
    assert found.timestamp() == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "given", [None, True, "", "soon", "9" * 30, 10**400, -5, [1], {}, float("nan")]
)
def test_times_that_are_none(given: Any) -> None:
    assert when(given) is None or given == "9" * 30


def test_dotted_keys_become_levels() -> None:
    flat = {"a.0.b": 1, "a.1.b": 2, "a.10.b": 3, "c": 4, "c.d": 5, "e": {"f.g": 6}, "e.h": 7}
    assert tree(flat) == {
        "a": [{"b": 1}, {"b": 2}, {"b": 3}], "c": {"": 4, "d": 5}, "e": {"f": {"g": 6}, "h": 7},
    }  # fmt: skip


# The files of other tools: outside this repository, and read where they lie.


@pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason="the files are not here")
def test_every_stored_file_is_read() -> None:
    files = [file for file in (SHARED / "traces").rglob("*") if file.is_file()]
    assert len(files) > 50
    for file in files:
        if file.name.endswith(NO_TRACES):
            with pytest.raises(InputError, match=r"is not a trace|is not JSON"):
                ropelime.trace(file)
            continue
        found = ropelime.trace(file)
        assert found.steps, file
        for step in found.model_steps:
            assert step.messages or step.output or found.problems, (file, step)
            if any(m.content.strip() or m.tool_calls for m in step.messages):
                assert read_prompt(messages=step.prompt()).text, (file, step)


@pytest.mark.skipif(not (SHARED / "traces" / "langfuse").is_dir(), reason="the files are not here")
def test_what_langfuse_reads_out_of_its_traces_is_in_ours() -> None:
    compared = 0
    for file in (SHARED / "traces" / "langfuse").glob("*.trace.json"):
        ours = ropelime.trace(file)
        for theirs in ropelime.trace(str(file).replace(".trace.", ".chatml.")):
            own = ours[theirs.id]
            if own.kind != "model":
                continue
            compared += 1
            written = [m.content for m in own.messages]
            for message in theirs.messages:
                flat = [text.replace(" ", "") for text in written]
                assert message.content.replace(" ", "") in flat, (file, message)
            assert theirs.output in ("", own.output)
    assert compared >= 12


@pytest.mark.skipif(not (SHARED / "agentdyn.jsonl.xz").is_file(), reason="the files are not here")
def test_a_run_of_agentdojo_is_as_in_the_benchmark() -> None:
    name = "agentdyn/gpt-4o-2024-08-06/dailylife/user_task_0/injection_task_0"
    with lzma.open(SHARED / "agentdyn.jsonl.xz") as file:
        row = next(row for row in map(json.loads, file) if row["id"] == name)
    stem = "hijacked-dailylife-user_task_0-injection_task_0.json"
    found = ropelime.trace(SHARED / "traces" / "agentdojo" / stem)
    (step,) = [step for step in found.model_steps if step.output == row["output"]]
    assert [dict(m) for m in map(comparable, step.prompt())] == list(map(comparable, row["messages"]))
    assert [{"start": a, "end": b} for a, b in step.call_spans] == row["calls"]


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]
    return {"role": message["role"], "content": message["content"] or "", "calls": calls}
