"""One call, one answer, through the real SDK: what is sent, what is kept, and what goes wrong."""

from __future__ import annotations

import json
import logging
import multiprocessing
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ropelime
import servers
from ropelime import Explanation, InputError, ModelError
from ropelime.cli import main
from ropelime.clients.openai import Answer, Cache, Call
from ropelime.surrogate import FunctionSurrogate
from servers import Proxy, busy, chunk, cut, cut_after, endless, raw, says, slow
from toy import additive

pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")

SECRET = "sk-proj-Zt7Qm2Xw9LkR4vB8"
CONTEXT = ["Marta was born in Kessel.", "Kessel lies on the Dray."]
ANSWER = "Kessel lies on the river Dray."
Capture = pytest.CaptureFixture[str]
Ask = Callable[..., Explanation]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No key, no server and no cache but those of the test; gives the folder of the answers."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "answers"


@pytest.fixture
def server() -> Iterator[Proxy]:
    with Proxy(otherwise=says(ANSWER)).running() as proxy:
        yield proxy


@pytest.fixture
def ask(server: Proxy) -> Ask:
    def asked(question: str | None = "Where is it?", **options: Any) -> Explanation:
        chosen: dict[str, Any] = {
            "model": "m",
            "context": CONTEXT,
            "base_url": server.url,
            "features": "document",
            "surrogate": additive([0.0, 2.0]),
            "target": "nll",
            "kernel": "uniform",
            "progress": False,
        }
        if options.get("stream"):  # in pieces, and nothing is ranked before the end
            options = {"on_text": lambda _: None, **options, "stream": None}
        e: Explanation = ropelime.ask(question, **{**chosen, **options})
        return e

    return asked


# One call.


@pytest.mark.parametrize("stream", [False, True])
def test_one_call_and_its_explanation(server: Proxy, ask: Ask, stream: bool) -> None:
    e = ask(stream=stream, sampling={"temperature": 0})
    assert len(server.seen) == 1
    sent = server.seen[0]
    assert sent["model"] == "m"
    assert sent["temperature"] == 0
    assert sent["messages"] == [{"role": "user", "content": e.prompt.text}], (
        "what is explained was sent"
    )
    assert e.output == ANSWER
    assert e.top(1)[0].text == CONTEXT[1]
    assert e.config["answer"] == {
        "model": "m",
        "served_as": "stand-in-1",
        "base_url": server.url,
        "sampling": {"temperature": 0},
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
        "price_per_million": None,
        "cost": None,
        "cached": False,
        "retries": 0,
    }


def test_a_question_alone_is_the_prompt(server: Proxy, ask: Ask) -> None:
    e = ask("red green", context=None, features="word")
    assert server.seen[0]["messages"] == [{"role": "user", "content": "red green"}]
    assert e.prompt.kind == "prompt"


def test_messages_are_sent_as_they_are(server: Proxy, ask: Ask) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "Dray."},
    ]
    e = ask(None, context=None, messages=chat, features="message", surrogate=additive([0.0, 1.0, 2.0]))
    assert server.seen[0]["messages"] == chat
    assert [f.text for f in e.features] == ["Where?", "find({})", "Dray."]


def test_pieces_are_shown_as_they_come(server: Proxy, ask: Ask) -> None:
    came: list[str] = []
    answers: list[dict[str, Any]] = []
    e = ask(on_text=came.append, on_answer=answers.append)
    assert server.seen[0]["stream"] is True
    assert server.seen[0]["stream_options"] == {"include_usage": True}
    assert came == ["Kessel ", "lies ", "on ", "the ", "river ", "Dray."]
    assert answers == [e.config["answer"]]
    came.clear()
    ask(on_text=came.append)
    assert came == [ANSWER], "out of the cache, at once"
    ask(on_text=came.append, stream=False, cache=False)
    assert came == [ANSWER] * 2
    assert "stream" not in server.seen[-1]


