"""The MCP server, asked by the SDK's own client: in this process, and as a command over stdio."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toy import additive

pytest.importorskip("mcp", reason="pip install 'ropelime[mcp]'")
import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ropelime import InputError, audit, explain
from ropelime.integrations.mcp import Explainer, Limits, create_server
from ropelime.surrogate import resolve_surrogate
from ropelime.surrogate.base import Surrogate
from ropelime.typing import Floats, Masks

RUN = [
    {"role": "user", "content": "Pay the rent."},
    {"role": "assistant", "content": "I have paid it."},
]
CHAT: dict[str, Any] = {
    "context": ["Ships sail past it.", {"text": "Kessel lies on the Dray.", "source": "a.pdf"}],
    "question": "Where is Kessel?",
    "output": "Kessel lies on the Dray.",
}


def ask(tool: str, given: dict[str, Any], model: Surrogate, **how: Any) -> tuple[Any, list[Any]]:
    """The result of a tool, and the progress on the way to it."""
    explainer = Explainer(model, **how)
    seen: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async def call() -> Any:
        async with Client(create_server(explainer)) as client:
            return await client.call_tool(tool, given, progress_callback=progress)

    return anyio.run(call), seen


def test_explain() -> None:
    known = resolve_surrogate(additive([0.0, 2.0]))
    result, seen = ask("explain", {**CHAT, "preset": "faithful", "features": "document"}, known)
    assert not result.is_error
    found = result.structured_content
    assert found["parts"][0]["text"] == "Kessel lies on the Dray."
    assert found["parts"][0]["where"] == "chunk 2, a.pdf"
    assert found["parts_in_all"] == 2
    assert [done for done, _ in seen] == sorted({done for done, _ in seen}), "it only grows"


def test_the_tools_say_what_the_functions_say(tiny: Callable[..., Surrogate]) -> None:
    model = tiny()
    how: dict[str, Any] = {"surrogate": model, "progress": False}
    result, seen = ask("cite", CHAT, model)
    assert seen
    found, e = result.structured_content, explain(**CHAT, **how)
    assert found["answer"] == str(e.cite())
    assert [each["sources"] for each in found["sentences"]] == [
        [*s.sources] for s in e.cite().sentences
    ]
    assert e.trust is not None
    assert found["trust"] == pytest.approx(e.trust.value, rel=1e-5)
    for first in (0, 1):
        marked = {**CHAT, "output": "Kessel lies on the Dray [1].", "count_from": first}
        result, _ = ask("check_citations", marked, model)
        found, checked = result.structured_content, audit(**marked, **how)
        assert found["counts"] == checked.counts
        assert [(m["label"], m["why"]) for m in found["marks"]] == [
            (m.label, m.why) for m in checked.marks
        ]


def test_a_step_of_a_recorded_run(tiny: Callable[..., Surrogate], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    asked = {"file": "run.json", "step": 1, "features": "word"}
    result, _ = ask("explain_step", asked, tiny(), traces=tmp_path)
    assert result.structured_content["output"] == "I have paid it."
    assert result.structured_content["parts_in_all"] == 3
    result, _ = ask("explain_step", {**asked, "file": "/etc/passwd"}, tiny(), traces=tmp_path)
    assert result.is_error


@pytest.mark.parametrize(
    ("tool", "given", "error"),
    [
        ("explain", {"output": "x"}, "Pass exactly one of prompt, context and messages; got none"),
        (
            "explain",
            {"prompt": "One is. Two are.", "output": " ", "preset": "faithful"},
            "output is empty",
        ),
        (
            "explain",
            {"prompt": "One is. Two are.", "output": "x", "features": "line"},
            "'word', 'sentence'",
        ),
        (
            "explain",
            {"prompt": "One is. Two are.", "output": "x", "top": 0},
            "greater than or equal to 1",
        ),
        ("explain", {"prompt": "One is. Two are."}, "output"),
        (
            "explain",
            {"messages": [{"role": "usr", "content": "A"}], "output": "x"},
            "Did you mean 'user'",
        ),
        (
            "cite",
            {"prompt": "One is. Two are. Three are. Four are.", "output": "x"},
            "4 parts and this server takes at most 3",
        ),
        ("cite", {"prompt": "One is. " * 99, "output": "x"}, "793 characters"),
        (
            "check_citations",
            {"prompt": "One is. Two are.", "output": "x [1]"},
            "has no documents that a mark",
        ),
    ],
)
def test_what_is_wrong_is_a_tool_error(tool: str, given: dict[str, Any], error: str) -> None:
    model = resolve_surrogate(additive([1.0, 2.0]))
    result, _ = ask(tool, given, model, limits=Limits(characters=100, features=3))
    assert result.is_error
    assert re.search(error, result.content[0].text), result.content[0].text


def test_steps_of_recorded_runs_come_from_their_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(RUN))
    (tmp_path / "other.json").write_text(json.dumps(RUN))
    explainer = Explainer(traces=folder)
    assert explainer.step("run.json", 1).output == "I have paid it."
    for name in ("../other.json", str(tmp_path / "other.json"), "none.json", "."):
        with pytest.raises(InputError, match=r"There is no file .* It has: run\.json\."):
            explainer.step(name, 1)
    with pytest.raises(InputError, match="There is no step 99"):
        explainer.step("run.json", 99)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "loop.json", "out.json"])
def test_names_that_cannot_be_files_are_tool_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "other.json").write_text(json.dumps(RUN))
    (tmp_path / "runs" / "loop.json").symlink_to(tmp_path / "runs" / "loop.json")
    (tmp_path / "runs" / "out.json").symlink_to(tmp_path / "other.json")
    with pytest.raises(InputError, match=r"There is no file .* in the folder of traces"):
        Explainer(traces=tmp_path / "runs").step(name, 1)


class PanicException(BaseException):
    """What a tokenizer written in Rust raises when it panics is not an Exception."""


def test_a_panic_fails_one_call_and_the_next_one_is_answered() -> None:
    left = [PanicException("index out of bounds")]

    def panics(masks: Masks) -> Floats:
        if left:
            raise left.pop()
        return additive([0.0, 2.0])(masks)

    async def call() -> list[Any]:
        async with Client(create_server(Explainer(resolve_surrogate(panics)))) as client:
            asked = {**CHAT, "preset": "faithful", "features": "document"}
            return [await client.call_tool("explain", asked) for _ in range(2)]

    first, second = anyio.run(call)
    assert first.is_error
    assert "PanicException: index out of bounds" in first.content[0].text
    assert second.structured_content["parts_in_all"] == 2


async def tools_of(server: Any) -> dict[str, Any]:
    async with Client(server) as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


def test_the_schemas_say_what_a_tool_takes_and_returns(tmp_path: Path) -> None:
    tools = anyio.run(tools_of, create_server(Explainer()))
    assert sorted(tools) == ["check_citations", "cite", "explain"]
    for tool in tools.values():
        assert tool.input_schema["required"] == ["output"]
        assert all(each.get("description") for each in tool.input_schema["properties"].values())
        assert tool.annotations.read_only_hint
        assert {"trust", "trust_says", "warnings"} <= {*tool.output_schema["required"]}
    with_traces = anyio.run(tools_of, create_server(Explainer(traces=tmp_path)))
    assert with_traces["explain_step"].input_schema["required"] == ["file", "step"]


def test_a_cancelled_call_ends_and_the_next_one_is_answered() -> None:
    calls: list[int] = []

    def slow(masks: Masks) -> Floats:
        calls.append(len(masks))
        time.sleep(0.1)
        return additive([0.0, 2.0])(masks)

    async def call() -> Any:
        async with Client(create_server(Explainer(resolve_surrogate(slow)))) as client:
            asked = {**CHAT, "preset": "faithful", "features": "document"}
            with anyio.move_on_after(0.05):
                await client.call_tool("explain", asked)
            return await client.call_tool("explain", asked)

    assert anyio.run(call).structured_content["parts_in_all"] == 2
    assert calls


@pytest.mark.slow
@pytest.mark.real_model
def test_the_command_over_stdio() -> None:
    async def call() -> Any:
        arguments: dict[str, Any] = {"args": ["-m", "ropelime", "mcp"], "env": {**os.environ}}
        command = StdioServerParameters(command=sys.executable, **arguments)
        async with Client(stdio_client(command)) as client:
            seen: list[float] = []

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                seen.append(progress)

            good = await client.call_tool("cite", CHAT, progress_callback=progress)
            bad = await client.call_tool("explain", {"output": "x"})
            return good, bad, seen, client.instructions

    good, bad, seen, instructions = anyio.run(call)
    assert good.structured_content["sources"][0]["where"] == "chunk 2, a.pdf"
    assert seen
    assert seen == sorted(seen)
    assert bad.is_error
    assert "no text leaves the machine" in instructions
