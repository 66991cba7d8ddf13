"""Against a real OpenAI-compatible server: ``transformers serve`` with the embedded model, on loopback.

The requests pass a proxy that counts them and injects faults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ropelime
from ropelime import ModelError, example
from ropelime.batch.store import rows
from ropelime.cli import main
from ropelime.surrogate.embedded import fetch_embedded
from servers import Proxy, busy, cut, cut_after, raw, slow, transformers_serve

for _module in ("openai", "fastapi", "uvicorn"):
    pytest.importorskip(_module, reason="pip install 'ropelime[dev]'")
pytest.importorskip("transformers.cli.transformers", reason="this transformers serves otherwise")
pytestmark = [pytest.mark.slow, pytest.mark.real_model]

SECRET = "sk-loop-5f0b2c77d1e94"
QUICK: dict[str, Any] = {"sampler": "leave-one-out", "features": "document", "progress": False}


@pytest.fixture(scope="module")
def model() -> str:
    return str(fetch_embedded())


@pytest.fixture(scope="module")
def served(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transformers_serve(model, str(tmp_path_factory.mktemp("serve") / "log.txt")) as url:
        yield url


@pytest.fixture
def proxy(served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Proxy(served).running() as between:
        yield between


def ask(proxy: Proxy, model: str, **options: Any) -> ropelime.Explanation:
    chosen: dict[str, Any] = {
        "context": example.CONTEXT,
        "model": model,
        "surrogate": model,
        "base_url": proxy.url,
        "sampling": {"temperature": 0, "max_tokens": 24},
        **QUICK,
    }
    e: ropelime.Explanation = ropelime.ask(example.QUESTION, **{**chosen, **options})
    return e


def test_ask_against_a_real_server(proxy: Proxy, model: str, tmp_path: Path) -> None:
    came: list[str] = []
    e = ask(proxy, model, on_text=came.append, price=(0.15, 0.6))
    assert len(proxy.seen) == 1
    assert proxy.keys == [SECRET]
    assert "".join(came) == e.output
    assert len(came) > 3, "it came in pieces"
    record = e.config["answer"]
    usage = record["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert record["cost"] == pytest.approx(
        (usage["prompt_tokens"] * 0.15 + usage["completion_tokens"] * 0.6) / 1e6
    )
    # The surrogate is the model that answered: greedy, it finds its own words likely.
    assert e.diagnostics.logprob_full > -1.0
    whole = ask(proxy, model, cache=False, stream=False)
    assert whole.output == e.output
    assert whole.config["answer"]["usage"] == usage
    assert len(proxy.seen) == 2
    again = ask(proxy, model)
    assert len(proxy.seen) == 2, "the same question is not paid twice"
    assert again.normalized_weights.tolist() == e.normalized_weights.tolist()
    e.save(tmp_path / "why.json")
    e.to_html(tmp_path / "why.html")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_verify_against_a_real_server(proxy: Proxy, model: str) -> None:
    e = ask(proxy, model, features="sentence", verify=3)
    assert e.verified is not None
    assert len(proxy.seen) == 1 + len(e.verified.calls) <= 4
    assert e.verified.stopped == ""
    assert all(call.after for call in e.verified.calls)
    assert e.verified.stable is not False, "greedy, it repeats itself"


@pytest.mark.parametrize(
    "fault", [busy(429), busy(500), slow(5.0), cut], ids=["429", "500", "slow", "cut"]
)
def test_faults_on_the_way_to_it_are_survived(proxy: Proxy, model: str, fault: Any) -> None:
    proxy.faults = [fault]
    e = ask(proxy, model, timeout=4.0, sampling={"temperature": 0, "max_tokens": 4}, on_text=print)
    assert e.output
    assert len(proxy.seen) == 2
    assert e.config["answer"]["retries"] == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (raw(200, '{"choices": [{'), "other than a Chat Completions answer"),
        (cut_after('{"id": "c", "cho'), "cannot be reached"),
    ],
    ids=["malformed", "cut"],
)
def test_faults_that_are_not_are_told(
    proxy: Proxy, model: str, fault: Any, message: str, tmp_path: Path
) -> None:
    proxy.faults = [fault]
    with pytest.raises(ModelError, match=message):
        ask(proxy, model, retries=0)
    assert len(proxy.seen) == 1
    assert not list(tmp_path.rglob("*.json"))


def test_what_the_server_itself_refuses(proxy: Proxy, model: str) -> None:
    with pytest.raises(ModelError, match=r"answered 400: Server is pinned to .*requested 'other'"):
        ask(proxy, "other", surrogate=model)
    assert len(proxy.seen) == 1


def test_tool_calls_and_results_reach_it_and_are_explained(proxy: Proxy, model: str) -> None:
    call = {"name": "find", "arguments": json.dumps({"place": "Kessel"})}
    chat = [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": [{"type": "text", "text": "Where is Kessel?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Kessel lies on the river Dray."},
    ]
    e = ropelime.ask(
        messages=chat,
        model=model,
        surrogate=model,
        base_url=proxy.url,
        sampling={"temperature": 0, "max_tokens": 16},
        **{**QUICK, "features": "message"},
    )
    assert len(proxy.seen) == 1
    assert [f.text for f in e.features] == [
        "You answer in one short sentence.",
        "Where is Kessel?",
        'find({"place": "Kessel"})',
        "Kessel lies on the river Dray.",
    ]


def test_the_command_against_a_real_server(
    proxy: Proxy, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, text in enumerate(example.CONTEXT):
        (tmp_path / f"{number}.txt").write_text(text)
    files = [str(tmp_path / f"{number}.txt") for number in range(len(example.CONTEXT))]
    proxy.faults = [busy(503)]
    asked = ["ask", example.QUESTION, "--context", *files, "--model", model, "--surrogate", model]
    how = ["--base-url", proxy.url, "--sampling", "temperature=0", "max_tokens=24"]
    method = ["--sampler", "leave-one-out", "--features", "document"]
    assert main([*asked, *how, *method, "--json", str(tmp_path / "why.json")]) == 0
    out, err = capsys.readouterr()
    e = ropelime.load(tmp_path / "why.json")
    assert err.startswith(e.output)
    assert f"answered after 1 failed try · {e.config['answer']['usage']['prompt_tokens']} tokens" in err
    assert "the 5 largest weights" in out
    assert len(proxy.seen) == 2
    assert SECRET not in out + err


def test_a_batch_against_a_real_server(proxy: Proxy, model: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    facts = "Kessel lies on the river Dray. The town is famous for its blue pottery."
    questions: list[dict[str, Any]] = [
        {"context": [facts, "Lind has a shop."], "question": "What is Kessel famous for?"},
        {"prompt": f"{facts} Which river is it?"},
        {"messages": [{"role": "user", "content": f"{facts} Is it a town?"}]},
        {"prompt": "Too short"},
        {"id": "given", "prompt": f"{facts} Where?", "output": "On the Dray."},
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in questions))
    proxy.faults = [busy(429), cut]
    how = ["--model", model, "--base-url", proxy.url, "--sampling", "temperature=0", "max_tokens=8"]
    command = ["batch", str(source), str(target), *how, "--surrogate", model, "--concurrency", "2"]
    command += ["--sampler", "leave-one-out", "--quiet"]
    assert main(command) == 0
    found = {row["id"]: row for row in rows(target)}
    assert len(found) == 5
    assert len(proxy.seen) == 5, "three questions, and two of them again"
    for name in ("line 1", "line 2", "line 3"):
        row = found[name]
        assert row["error"] is None
        assert row["answer"]["finish_reason"] in ("stop", "length")
        assert row["output"]
        assert sum(f["normalized_weight"] for f in row["features"]) == pytest.approx(1, abs=1e-4)
    assert sum(found[f"line {n}"]["answer"]["retries"] for n in (1, 2, 3)) == 2
    assert "at least two" in found["line 4"]["error"]
    assert "answer" not in found["given"]
    target.unlink()
    assert main(command) == 0
    assert len(proxy.seen) == 5, "nothing is paid twice"
    assert {row["id"]: row["output"] for row in rows(target) if not row["error"]} == {
        name: row["output"] for name, row in found.items() if not row["error"]
    }
    assert SECRET not in target.read_text()