def test_what_the_callback_raises_stays_what_it_is(ask: Ask) -> None:
    def stop(text: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ask(on_text=stop)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_is_an_answer(server: Proxy, ask: Ask, stream: bool) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}]
    server.otherwise = raw(
        200, json.dumps(servers.completion(None, finish="tool_calls", tool_calls=calls))
    )
    if stream:
        first = {"index": 0, "id": "1", "function": {"name": "find", "arguments": ""}}
        more = [{"index": 0, "function": {"arguments": piece}} for piece in ('{"q":', " 1}")]
        deltas = [chunk({"tool_calls": [part]}) for part in (first, *more)]
        body = "".join(deltas) + chunk({}, "tool_calls") + "data: [DONE]\n\n"
        server.otherwise = raw(200, body, "text/event-stream")
    assert ask(stream=stream).output == 'find({"q": 1})'


def test_the_price_is_the_users(server: Proxy, ask: Ask) -> None:
    e = ask(price=(0.15, 0.6))
    assert e.config["answer"]["price_per_million"] == [0.15, 0.6]
    assert e.config["answer"]["cost"] == pytest.approx((1000 * 0.15 + 200 * 0.6) / 1e6)
    body = servers.completion("Yes.")
    del body["usage"]
    server.otherwise = raw(200, json.dumps(body))
    record = ask("And?", price=(0.15, 0.6)).config["answer"]
    assert (record["usage"], record["cost"]) == ({}, None), "unknown is not zero"


def test_an_answer_that_was_cut_off_says_so(server: Proxy, ask: Ask) -> None:
    server.otherwise = says(ANSWER, finish="length")
    assert "cut off at the longest" in ask().diagnostics.notes[-1]


def test_the_record_is_saved_and_comes_back(ask: Ask, tmp_path: Path) -> None:
    e = ask(price=(1.0, 2.0))
    e.save(tmp_path / "why.json")
    assert ropelime.load(tmp_path / "why.json") == e
    part = e.for_output(0, 6)
    assert part.config["answer"]["cost"] == pytest.approx(0.0014)
    assert "stand-in-1" in e.to_html()


# Errors are reported before anything is paid.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question": None}, "context and no question"),
        ({"question": None, "context": None}, "nothing to ask"),
        ({"messages": [{"role": "user", "content": "x"}]}, "not both"),
        ({"model": ""}, "model must be the name"),
        ({"features": "message"}, "needs messages"),
        ({"features": "sentense"}, "Did you mean 'sentence'"),
        ({"sampler": "leave-one"}, "Did you mean 'leave-one-out'"),
        ({"ablation": "burn"}, "Unknown ablation"),
        ({"context": ["one"]}, "needs at least two"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"retries": -1}, "retries must be"),
        ({"retries": 101}, "retries must be a whole number from 0 to 100, not 101"),
        ({"retries": 10**5000}, "not a number of 5,001 digits"),
        ({"price": 3}, "price must be two numbers"),
        ({"price": (1, float("nan"))}, "price must be two numbers"),
        ({"sampling": {"stream": True}}, "'stream': it is set by ask"),
        ({"sampling": {"extra_headers": {}}}, "may hold a key"),
        ({"sampling": {"x": object()}}, "must be plain JSON"),
        ({"base_url": "localhost:8000"}, "base_url must be an address"),
        ({"base_url": "http://[::1"}, "base_url must be an address"),
        ({"base_url": "http://me:hunter2@host/v1"}, "a user name, a password"),
        ({"api_key": SECRET, "sampling": {"user": SECRET}}, "holds the key itself"),
    ],
)
def test_what_is_refused(server: Proxy, ask: Ask, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ask(**options)
    assert "hunter2" not in str(caught.value)
    assert server.seen == []


def test_unknown_options_are_those_of_explain(server: Proxy, ask: Ask) -> None:
    with pytest.raises(TypeError, match="fetures"):
        ask(fetures="word")
    assert server.seen == []


def test_without_a_key(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no key for https://api.openai.com/v1. Set OPENAI_API_KEY"):
        ask(base_url=None)
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    with pytest.raises(InputError, match="no key"):
        ask(base_url=None)


def test_without_the_sdk(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelError, match=r"pip install 'ropelime\[ask\]'"):
        ask()


def test_keys_and_servers_out_of_the_environment(
    server: Proxy, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
    monkeypatch.setenv("OPENAI_API_KEY", f" {SECRET}\n")
    assert ask(base_url=None).config["answer"]["base_url"] == server.url
    assert server.keys == [SECRET]
    ask("And?", api_key="another-key")
    assert server.keys[-1] == "another-key"


# The same question is not paid twice.


def test_the_same_question_is_asked_once(server: Proxy, ask: Ask) -> None:
    first, second = ask(price=(1.0, 1.0)), ask(features="sentence", stream=True)
    assert len(server.seen) == 1
    assert second.output == first.output
    assert second.config["answer"]["cached"] is True
    assert second.config["answer"]["usage"] == first.config["answer"]["usage"]
    ask(price=(1.0, 1.0), cache=False)
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"question": "Where was it?"},
        {"model": "n"},
        {"context": [*CONTEXT[:1], "Kessel lies on the Drau."]},
        {"sampling": {"temperature": 0}},
        {"context": None, "messages": [{"role": "user", "content": "a b"}], "question": None,
         "features": "word"},
    ],
)  # fmt: skip
def test_another_question_is_asked_anew(server: Proxy, ask: Ask, other: dict[str, Any]) -> None:
    ask()
    ask(**other)
    assert len(server.seen) == 2


