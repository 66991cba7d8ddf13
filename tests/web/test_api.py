"""The API over a real socket: what it makes, what it refuses and how it says so."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.exceptions import RequestValidationError

import ropelime
from ropelime.method.schedule import Budget
from ropelime.options import PRESETS, Options
from ropelime.text import features, segmentation
from ropelime.web import api
from ropelime.web import settings as web_settings
from ropelime.web.schema import ExplainRequest, SentenceView, parsed
from ropelime.web.service import Service, snippet
from toy import invented
from web_server import (
    CHAT,
    DOCUMENTS,
    PLAIN,
    Slow,
    finished,
    live,
    settings,
    tiny_folder,
    until,
    wait,
)

Live = tuple[httpx.Client, Service]
MANY = {**PLAIN, "prompt": "One is here. " * 40, "features": "word"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(settings(tmp_path_factory.mktemp("history"))) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Live) -> httpx.Client:
    return server[0]


@pytest.fixture(scope="module")
def made(client: httpx.Client) -> str:
    """The name of an explanation of the documents."""
    state = finished(client, DOCUMENTS)
    assert state["state"] == "done", state
    return str(state["id"])


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[httpx.Client, Service, Slow]]:
    """A server with room for two and a model that takes its time."""
    with live(settings(tmp_path, waiting=2, grace=0.2)) as (client, service):
        model = Slow()
        service._loaded["tiny"] = model
        yield client, service, model


def refusal(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == {"detail", "errors"}
    return body


def raw(client: httpx.Client, line: str, headers: dict[str, str]) -> int:
    """The status that a request gets which a decent client would not send."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), 10) as plug:
        plug.sendall(f"{line} HTTP/1.1\r\n{head}\r\n".encode())
        return int(plug.recv(1000).split(b" ")[1])


# --- what it makes


@pytest.mark.parametrize("request_", [PLAIN, DOCUMENTS, CHAT], ids=["plain", "documents", "chat"])
def test_it_is_what_the_library_makes(client: httpx.Client, request_: dict[str, Any]) -> None:
    state = finished(client, request_)
    assert (state["state"], state["error"]) == ("done", None)
    assert state["done"] == state["total"] > 0
    given = client.get(f"/api/explanations/{state['id']}/explanation.json")
    expected = ropelime.explain(**{**request_, "surrogate": str(tiny_folder())}, progress=False)
    ours, theirs = given.json(), json.loads(expected.to_json())
    assert ours.pop("config")["surrogate"] == {
        **theirs.pop("config")["surrogate"],
        "name": "tiny",  # and not where it lies
    }
    assert ours == theirs


def test_sentences_are_ranked_before_the_explanation_is_made(client: httpx.Client) -> None:
    answer = client.post("/api/jobs?stream=true", json=DOCUMENTS)
    state = wait(client, answer.json()["id"])
    given = {**DOCUMENTS, "surrogate": str(tiny_folder()), "stream": True, "progress": False}
    *ranked, whole = ropelime.explain(**given)
    assert [each["text"] for each in state["sentences"]] == ["Paris lies there.", "It is large."]
    for shown, sentence in zip(state["sentences"], ranked, strict=True):
        top = [(r.text, r.normalized_weight) for r in sentence.explanation.top(3)]
        assert [(each["text"], each["normalized_weight"]) for each in shown["top"]] == top
    made = client.get(f"/api/explanations/{state['id']}/explanation.json").json()
    assert made["weights"] == json.loads(whole.to_json())["weights"], "and then it is refined"
    assert finished(client, DOCUMENTS)["sentences"] == [], "only for those who watch"


OPTIONS: dict[str, tuple[Any, Any]] = {  # a value to send, and what the explanation records of it
    "features": ([[0, 32], [32, 54], [54, 78]], "spans"),
    "preset": ("faithful", "faithful"),
    "sampler": ("bernoulli:16:0.4", {"name": "bernoulli", "count": 16, "p": 0.4}),
    "target": ("logit", {"name": "logit"}),
    "kernel": ("cosine:0.5", {"name": "cosine", "width": 0.5}),
    "regressor": ("ridge:2", {"name": "ridge", "alpha": 2}),
    "ablation": ("placeholder:...", "placeholder:..."),
    "scoring": ("exact", "exact"),
    "budget": ("900 tokens", "900 tokens"),
    "seed": (7, 7),
    "also": ("faithful", "faithful"),
    "instead_of": ("The capital is Rome.", "The capital is Rome."),
    "interactions": (True, True),
}


