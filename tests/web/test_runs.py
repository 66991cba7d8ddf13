"""Runs of agents on the server: stored, explained step by step, bounded, deleted for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import trace_samples
from ropelime.web.service import Service
from web_server import PLAIN, finished, live, settings, wait

RUN = {"name": "bills.json", "text": json.dumps(trace_samples.openai())}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Service]]:
    with live(settings(tmp_path_factory.mktemp("history"))) as found:
        yield found


@pytest.fixture
def client(server: tuple[httpx.Client, Service]) -> httpx.Client:
    return server[0]


def stored(client: httpx.Client, sent: dict[str, Any] = RUN) -> dict[str, Any]:
    answer = client.post("/api/runs", json=sent)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def explained(client: httpx.Client, run: str, step: int, **options: Any) -> dict[str, Any]:
    answer = client.post(f"/api/runs/{run}/steps/{step}", json=options)
    assert answer.status_code == 202, answer.text
    return wait(client, answer.json()["id"])


def test_a_run_is_stored_and_its_steps_are_explained(client: httpx.Client) -> None:
    run = stored(client)
    summary = run["summary"]
    assert (summary["name"], summary["steps"], summary["models"]) == ("bills.json", 3, 2)
    assert [step["kind"] for step in run["view"]["steps"]] == ["model", "tool", "model"]
    assert [step["why"] for step in run["view"]["steps"]] == [None] * 3
    assert client.get("/api/runs").json()["items"][0] == summary

    job = explained(client, summary["id"], 3)
    assert job["state"] == "done", job
    found = client.get(f"/api/runs/{summary['id']}").json()
    assert found["explained"] == {"3": job["id"]}
    why = found["view"]["steps"][2]["why"]
    (decision,) = why["decisions"]
    shares = {each["decider"]: each["share"] for each in decision["influences"]}
    assert set(shares) == {"system", "user", "own", "tool"}
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(decision["shares"]) == pytest.approx(1, abs=1e-4)
    result = why["messages"][3]
    assert (result["role"], result["name"], result["from"]) == ("tool", trace_samples.TOOL, 1)
    text = "".join(piece for piece, _ in found["view"]["texts"][result["text"]])
    assert text == trace_samples.RESULT

    kept = client.get(f"/api/explanations/{job['id']}").json()
    assert kept["summary"]["preset"] == "instant", "the preset of steps"
    assert kept["request"]["messages"][2]["tool_calls"], "and it can be sent again"
    page = client.get(f"/api/runs/{summary['id']}/run.html")
    assert "attachment" in page.headers["content-disposition"]
    assert "Content-Security-Policy" in page.text


def test_options_of_a_step_are_those_of_any_explanation(client: httpx.Client) -> None:
    run = stored(client)["summary"]["id"]
    job = explained(client, run, 1, preset="evidence", features="message", surrogate="tiny")
    assert job["state"] == "done", job
    kept = client.get(f"/api/explanations/{job['id']}").json()["summary"]
    assert (kept["preset"], kept["features"], kept["count"]) == ("evidence", "message", 2)
    assert client.post(f"/api/runs/{run}/steps/1").status_code == 202, "and no body is needed"


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("steps/2", {}, 422, "Steps that can: 1, 3"),
        ("steps/9", {}, 422, "There is no step 9"),
        ("steps/0", {}, 422, "greater than or equal to 1"),
        ("steps/1", {"prompt": "x"}, 422, "prompt"),
        ("steps/1", {"surrogate": "other"}, 422, "no surrogate of that name"),
        ("steps/1", {"budget": 10**6}, 422, "at most 1,000"),
    ],
)
def test_what_is_wrong_with_a_step_is_named(
    client: httpx.Client, path: str, body: Any, status: int, words: str
) -> None:
    run = stored(client)["summary"]["id"]
    answer = client.post(f"/api/runs/{run}/{path}", json=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_unknown_runs_are_not_found(client: httpx.Client) -> None:
    name = "0" * 32
    for path in (f"/api/runs/{name}", f"/api/runs/{name}/run.html"):
        assert client.get(path).status_code == 404
    assert client.post(f"/api/runs/{name}/steps/1", json={}).status_code == 404
    assert client.delete(f"/api/runs/{name}").status_code == 404


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"name": "x.json", "text": "no json"}, "x.json is not JSON"),
        ({"name": "x.json", "text": '{"a": 1}'}, "x.json is not a trace"),
        ({"name": "x.json", "text": ""}, "empty"),
        ({"name": "x.json", "text": "[" * 5000}, "nested too deeply"),
        ({"name": "x.json"}, "text: It is missing"),
        ({"name": 1, "text": "[]"}, "valid string"),
    ],
)
def test_what_is_not_a_run_is_refused(client: httpx.Client, sent: Any, words: str) -> None:
    answer = client.post("/api/runs", json=sent)
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["detail"]
    assert answer.json()["errors"]


def test_a_run_that_would_fill_the_memory_is_refused(client: httpx.Client) -> None:
    """Each message of the assistant is a step, which is given all messages before it."""
    text = json.dumps([{"role": "assistant", "content": "a"}] * 5000)
    answer = client.post("/api/runs", json={"name": "many.json", "text": text})
    assert answer.status_code == 422
    assert "too many messages" in answer.json()["detail"]
    text = json.dumps({"messages": json.dumps([{"role": "assistant", "content": "a"}] * 5000)})
    answer = client.post("/api/runs", json={"name": "many.json", "text": text})
    assert "too many messages" in answer.json()["detail"], "also as a text in JSON"
    text = json.dumps([{"role": "assistant", "content": "a"}] * 2500)
    answer = client.post("/api/runs", json={"name": "many.json", "text": text})
    assert "at most 2,000" in answer.json()["detail"]


def test_a_run_that_would_fill_the_page_is_refused(client: httpx.Client) -> None:
    """A text that is stored once may be the output of many steps."""
    said = {"choices": [{"message": {"role": "assistant", "content": "attachment://a"}}]}
    run = {"id": 1, "epoch": 1, "attachments": {"a": "word " * 20_000}}
    run["events"] = [{"event": "model", "input": "Hi.", "output": said}] * 200
    answer = client.post("/api/runs", json={"name": "wide.json", "text": json.dumps(run)})
    assert answer.status_code == 422
    assert "write 20,000,000 characters" in answer.json()["detail"]


def test_the_limits_of_a_prompt_hold_for_steps(tmp_path: Path) -> None:
    with live(settings(tmp_path, characters=60)) as (client, _):
        run = stored(client)["summary"]["id"]
        answer = client.post(f"/api/runs/{run}/steps/3", json={})
        assert answer.status_code == 422
        assert "at most 60" in answer.json()["detail"]


def test_a_deleted_run_takes_its_explanations_with_it(tmp_path: Path) -> None:
    with live(settings(tmp_path)) as (client, service):
        run = stored(client)["summary"]["id"]
        steps = [explained(client, run, number)["id"] for number in (1, 3)]
        other = finished(client, PLAIN)["id"]
        assert client.delete(f"/api/explanations/{steps[0]}").status_code == 204
        assert list(client.get(f"/api/runs/{run}").json()["explained"]) == ["3"]
        assert client.delete(f"/api/runs/{run}").status_code == 204
        assert [row.id for row in service.history.page(9)] == [other]
        assert client.get("/api/runs").json()["items"] == []
        assert b"Holm" not in service.history.path.read_bytes(), "nothing of it is left in the file"


def test_the_history_can_be_searched(tmp_path: Path) -> None:
    with live(settings(tmp_path)) as (client, _):
        first = finished(client, {**PLAIN, "output": "STRASSE der\n  Lampen."})["id"]
        chunks = [{"text": "Paris lies there.", "source": "Guide.pdf"}, "Berlin is large."]
        second = finished(client, {"context": chunks, "output": "Paris."})["id"]

        def found(words: str) -> list[str]:
            page = client.get("/api/explanations", params={"words": words}).json()
            return [each["id"] for each in page["items"]]

        assert found("") == [second, first]
        assert found("straße der lampen") == [first]
        assert found("guide.PDF") == [second], "the names of sources"
        assert found("seine") == [first]
        assert found("surrogate") == [], "but not the names of fields"
        assert found("100%' OR 1=1 --") == []
        assert client.get("/api/explanations", params={"words": "x" * 201}).status_code == 422