def test_another_server_is_asked_anew(server: Proxy, ask: Ask) -> None:
    ask()
    with Proxy(otherwise=says("No.")).running() as second:
        assert ask(base_url=second.url).output == "No."


def test_another_key_is_no_other_question(server: Proxy, ask: Ask) -> None:
    ask(api_key=SECRET)
    ask(api_key="another-key")
    assert len(server.seen) == 1


def test_entries_are_private_and_hold_no_question(ask: Ask, alone: Path) -> None:
    ask(api_key=SECRET)
    (entry,) = alone.iterdir()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(alone.stat().st_mode) == 0o700
    text = entry.read_text(encoding="utf-8")
    assert ANSWER in text
    assert "Where" not in text
    assert "Marta" not in text


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", '{"format": "other", "version": 1, "answer": {}}', "null", "\xff",
     '{"format": "ropelime.answer", "version": 1, "answer": {"text": ""}}',
     '{"format": "ropelime.answer", "version": 1, "answer": {"text": "x", "model": "", '
     '"finish_reason": "", "usage": {"prompt_tokens": "many"}}}'],
)  # fmt: skip
def test_a_damaged_entry_is_asked_for_anew(server: Proxy, ask: Ask, alone: Path, damage: str) -> None:
    ask()
    (entry,) = alone.iterdir()
    entry.write_bytes(damage.encode("latin-1"))
    assert ask().output == ANSWER
    assert len(server.seen) == 2
    assert ask().config["answer"]["cached"] is True


def test_a_cache_that_cannot_be_written_costs_no_answer(
    ask: Ask, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert ask().output == ANSWER
    assert "could not be kept" in capsys.readouterr().err


def _write(folder: Path, number: int) -> None:
    call = Call("m", [{"role": "user", "content": "x"}], "http://there")
    for i in range(60):
        Cache(folder).put(call, Answer(f"{number} " * 2000, "m", "stop", {"prompt_tokens": i}))


@pytest.mark.slow
def test_many_writers_leave_whole_entries(tmp_path: Path) -> None:
    call = Call("m", [{"role": "user", "content": "x"}], "http://there")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path, number)) for number in range(2)]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        if (tmp_path / f"{call.digest}.json").exists():
            answer = Cache(tmp_path).get(call)
            assert answer is not None, "half an entry was seen"
            assert len(set(answer.text.split())) == 1
            reads += 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert reads > 0
    assert [path.name for path in tmp_path.iterdir()] == [f"{call.digest}.json"], "nothing is left over"