def test_the_api_has_the_options_of_the_library(client: httpx.Client) -> None:
    names = [option.name for option in dataclasses.fields(Options)]
    assert list(OPTIONS) == names
    assert [option["name"] for option in client.get("/api/config").json()["options"]] == names
    schema = client.get("/openapi.json").json()["components"]["schemas"]["ExplainRequest"]
    given = {"prompt", "context", "question", "messages", "output", "surrogate"}
    assert set(schema["properties"]) - given == set(names)
    for option in dataclasses.fields(Options):
        about = schema["properties"][option.name]
        assert about["description"] == option.metadata["help"]
        assert about.get("default") == option.default


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_reaches_the_explanation(client: httpx.Client, name: str) -> None:
    sent, recorded = OPTIONS[name]
    state = finished(client, {**PLAIN, name: sent})
    assert (state["state"], state["error"]) == ("done", None)
    found = client.get(f"/api/explanations/{state['id']}/explanation.json").json()
    config = found["config"]
    assert (found["also"]["config"]["preset"] if name == "also" else config[name]) == recorded
    expected = ropelime.explain(
        **{**PLAIN, name: sent, "surrogate": str(tiny_folder())}, progress=False
    ).to_dict()
    for key in ("weights", "cost", "interactions"):
        assert found[key] == json.loads(json.dumps(expected[key])), key
    kept = client.get(f"/api/explanations/{state['id']}").json()
    assert kept["request"][name] == sent
    assert kept["summary"]["preset"] == config["preset"]
    assert kept["summary"]["scoring"] == config["scoring"]


@pytest.mark.parametrize("form", [9, "9", "40 masks", "900 tokens", "5 seconds", "auto"])
def test_a_budget_comes_in_all_forms(client: httpx.Client, form: int | str) -> None:
    state = finished(client, {**PLAIN, "budget": form})
    assert state["state"] == "done", state
    found = client.get(f"/api/explanations/{state['id']}/explanation.json").json()
    assert found["config"]["budget"] == str(Budget.of(form))


def test_chunks_may_name_their_source(client: httpx.Client) -> None:
    chunks = ["One is here.", {"text": "Two is there.", "source": "b.pdf", "page": 3}]
    state = finished(client, {**DOCUMENTS, "context": chunks})
    assert state["state"] == "done", state
    found = client.get(f"/api/explanations/{state['id']}").json()
    assert found["request"]["context"] == chunks
    assert "b.pdf, page 3" in json.dumps(found["view"])


def test_messages_may_hold_tool_calls_and_parts(client: httpx.Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "map"}'}}
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Where?"}, {"type": "text", "text": "Say."}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "In Paris."},
        {"role": "assistant", "function_call": {"name": "end", "arguments": "{}"}},
    ]
    state = finished(client, {**CHAT, "messages": messages})
    assert state["state"] == "done", state
    found = client.get(f"/api/explanations/{state['id']}").json()
    assert found["request"]["messages"] == messages, "as they were sent"
    kept = client.get(f"/api/explanations/{state['id']}/explanation.json").json()
    expected = ropelime.explain(
        messages=messages, output=CHAT["output"], features="message",
        surrogate=str(tiny_folder()), progress=False,
    )  # fmt: skip
    assert kept["weights"] == list(expected.weights)
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    body = refusal(client.post("/api/jobs", json={**CHAT, "messages": image}), 422)
    assert body["errors"][0]["field"] == "messages"
    assert "image_url, and only text can be explained" in body["detail"]


def test_several_surrogates_are_averaged(tmp_path: Path) -> None:
    models = {"tiny": str(tiny_folder()), "twin": str(tiny_folder())}
    with live(settings(tmp_path, surrogates=models)) as (client, _):
        state = finished(client, {**PLAIN, "surrogate": ["twin", "tiny"]})
        assert state["state"] == "done", state
        found = client.get(f"/api/explanations/{state['id']}").json()
        assert found["summary"]["surrogate"] == found["request"]["surrogate"] == ["twin", "tiny"]
        kept = client.get(f"/api/explanations/{state['id']}/explanation.json").json()
        assert [each["name"] for each in kept["config"]["surrogates"]] == ["twin", "tiny"]
        state = finished(client, {key: PLAIN[key] for key in ("prompt", "output")})
        found = client.get(f"/api/explanations/{state['id']}").json()
        assert found["summary"]["surrogate"] == ["tiny"], "the first is the default"
        assert found["request"]["surrogate"] == "tiny"


def test_an_explanation_can_be_looked_at(client: httpx.Client, made: str) -> None:
    found = client.get(f"/api/explanations/{made}").json()
    assert found["summary"]["id"] == made
    assert found["summary"]["prompt"] == DOCUMENTS["question"]
    assert found["summary"]["count"] == 2
    assert {k: v for k, v in found["request"].items() if k in DOCUMENTS} == DOCUMENTS
    assert len(found["view"]["features"]) == 2
    kept = client.get(f"/api/explanations/{made}/explanation.json").json()
    assert found["view"]["signals"].keys() == kept["signals"].keys() == {"shift", "words", "question"}
    for name, own in kept["signals"].items():
        assert found["view"]["signals"][name] == pytest.approx(own, abs=1e-5)
    assert found["verdicts"] == kept["trust"]["verdicts"]
    assert [verdict["name"] for verdict in found["verdicts"]] == ["rests", "cause", "understood"]
    shown = found["view"]["answer"]["grounding"]
    assert " ".join(each["text"] for each in found["grounding"]) == DOCUMENTS["output"]
    for sentence, drawn in zip(found["grounding"], shown, strict=True):
        assert drawn["grounded"] is (sentence["probability"] >= 0.5)
        assert drawn["grounded"] or sentence["sources"] == []


def test_the_sources_of_a_sentence_are_named() -> None:
    first, *others = map(SentenceView.of, invented().grounding)
    (source,) = first.sources
    assert (source.index, source.start, source.end) == (0, 0, 28)
    assert [sentence.sources for sentence in others] == [[], []]


def test_a_span_of_the_answer_needs_no_new_scores(
    client: httpx.Client, made: str, tmp_path: Path
) -> None:
    file = tmp_path / "e.json"
    file.write_bytes(client.get(f"/api/explanations/{made}/explanation.json").content)
    expected = ropelime.load(file).for_output(0, 17)
    found = client.get(f"/api/explanations/{made}/span", params={"start": 0, "end": 17}).json()
    assert found["text"] == "Paris lies there."
    ranking, top = found["ranking"], expected.top()
    assert [r["normalized_weight"] for r in ranking] == [t.normalized_weight for t in top]
    assert [r["weight"] for r in ranking] == [t.weight for t in top]
    signals = [{name: own[t.index] for name, own in expected.signals.items()} for t in top]
    assert [r["signals"] for r in ranking] == signals
    for start, end in [(5, 5), (17, 0), (0, 1000)]:
        answer = client.get(f"/api/explanations/{made}/span", params={"start": start, "end": end})
        assert "does not lie in the explained output" in refusal(answer, 422)["detail"]


def test_downloads_are_files_and_no_pages(client: httpx.Client, made: str) -> None:
    report = client.get(f"/api/explanations/{made}/report.html")
    assert report.text.startswith("<!doctype html>")
    for answer, ending in (
        (report, "html"),
        (client.get(f"/api/explanations/{made}/explanation.json"), "json"),
    ):
        name = f'attachment; filename="ropelime-{made[:8]}.{ending}"'
        assert answer.headers["content-disposition"] == name
        assert "sandbox" in answer.headers["content-security-policy"]


def test_the_history_is_read_in_pages(client: httpx.Client, made: str) -> None:
    seen: list[str] = []
    before: int | None = None
    while True:
        options = {"limit": 1} if before is None else {"limit": 1, "before": before}
        page = client.get("/api/explanations", params=options).json()
        seen += [item["id"] for item in page["items"]]
        before = page["next"]
        if before is None:
            break
    assert made in seen
    assert len(seen) == len(set(seen))
    assert seen == [i["id"] for i in client.get("/api/explanations?limit=200").json()["items"]]


def test_an_explanation_can_be_deleted(client: httpx.Client) -> None:
    name = finished(client, PLAIN)["id"]
    assert client.delete(f"/api/explanations/{name}").status_code == 204
    refusal(client.delete(f"/api/explanations/{name}"), 404)
    for path in ("", "/span?start=0&end=1", "/explanation.json", "/report.html"):
        refusal(client.get(f"/api/explanations/{name}{path}"), 404)


def test_a_damaged_explanation_is_reported_in_the_log_only(tmp_path: Path) -> None:
    with live(settings(tmp_path)) as (client, service):
        name = finished(client, PLAIN)["id"]
        with sqlite3.connect(service.history.path) as file:
            file.execute("UPDATE explanations SET explanation = x'00'")
        file.close()
        answer = client.get(f"/api/explanations/{name}")
        assert refusal(answer, 500)["detail"] == "Internal error; the server's log has the details."


def test_a_damaged_entry_is_listed_apart(tmp_path: Path) -> None:
    with live(settings(tmp_path)) as (client, service):
        names = [finished(client, PLAIN)["id"] for _ in range(3)]
        for name, column in ((names[0], "'{}'"), (names[1], "'{'")):
            with sqlite3.connect(service.history.path) as file:
                file.execute(f"UPDATE explanations SET summary = {column} WHERE id = ?", (name,))
            file.close()
        page = client.get("/api/explanations").json()
        assert [item["id"] for item in page["items"]] == names[2:]
        assert page["damaged"] == [names[1], names[0]]
        for name in page["damaged"]:
            refusal(client.get(f"/api/explanations/{name}"), 500)
            assert client.delete(f"/api/explanations/{name}").status_code == 204
        assert client.get("/api/explanations").json()["damaged"] == []