# What goes wrong.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "timeout"),
    [(busy(429), 20.0), (busy(500), 20.0), (busy(503), 20.0), (cut, 20.0), (slow(6.0), 1.5)],
)
def test_it_is_asked_again_and_says_so(
    server: Proxy, ask: Ask, stream: bool, fault: servers.Fault, timeout: float
) -> None:
    server.faults = [fault]
    e = ask(stream=stream, timeout=timeout)
    assert e.output == ANSWER
    assert len(server.seen) == 2
    assert e.config["answer"]["retries"] == 1


def test_pauses_grow_if_the_server_names_none(server: Proxy, ask: Ask) -> None:
    server.faults = [raw(429, "{}"), raw(429, "{}")]
    start = time.monotonic()
    assert ask().config["answer"]["retries"] == 2
    assert time.monotonic() - start > 0.75 * (0.5 + 1.0)


GONE = [chunk({"content": "Kessel "}), chunk({"content": "lies"})]


@pytest.mark.parametrize(
    ("fault", "options", "message", "requests"),
    [
        (busy(429), {}, r"answered 429 \(3 tries\): Come back later. Too many requests", 3),
        (busy(500), {"retries": 1}, r"answered 500 \(2 tries\): Come back later. Try again", 2),
        (busy(503), {"retries": 0}, r"answered 503: Come back later", 1),
        (slow(6.0), {"retries": 0, "timeout": 1.5}, r"nothing within 1.5 s. Raise the timeout", 1),
        (cut, {"retries": 0}, r"cannot be reached: Server disconnected.*Check base_url", 1),
        (cut_after(*GONE), {"stream": True}, r"broke off after 11 characters.*try again", 1),
        (cut_after(*GONE, length=None), {"stream": True}, r"broke off after 11 .*stream ended", 1),
        (cut_after('{"id": '), {"retries": 0}, r"cannot be reached", 1),
        (raw(200, '{"choices": ['), {}, r"other than a Chat Completions answer \(Expecting value", 1),
        (raw(200, '{"hello": 1}'), {}, r"other than a Chat Completions answer \(it has no choices", 1),
        (raw(200, '{"error": {"message": "No credit."}}'), {}, r"answer \(No credit\)", 1),
        (raw(200, "<html>", "text/html"), {}, r"other than a Chat Completions answer.*/v1", 1),
        (raw(200, "<html>", "text/html"), {"stream": True}, r"no stream came.*--no-stream", 1),
        (
            raw(200, 'data: {"ch\n\n', "text/event-stream"),
            {"stream": True},
            r"other than a Chat Comp",
            1,
        ),
        (raw(200, GONE[0] + 'data: {"ch\n\n', "text/event-stream"), {"stream": True}, "broke off", 1),
        (raw(400, '{"error": {"message": "Too hot\\u001b[2J"}}'), {}, r"400: Too hot \[2J. Change", 1),
        (raw(400, "plain words", "text/plain"), {}, r"answered 400: plain words", 1),
        (raw(401, "{}"), {}, r"refused the key \(401\). Check OPENAI_API_KEY", 1),
        (raw(403, "{}"), {}, r"answered 403: .*may not use this model", 1),
        (raw(404, '{"detail": "No m."}'), {}, r"404: No m. Check the model's name \('m'\)", 1),
        (says(" "), {}, r"empty answer \(it ended with 'stop'\)", 1),
        (says(" "), {"stream": True}, r"empty answer \(it ended with 'stop'\)", 1),
    ],
)
def test_an_error_says_what_happened(
    server: Proxy,
    ask: Ask,
    alone: Path,
    fault: servers.Fault,
    options: dict[str, Any],
    message: str,
    requests: int,
) -> None:
    server.otherwise = fault
    with pytest.raises(ModelError, match=message) as caught:
        ask(**options)
    assert caught.value.__cause__ is None, "one error, not a chain of them"
    assert len(server.seen) == requests
    assert not alone.exists(), "nothing of it is kept"