def test_the_stream_tells_the_whole_story(client: httpx.Client) -> None:
    name = client.post("/api/jobs", json=PLAIN).json()["id"]
    with client.stream("GET", f"/api/jobs/{name}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    assert events[-1]["state"] == "done"
    assert {event["id"] for event in events} == {name}


def test_the_configuration_offers_what_there_is(client: httpx.Client) -> None:
    offered = client.get("/api/config").json()
    assert offered["surrogates"] == ["tiny"]
    assert offered["limits"]["features"] == 500
    options = {option["name"]: option for option in offered["options"]}
    assert options["preset"]["choices"] == list(PRESETS)
    assert options["features"]["default"] == "sentence"
    kinds = {name: option["kind"] for name, option in options.items()}
    assert {name for name, kind in kinds.items() if kind == "choice"} == {"preset", "scoring", "also"}
    assert (kinds["seed"], kinds["interactions"], kinds["budget"]) == ("number", "switch", "text")
    assert str(tiny_folder()) not in client.get("/api/config").text


# --- what it refuses


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"prompt": "  "}, "prompt", "empty"),
        ({"prompt": "a\0b. c."}, "prompt", "NUL"),
        ({"prompt": None}, "prompt", "exactly one of"),
        ({"context": ["a", "b"]}, "context", "exactly one of"),
        ({"question": "Why?"}, "question", "question goes with context"),
        ({"output": ""}, "output", "The answer is empty"),
        ({"features": "document"}, "features", "needs context"),
        ({"features": "verse"}, "features", "Input should be"),
        ({"surrogate": "/etc/passwd"}, "surrogate", "no surrogate of that name. It has: tiny."),
        ({"surrogate": ["tiny", "gpt2"]}, "surrogate", "no surrogate of that name. It has: tiny."),
        ({"surrogate": []}, "surrogate", "at least one"),
        ({"surrogate": ["tiny", "tiny"]}, "surrogate", "none of them twice"),
        ({"surrogate": 7}, "surrogate", "a valid string, or a valid list"),
        ({"budget": 0}, "budget", "at least 1, not 0"),
        ({"budget": 1001}, "budget", "at most 1,000"),
        ({"budget": "1,001 masks"}, "budget", "at most 1,000"),
        ({"budget": "1801 seconds"}, "budget", "at most 1,800 seconds"),
        ({"budget": 7.5}, "budget", "a valid integer, or a valid string"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"sampler": "bernoulli:2000"}, "sampler", "at most 1,000"),
        ({"sampler": "mixed:hadamard/1_000_000"}, "sampler", "at most 1,000"),
        ({"sampler": "mixed:" + "+".join(["hadamard"] * 50)}, "sampler", "at most 200 characters"),
        ({"regressor": "bayes-ridge:1000"}, "regressor", "at most 20 times"),
        ({"model": "tiny"}, "model", "not permitted"),
        ({"prompt": "a" * 500_001}, "prompt", "500,001 characters"),
    ],
)
def test_a_wrong_field_is_named(
    client: httpx.Client, change: dict[str, Any], field: str, words: str
) -> None:
    body = refusal(client.post("/api/jobs", json={**PLAIN, **change}), 422)
    assert [e["field"] for e in body["errors"]] == [field]
    assert words in body["errors"][0]["message"]
    assert len(body["detail"]) < 2100, "what was sent is not sent back"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("features", "verse", "Input should be 'token'"),
        ("features", [[0, 5, 9]], "must be (start, end)"),
        ("features", [[0, 5], [3, 9]], "overlaps"),
        ("features", [[0, 9999], [3, 9]], "does not lie in the prompt"),
        ("preset", "proof", "Input should be 'evidence'"),
        ("sampler", "leave-one", "Did you mean 'leave-one-out'"),
        ("target", "nil", "Did you mean 'nll'"),
        ("kernel", "cosine:0", "width of cosine must be above 0"),
        ("regressor", "ridge:many", "alpha of ridge must be above 0, not 'many'"),
        ("ablation", "blank", "Known: delete, in-place, placeholder"),
        ("scoring", "quick", "Input should be 'cached' or 'exact'"),
        ("budget", "many", "'20000 tokens' or '5 seconds'"),
        ("seed", "7", "a valid integer"),
        ("also", "proof", "Input should be 'evidence'"),
        ("instead_of", " ", "instead_of is empty"),
        ("interactions", "yes", "a valid boolean"),
    ],
)
def test_a_wrong_option_is_named(client: httpx.Client, name: str, value: Any, words: str) -> None:
    body = refusal(client.post("/api/jobs", json={**PLAIN, name: value}), 422)
    assert [e["field"] for e in body["errors"]] == [name]
    assert words in body["errors"][0]["message"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"prompt": "One sentence."}, "features", "at least two"),
        ({"prompt": "It is. " * 501}, "features", "501 features"),
        ({"ablation": "placeholder:" + "x" * 200_000}, "ablation", "600,000 characters"),
    ],
)
def test_what_the_cut_text_shows_fails_the_job(
    client: httpx.Client, change: dict[str, Any], field: str, words: str
) -> None:
    state = finished(client, {**PLAIN, **change})
    assert (state["state"], state["field"]) == ("failed", field)
    assert words in state["error"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"scoring": "cached", "ablation": "in-place"}, "scoring", "cannot honour"),
        ({"target": "contrast"}, "instead_of", "go together"),
        ({"target": "nll", "instead_of": "Rome."}, "instead_of", "go together"),
        ({"features": "message"}, "features", "needs messages"),
    ],
)
def test_options_that_do_not_fit_together_are_named(
    client: httpx.Client, change: dict[str, Any], field: str, words: str
) -> None:
    body = refusal(client.post("/api/jobs", json={**PLAIN, **change}), 422)
    assert [e["field"] for e in body["errors"]] == [field]
    assert words in body["errors"][0]["message"]


def test_the_document_that_is_wrong_is_named(client: httpx.Client) -> None:
    body = refusal(client.post("/api/jobs", json={**DOCUMENTS, "context": ["a", " "]}), 422)
    assert body["errors"] == [
        {
            "field": "context.1",
            "message": "context[1] is empty. Pass the text that you want explained.",
        }
    ]
    for wrong, words in (
        (7, "a valid string, or a valid dictionary"),
        ({"page": 1}, "text is missing"),
    ):
        body = refusal(client.post("/api/jobs", json={**DOCUMENTS, "context": ["a", wrong]}), 422)
        assert [e["field"] for e in body["errors"]] == ["context.1"]
        assert words in body["errors"][0]["message"]
    chat = {**CHAT, "messages": [{"role": "user"}]}
    body = refusal(client.post("/api/jobs", json=chat), 422)
    assert body["errors"][0]["field"] == "messages.0.content"


MESSAGE = b'{"output": "a", "messages": [{"role": "user", "content": "One. Two.", "x": %s}]}'


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b"\xff\xfe", 422),
        (b'{"output": NaN, "prompt": 1e999}', 422),
        (b'{"prompt": "One. Two.", "output": "\\ud800"}', 422),
        (b'{"prompt": "One. Two.", "output": "a", "surrogate": "\\ud800"}', 422),
        (b'{"prompt": "One. Two.", "output": "a", "sampler": "\\ud800"}', 422),
        (b'{"prompt": "One. Two.", "output": "a", "ablation": "placeholder:\\ud800"}', 422),
        (b'{"prompt": "One. Two.", "output": "a", "\\ud800": 1}', 422),
        (MESSAGE % b"NaN", 422),
        (MESSAGE % b'{"\\ud800": "\\udfff"}', 422),
        (MESSAGE % (b"[" * 200 + b"]" * 200), 422),
        (b"[" * 100_000, 400),  # deeper, and a number longer, than the parser takes
        (b'{"seed": ' + b"9" * 10_000 + b"}", 400),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_broken_bodies_are_refused(client: httpx.Client, body: bytes, status: int) -> None:
    answer = client.post("/api/jobs", content=body, headers={"content-type": "application/json"})
    refusal(answer, status)