def test_a_server_that_is_not_there_is_told_soon(ask: Ask) -> None:
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"127.0.0.1:9/v1 cannot be reached \(2 tries\)"):
        ask(base_url="http://127.0.0.1:9/v1", retries=1)
    assert time.monotonic() - start < 60, "it does not wait as long as for an answer"


# A server may send anything, but not without end.

WORDS = chunk({"content": "and so on "})


@pytest.mark.parametrize(
    ("fault", "stream", "message"),
    [
        (endless("", WORDS * 100), True, r"broke off after \d+ characters \(it sends more than 1 MiB"),
        (endless('data: {"', "x" * 5000), True, r"other than a Chat.*\(it sends more than 1 MiB"),
        (endless("", ": still here\n\n" * 500), True, r"other than a Chat.*more than 1 MiB"),
        (endless('{"choices": [', " " * 5000), False, r"other than a Chat.*more than 1 MiB"),
    ],
)
def test_an_answer_without_end_is_given_up(
    server: Proxy,
    ask: Ask,
    alone: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: servers.Fault,
    stream: bool,
    message: str,
) -> None:
    monkeypatch.setattr("ropelime.clients.bounds.LARGEST", 1 << 20)
    server.otherwise = fault
    with pytest.raises(ModelError, match=message):
        ask(stream=stream, retries=0)
    assert not alone.exists(), "nothing of it is kept"