def wrong(template: str, item: str) -> str:
    """A body of almost two megabytes with that item again and again."""
    return template.replace("X", ",".join([item] * (1_800_000 // (len(item) + 1))))


WRONG = {
    "chunks": wrong('{"output": "a", "context": [X]}', "1"),
    "keys of chunks": wrong('{"output": "a", "context": [X]}', "{}"),
    "messages": wrong('{"output": "a", "messages": [X]}', "{}"),
    "parts": wrong('{"output": "a", "messages": [{"role": "user", "content": [X]}]}', "1"),
    "calls": wrong('{"output": "a", "messages": [{"role": "user", "tool_calls": [X]}]}', "1"),
    "spans": wrong('{"output": "a", "prompt": "a", "features": [X]}', "1"),
    "ends": wrong('{"output": "a", "prompt": "a", "features": [[X]]}', '"a"'),
    "surrogates": wrong('{"output": "a", "surrogate": [X]}', "1"),
    "fields": f'{{"output": "a", {",".join(f"{chr(34)}a{i}{chr(34)}: 1" for i in range(150_000))}}}',
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_the_first_errors_are_enough(client: httpx.Client, body: str) -> None:
    """A million wrong items would take half a gigabyte to list."""
    with pytest.raises(RequestValidationError) as raised:
        parsed(body.encode(), ExplainRequest)
    assert 1 <= len(raised.value.errors()) <= 5
    headers = {"content-type": "application/json"}
    errors = refusal(client.post("/api/jobs", content=body, headers=headers), 422)["errors"]
    assert 1 <= len(errors) <= 5


def test_bodies_are_parsed_beside_the_event_loop(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def parse(body: bytes, model: Any) -> Any:
        threads.append(threading.current_thread().name)
        return parsed(body, model)

    monkeypatch.setattr(api, "parsed", parse)
    assert client.post("/api/jobs", json=PLAIN).status_code == 202
    assert threads
    assert "AnyIO worker" in threads[0]


def test_only_json_is_read(client: httpx.Client) -> None:
    """A form of a foreign page can send text, and nothing else without asking."""
    body = json.dumps(PLAIN).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        refusal(client.post("/api/jobs", content=body, headers={"content-type": kind}), 415)
    refusal(client.post("/api/jobs", content=body), 415)
    named = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/api/jobs", content=body, headers=named).status_code == 202


def test_large_requests_are_refused(client: httpx.Client) -> None:
    large = b'{"prompt": "' + b"a" * 2_000_001 + b'"}'
    headers = {"content-type": "application/json"}
    body = refusal(client.post("/api/jobs", content=large, headers=headers), 413)
    assert "2,000,000 bytes" in body["detail"]
    pieces = (large[i : i + 50_000] for i in range(0, len(large), 50_000))
    refusal(client.post("/api/jobs", content=pieces, headers=headers), 413)
    huge = {**headers, "content-length": "9" * 30}
    assert raw(client, "POST /api/jobs", {"host": "127.0.0.1", **huge}) in (400, 413)


def test_a_larger_limit_is_kept(tmp_path: Path) -> None:
    with live(settings(tmp_path, request_bytes=20_000_000)) as (client, _):
        answer = client.post("/api/jobs", json={**PLAIN, "prompt": "a" * 17_000_000})
        assert refusal(answer, 422)["errors"][0]["field"] == "prompt", "the body was read to its end"


def test_what_only_the_model_knows_is_refused_by_the_job(tmp_path: Path) -> None:
    with live(settings(tmp_path, features=30, budget=10, answer_tokens=20)) as (client, _):
        tokens = finished(client, {**PLAIN, "features": "token", "prompt": "word " * 60})
        assert (tokens["state"], tokens["field"]) == ("failed", "features")
        budget = finished(client, {**PLAIN, "features": "word", "prompt": "A b c d e f g h. " * 2})
        assert (budget["state"], budget["field"]) == ("failed", "budget")
        assert "Set a budget up to that" in budget["error"]
        answer = finished(client, {**PLAIN, "output": "x" * 200})
        assert (answer["state"], answer["field"]) == ("failed", "output")
        other = finished(client, {**PLAIN, "instead_of": "x" * 200})
        assert (other["state"], other["field"]) == ("failed", "instead_of")
        for change in (
            {"budget": "1000000 tokens"},
            {"budget": "9 seconds", "sampler": "exhaustive", "features": "word", "prompt": "a b c d e"},
        ):
            masks = finished(client, {**PLAIN, **change})
            assert (masks["state"], masks["field"]) == ("failed", "budget"), change
            assert "this server scores at most 10" in masks["error"]
        window = finished(client, {**PLAIN, "prompt": "It is. It " + "b" * 20_000})
        assert (window["state"], window["field"]) == ("failed", "prompt")
        assert "tiny can read 4,096 in all" in window["error"]
        assert str(tiny_folder()) not in window["error"]
        assert client.get("/api/explanations").json()["items"] == []


def test_a_model_that_cannot_be_loaded_keeps_its_place_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret").mkdir()
    models = {"broken": str(tmp_path / "secret")}
    with live(settings(tmp_path / "h", surrogates=models)) as (client, _):
        state = finished(client, {**PLAIN, "surrogate": "broken"})
    assert (state["state"], state["field"]) == ("failed", "surrogate")
    assert state["error"] == "broken could not be loaded; the server's log says why."
    assert "secret has no config.json" in caplog.text


def test_it_stops_when_the_time_is_up(tmp_path: Path) -> None:
    with live(settings(tmp_path, seconds=1)) as (client, service):
        service._loaded["tiny"] = Slow(0.2)
        state = finished(client, MANY)
    assert state["state"] == "failed"
    assert "stopped after 1 seconds" in state["error"]


class Deaf(Slow):
    """A surrogate whose tokenizer does not come to an end."""

    def token_spans(self, prompt: Any) -> Any:
        while True:
            time.sleep(0.01)


def test_a_job_stops_while_it_cuts_its_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropelime.web.service.SOON", 0.1)
    with live(settings(tmp_path, seconds=1)) as (client, service):
        service._loaded["tiny"] = Deaf()
        state = finished(client, PLAIN)
        assert state["state"] == "failed"
        assert "stopped after 1 seconds" in state["error"]
    with live(settings(tmp_path)) as (client, service):
        service._loaded["tiny"] = Deaf()
        name = client.post("/api/jobs", json=PLAIN).json()["id"]
        until(lambda: client.get(f"/api/jobs/{name}").json()["stage"].startswith("scoring"))
        client.delete(f"/api/jobs/{name}")
        assert wait(client, name)["error"] == "Cancelled."


def test_texts_are_not_cut_while_a_request_is_taken(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(text: str) -> Any:
        assert threading.current_thread().name == "ropelime-jobs", "only where it can be stopped"
        return segmentation.words(text)

    monkeypatch.setitem(features._SPLITTERS, "word", cut)
    assert finished(client, {**PLAIN, "features": "word"})["state"] == "done"


def test_thousands_of_blank_messages_do_not_hold_the_queue(client: httpx.Client) -> None:
    blank = [{"role": "user", "content": ""}, {"role": "assistant", "content": " "}] * 7500
    chat = [*blank, {"role": "user", "content": "One is here. Two is there."}]
    state = finished(client, {**CHAT, "messages": chat, "features": "sentence"})
    assert (state["state"], state["field"]) == ("failed", "messages")
    assert "can read 4,096 in all" in state["error"]


def test_what_is_cheap_is_answered_while_all_threads_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, busy = threading.Event(), []

    def page(*_: Any) -> list[Any]:
        busy.append(1)
        gate.wait(120)  # longer than the client waits for any other answer
        return []

    with live(settings(tmp_path)) as (client, service), ThreadPoolExecutor(50) as pool:
        name = finished(client, PLAIN)["id"]
        monkeypatch.setattr(service.history, "page", page)
        limits = httpx.Limits(max_connections=60)
        with httpx.Client(base_url=client.base_url, timeout=120, limits=limits) as many:
            waiting = [pool.submit(many.get, "/api/explanations") for _ in range(50)]
            until(lambda: len(busy) >= 40)  # as many threads as there are
            try:
                assert client.get("/api/config").json()["surrogates"] == ["tiny"]
                assert client.get(f"/api/jobs/{name}").json()["state"] == "done"
                assert client.delete(f"/api/jobs/{name}").status_code == 200
            finally:
                gate.set()
            assert {each.result().status_code for each in waiting} == {200}


def test_a_full_queue_answers_429(slow: tuple[httpx.Client, Service, Slow]) -> None:
    client, _, _ = slow
    first = client.post("/api/jobs", json=MANY).json()["id"]
    until(lambda: client.get(f"/api/jobs/{first}").json()["state"] == "running")
    names = [client.post("/api/jobs", json=PLAIN).json()["id"] for _ in range(2)]
    answer = client.post("/api/jobs", json=PLAIN)
    assert "2 explanations are waiting already" in refusal(answer, 429)["detail"]
    assert answer.headers["retry-after"] == "5"
    refusal(client.post("/api/jobs", json={"wrong": 1}), 429)  # before the body is looked at
    for name in (first, *names):
        client.delete(f"/api/jobs/{name}")
    assert wait(client, first)["state"] == "cancelled"
    assert finished(client, PLAIN)["state"] == "done"


# --- a job can be stopped, and the model is unchanged by it


@pytest.mark.slow
def test_a_cancelled_job_leaves_the_model_as_it_was(
    slow: tuple[httpx.Client, Service, Slow],
) -> None:
    client, _, model = slow
    file = "/api/explanations/{}/explanation.json"
    before = client.get(file.format(finished(client, PLAIN)["id"])).json()
    name = client.post("/api/jobs", json=MANY).json()["id"]
    until(lambda: client.get(f"/api/jobs/{name}").json()["done"] > 0)
    assert client.delete(f"/api/jobs/{name}").status_code == 200
    assert wait(client, name)["error"] == "Cancelled."
    scores = model.scores
    time.sleep(3 * model.pause)
    assert model.scores == scores, "nothing runs any more"
    assert client.get(file.format(finished(client, PLAIN)["id"])).json() == before
    assert len(client.get("/api/explanations").json()["items"]) == 2


def test_a_job_dies_with_its_client(slow: tuple[httpx.Client, Service, Slow]) -> None:
    client, service, model = slow
    name = client.post("/api/jobs", json=MANY).json()["id"]
    with client.stream("GET", f"/api/jobs/{name}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        until(lambda: service.jobs._jobs[name].done)
    job = service.jobs._jobs[name]  # asking through the API would keep it alive
    until(lambda: job.over)
    assert (job.state, job.error) == ("cancelled", "Its client has gone.")
    assert job.done < job.total
    scores = model.scores
    time.sleep(3 * model.pause)
    assert model.scores == scores


def test_too_many_streams_are_refused(tmp_path: Path) -> None:
    with live(settings(tmp_path, streams=1)) as (client, service):
        service._loaded["tiny"] = Slow()
        name = client.post("/api/jobs", json=MANY).json()["id"]
        with client.stream("GET", f"/api/jobs/{name}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            refusal(client.get(f"/api/jobs/{name}/events"), 429)


# --- who may ask


def test_foreign_names_are_refused(client: httpx.Client) -> None:
    own = f"127.0.0.1:{client.base_url.port}"
    for host in (own, "localhost", "localhost:99", "LOCALHOST.", "[::1]:80", "127.0.0.2"):
        assert client.get("/api/config", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost@evil", "a:b", ""):
        for path in ("/", "/api/config", "/openapi.json"):
            assert client.get(path, headers={"host": host}).status_code == 400, host
    assert raw(client, "GET /api/config", {"host": own}) == 200
    assert raw(client, "GET /api/config", {"host": own, "Host": "evil.example"}) == 400
    assert raw(client, "GET /api/config", {}) == 400


def test_an_operator_can_allow_a_name(tmp_path: Path) -> None:
    with live(settings(tmp_path, allowed_hosts=("why.example",))) as (client, _):
        assert client.get("/", headers={"host": "why.example:443"}).status_code == 200
        refusal(client.get("/", headers={"host": "other.example"}), 400)


def test_foreign_pages_change_nothing(client: httpx.Client, made: str) -> None:
    own = str(client.base_url).rstrip("/")
    foreign: list[dict[str, str]] = [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": own.replace("http", "file")},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": own},
    ]
    for headers in foreign:
        refusal(client.post("/api/jobs", json=PLAIN, headers=headers), 403)
        refusal(client.delete(f"/api/explanations/{made}", headers=headers), 403)
        refusal(client.delete(f"/api/jobs/{made}", headers=headers), 403)
    assert client.get(f"/api/explanations/{made}").status_code == 200
    mine = {"origin": own, "sec-fetch-site": "same-origin"}
    assert client.post("/api/jobs", json=PLAIN, headers=mine).status_code == 202
    for answer in (client.get("/api/config"), client.options("/api/jobs", headers=foreign[0])):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    token = "0123456789abcdef-_"
    with live(settings(tmp_path, token=token)) as (client, _):
        assert client.get("/api/config").status_code == 200
        assert finished(client, PLAIN)["state"] == "done"
        name = "0" * 32
        wrong = ["", token, f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}", "Bearer é"]
        for given in wrong:
            headers = {b"authorization": given.encode()}
            for method, path in (
                ("GET", "/api/config"),
                ("POST", "/api/jobs"),
                ("GET", f"/api/jobs/{name}/events"),
                ("GET", "/api/explanations"),
                ("GET", "/api/nothing"),
                ("DELETE", f"/api/explanations/{name}"),
            ):
                answer = client.request(method, path, headers=headers)
                refusal(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/", headers={"authorization": ""}).status_code == 200, "it holds no data"


def test_a_server_without_surrogates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ropelime.InputError, match="at least one surrogate"):
        settings(tmp_path, surrogates={})


def test_no_token_no_other_machine(tmp_path: Path) -> None:
    with pytest.raises(ropelime.InputError, match="a token is required"):
        settings(tmp_path, host="0.0.0.0")
    with pytest.raises(ropelime.InputError, match="at least 16"):
        settings(tmp_path, token="short")
    with pytest.raises(ropelime.InputError, match="is not an address"):
        settings(tmp_path, host="no such host")
    assert [web_settings.is_loopback(h) for h in ("::1", "localhost", "0.0.0.0", "")] == [
        True,
        True,
        False,
        False,
    ]


def test_two_models_need_two_names(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "same").mkdir(parents=True)
    one, two = str(tmp_path / "a" / "same"), str(tmp_path / "b" / "same")
    assert web_settings.labelled(["smollm2", one]) == {"smollm2": "smollm2", "same": one}
    with pytest.raises(ropelime.InputError, match="Two models are called 'same'"):
        web_settings.labelled([one, two])


# --- the page


def test_the_page_runs_nothing_but_its_own_files(client: httpx.Client) -> None:
    for path in ("/", "/api.html", "/static/app.js", "/static/report.js", "/openapi.json", "/nothing"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/", "/api.html"):
        page = client.get(path).text
        assert "<script>" not in page
        assert " style=" not in page
        assert not re.findall(r"<[^>]* on\w+=", page)
        assert "http" not in page.replace("http-equiv", ""), "nothing comes from elsewhere"
    refusal(client.get("/docs"), 404)
    refusal(client.get("/static/../app.py"), 404)
    refusal(client.get("/static/%2e%2e/app.py"), 404)
    refusal(client.put("/api/jobs"), 405)


def test_the_component_is_that_of_the_report(client: httpx.Client, made: str) -> None:
    report = client.get(f"/api/explanations/{made}/report.html").text
    assert client.get("/static/report.js").text in report
    assert client.get("/static/report.css").text in report


def test_snippets_disturb_nothing() -> None:
    assert snippet("a\n\n b\tc") == "a b c"
    assert snippet("x\u202ey\u2066z\x1b[31m") == "x\ufffdy\ufffdz\ufffd[31m"
    assert snippet("👩‍🚀 é") == "👩‍🚀 é"
    assert len(snippet("word " * 1_000_000)) == 160