@pytest.mark.parametrize("stream", [False, True])
def test_what_could_unpack_to_gigabytes_is_refused(server: Proxy, ask: Ask, stream: bool) -> None:
    server.otherwise = raw(200, "{}", Content_Encoding="gzip")
    with pytest.raises(ModelError, match=r"it is compressed \(gzip\), which it was asked not to be"):
        ask(stream=stream, retries=0)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_trickles_in_is_given_up(
    server: Proxy, ask: Ask, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr("ropelime.clients.bounds._LONGEST", 1.5)
    server.otherwise = endless("", WORDS if stream else " ", pause=0.05)
    with pytest.raises(ModelError, match=r"was still sending its answer after 2 s"):
        ask(stream=stream, retries=0, timeout=1.0)


# Keys stay where they are.


def files_with(folder: Path, text: str) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert found, "something was written"
    return [path for path in found if text.encode() in path.read_bytes()]


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of the context, and a function in the place of the surrogate."""
    surrogate = FunctionSurrogate(additive([0.0, 2.0]))
    monkeypatch.setattr("ropelime.surrogate.load_surrogate", lambda *_, **__: surrogate)
    (tmp_path / "docs").mkdir()
    paths = [tmp_path / "docs" / name for name in ("a.txt", "b.txt")]
    for path, text in zip(paths, CONTEXT, strict=True):
        path.write_text(text)
    return [str(path) for path in paths]


METHOD = ["--features", "document", "--target", "nll", "--kernel", "uniform"]


@pytest.mark.parametrize("stream", [[], ["--no-stream"]])
def test_the_key_is_in_no_file_no_log_and_no_line(
    server: Proxy,
    documents: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    caplog: pytest.LogCaptureFixture,
    stream: list[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    out = [f"--{kind}={tmp_path / f'why.{kind}'}" for kind in ("json", "html", "svg")]
    server.otherwise = says(f"Your key is {SECRET}, thank you.")  # a server that gives it back
    arguments = ["ask", "Where?", "--context", *documents, "--model", "m", *METHOD, *stream]
    assert main([*arguments, "--base-url", server.url, *out]) == 0
    assert server.keys == [SECRET], "it was sent"
    server.otherwise = raw(418, json.dumps({"error": {"message": f"No tea for {SECRET}!"}}))
    assert main([*arguments[:1], "Why?", *arguments[2:], "--base-url", server.url]) == 1
    server.otherwise = raw(401, json.dumps({"error": {"message": "Wrong key: sk-proj-Zt7*****B8"}}))
    assert main([*arguments[:1], "Who?", *arguments[2:], "--base-url", server.url]) == 1
    said = "".join(capsys.readouterr()) + caplog.text
    assert "No tea for [key]!" in said
    assert "Your key is [key], thank you." in said
    assert "sk-proj-Zt7" not in said
    assert len(list(tmp_path.iterdir())) >= 5
    assert files_with(tmp_path, SECRET) == []


def test_no_key_gets_through_in_pieces(server: Proxy, ask: Ask) -> None:
    cuts = [SECRET[:3], SECRET[3:11], SECRET[11:] + " sk-", "pro", "ject"]
    body = "".join(chunk({"content": piece}) for piece in cuts) + chunk({}, "stop")
    server.otherwise = raw(200, body, "text/event-stream")
    came: list[str] = []
    assert ask(api_key=SECRET, on_text=came.append).output == "[key] sk-project"
    assert "".join(came) == "[key] sk-project"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_prompt_goes_to_no_other_host(server: Proxy, ask: Ask, status: int, stream: bool) -> None:
    with Proxy(otherwise=says("Mine now.")).running() as other:
        server.otherwise = raw(status, "{}", Location=f"{other.url}/chat/completions?k={SECRET}")
        with pytest.raises(
            ModelError, match=rf"answered {status} and sends callers elsewhere"
        ) as error:
            ask(api_key=SECRET, stream=stream)
        assert (len(server.seen), other.seen, other.looks) == (1, [], 0)
    assert "name it: base_url" in str(error.value)
    assert SECRET not in str(error.value)


# The command line.


def command(server: Proxy, documents: list[str], *more: str) -> list[str]:
    asked = ["ask", "Where is it?", "--context", *documents, "--model", "m", "--base-url", server.url]
    return [*asked, *METHOD, *more]


def test_the_command_shows_the_answer_and_explains_it(
    server: Proxy, documents: list[str], capsys: Capture
) -> None:
    prices = ["--price-in", "0.15", "--price-out", "0.6", "--sampling", "temperature=0", "stop=now"]
    assert main(command(server, documents, *prices)) == 0
    out, err = capsys.readouterr()
    assert err == f"{ANSWER}\nropelime: m answered · 1000 tokens in, 200 out · cost 0.000270\n"
    assert "Kessel lies on the Dray." in out
    assert "b.txt" in out, "the ranking names the file"
    assert server.seen[0]["temperature"] == 0
    assert server.seen[0]["stop"] == "now"
    assert server.seen[0]["stream"] is True


def test_the_second_time_nothing_is_paid(server: Proxy, documents: list[str], capsys: Capture) -> None:
    server.faults = [busy()]
    assert main(command(server, documents)) == 0
    first = capsys.readouterr()
    assert "m answered after 1 failed try" in first.err
    assert main(command(server, documents)) == 0
    second = capsys.readouterr()
    assert "came from the cache, at no cost" in second.err
    assert len(server.seen) == 2
    assert main(command(server, documents, "--no-cache", "--no-stream")) == 0
    assert len(server.seen) == 3
    assert "stream" not in server.seen[-1]


def test_the_command_cites_by_file(server: Proxy, documents: list[str], capsys: Capture) -> None:
    assert main(command(server, documents, "--cite")) == 0
    out = capsys.readouterr().out
    assert out == f"{ANSWER} [1]\n\n[1] {CONTEXT[1]} (chunk 2, {documents[1]})\n"


def test_the_command_is_silent_if_asked(server: Proxy, documents: list[str], capsys: Capture) -> None:
    assert main(command(server, documents, "--quiet")) == 0
    assert capsys.readouterr() == ("", "")


def test_an_answer_cannot_act_on_the_terminal(
    server: Proxy, documents: list[str], capsys: Capture
) -> None:
    server.otherwise = says("Look: \x1b[2J gone")
    assert main(command(server, documents)) == 0
    assert "\x1b" not in "".join(capsys.readouterr())


def test_messages_out_of_a_file(
    server: Proxy, documents: list[str], tmp_path: Path, capsys: Capture
) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    asked = ["ask", "--messages", str(tmp_path / "chat.json"), "--model", "m"]
    method = ["--base-url", server.url, *METHOD, "--features", "message"]
    assert main([*asked, *method]) == 0
    assert server.seen[0]["messages"] == chat


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--price-in", "1"], "--price-in and --price-out go together"),
        (["--sampling", "hot"], "takes NAME=VALUE"),
        (["--timeout", "-1"], "timeout must be"),
        (["--messages", "/no/such"], "cannot be read"),
    ],
)
def test_what_the_command_refuses(
    server: Proxy, documents: list[str], capsys: Capture, more: list[str], message: str
) -> None:
    assert main(command(server, documents, *more)) == 1
    assert message in capsys.readouterr().err
    assert server.seen == []


def test_an_interrupt_leaves_no_half_answer(
    server: Proxy, documents: list[str], alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ropelime.cli.ask._show", interrupt)
    assert main(command(server, documents)) == 130
    assert not alone.exists()


# What a key, a schema and a refusal may look like.


@pytest.mark.parametrize("key", ["gsk_first1\ngsk_second2", "gsk_fïrst111", "gsk_\x00first"])
def test_a_key_that_cannot_be_sent_is_not_shown(
    server: Proxy, ask: Ask, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    for options in ({"api_key": key}, {}):
        if not options:
            monkeypatch.setenv("OPENAI_API_KEY", key.replace("\x00", "\n"))
        with pytest.raises(InputError, match="pass the key alone") as error:
            ask(**options)
        assert "gsk" not in str(error.value)
    assert not server.seen


def test_half_a_key_is_not_shown_either(server: Proxy, ask: Ask) -> None:
    key = "gsk_abcdefghijklmnopqrstuvwxyz"
    server.otherwise = raw(400, json.dumps({"error": {"message": "x" * 270 + " " + key}}))
    with pytest.raises(ModelError, match="answered 400") as error:
        ask(api_key=key)
    assert "gsk" not in str(error.value)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_an_answer(server: Proxy, ask: Ask, stream: bool) -> None:
    said = "I cannot help with that."
    pieces = chunk({"refusal": said}) + chunk({}, "stop") + "data: [DONE]\n\n"
    whole = json.dumps(servers.completion(None, refusal=said))
    server.otherwise = raw(200, pieces, "text/event-stream") if stream else raw(200, whole)
    assert ask(stream=stream).output == said


def test_calls_of_tools_that_are_not_numbered(server: Proxy, ask: Ask) -> None:
    def part(**function: str) -> str:
        return chunk({"tool_calls": [{"function": function}]})

    first, second = part(name="f", arguments="a"), part(name="g", arguments="c")
    body = first + part(arguments="b") + second + chunk({}, "tool_calls") + "data: [DONE]\n\n"
    server.otherwise = raw(200, body, "text/event-stream")
    assert ask(stream=True).output == "f(ab)\ng(c)"


def test_the_order_of_a_schema_is_another_question(server: Proxy, ask: Ask) -> None:
    for names in (["why", "what"], ["what", "why"], ["what", "why"]):
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
        ask(sampling={"seed": 1, "response_format": {"json_schema": schema}})
    ask(sampling={"response_format": {"json_schema": schema}, "seed": 1})
    assert len(server.seen) == 2, "the order of arguments makes no difference"


def test_what_the_sdk_does_not_take_is_no_fault_of_the_server(server: Proxy, ask: Ask) -> None:
    with pytest.raises(ModelError, match=r"nothing was sent.*'top_k'.*extra_body"):
        ask(sampling={"top_k": 5})
    with pytest.raises(InputError, match="plain JSON"):
        ask(sampling={"temperature": float("nan")})
    assert not server.seen
    ask(sampling={"extra_body": {"top_k": 5}})
    assert server.seen[0]["top_k"] == 5
