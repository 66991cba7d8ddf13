"""Streaming: sentences are ranked as they come, and the explanation ends the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropelime
from ropelime import Explanation, InputError, RankedSentence
from ropelime.ask import finished
from ropelime.cli import main
from ropelime.surrogate.local import LocalSurrogate
from servers import Handler, Proxy, chunk, says
from toy import additive

pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")

CONTEXT = ["Marta was born in Kessel.", "Kessel lies on the Dray.", "Salmon swim in the Dray."]
ANSWER = "Marta is from Kessel. It lies on the Dray. Salmon swim there."
GIVEN: dict[str, Any] = {"context": CONTEXT, "question": "Where?", "features": "document"}
Capture = pytest.CaptureFixture[str]
Item = RankedSentence | Explanation


@pytest.fixture(scope="module")
def llama(tiny: Callable[..., LocalSurrogate]) -> LocalSurrogate:
    return tiny("llama")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Proxy]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    with Proxy(otherwise=says(ANSWER)).running() as proxy:
        yield proxy


def ask(server: Proxy, llama: LocalSurrogate, **more: Any) -> Iterator[Item]:
    given = {"context": CONTEXT, "features": "document", "progress": False, **more}
    return ropelime.ask("Where?", model="m", stream=True, base_url=server.url, surrogate=llama, **given)


def parted(items: Iterator[Item]) -> tuple[list[RankedSentence], Explanation]:
    *sentences, last = items
    assert isinstance(last, Explanation)
    ranked = [each for each in sentences if isinstance(each, RankedSentence)]
    assert len(ranked) == len(sentences)
    return ranked, last


def test_a_given_answer(llama: LocalSurrogate) -> None:
    items = ropelime.explain(output=ANSWER, stream=True, surrogate=llama, progress=False, **GIVEN)
    ranked, last = parted(items)
    whole = ropelime.explain(output=ANSWER, surrogate=llama, progress=False, **GIVEN)
    assert last == whole, "as without a stream"
    assert " ".join(each.text for each in ranked) == ANSWER
    assert [each.span for each in ranked] == list(whole.output_sentences)
    quick = ropelime.explain(output=ANSWER, surrogate=llama, preset="instant", progress=False, **GIVEN)
    for each in ranked:
        own = quick.for_output(*each.span)
        assert np.allclose(each.explanation.weights, own.weights)
        assert each.top(1) == each.explanation.top(1) == own.top(1)


def test_an_instant_explanation_takes_one_pass(
    llama: LocalSurrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    score = llama.score_all

    def counted(*requests: Any, **how: Any) -> Any:
        passes.append(requests)
        return score(*requests, **how)

    monkeypatch.setattr(llama, "score_all", counted)
    items = ropelime.explain(
        output=ANSWER, stream=True, surrogate=llama, preset="instant", progress=False, **GIVEN
    )
    ranked, _ = parted(items)
    assert (len(ranked), len(passes)) == (3, 1)


def test_what_cannot_be_streamed_is_refused_at_once(server: Proxy, llama: LocalSurrogate) -> None:
    how: dict[str, Any] = {"preset": "faithful", "surrogate": additive([1.0, 2.0, 3.0])}
    with pytest.raises(InputError, match="does not show its attention"):
        ropelime.explain(output=ANSWER, stream=True, **how, **GIVEN)
    with pytest.raises(InputError, match="Did you mean 'document'"):
        ask(server, llama, features="documant")
    assert server.seen == [], "before anything is paid"


def test_sentences_are_ranked_while_the_answer_comes(server: Proxy, llama: LocalSurrogate) -> None:
    """The server sends the end of the answer only when the first sentence has been ranked."""
    ranked = threading.Event()

    def wait(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        for part in ("Marta is from Kessel. It ", None, "lies on the Dray. Salmon swim there."):
            if part is None:
                assert ranked.wait(60)
                continue
            handler.wfile.write(chunk({"content": part}).encode())
            handler.wfile.flush()
        handler.wfile.write((chunk({}, "stop") + "data: [DONE]\n\n").encode())

    server.otherwise = wait
    items = ask(server, llama)
    first = next(items)
    assert isinstance(first, RankedSentence)
    assert (first.text, first.span) == ("Marta is from Kessel.", (0, 21))
    assert first.explanation.output == "Marta is from Kessel.", "nothing else was known"
    ranked.set()
    rest, last = parted(items)
    assert [each.text for each in rest] == ["It lies on the Dray.", "Salmon swim there."]
    assert last.output == ANSWER
    assert last.config["answer"]["cached"] is False
    assert len(server.seen) == 1


def test_an_answer_that_is_known_comes_at_once(server: Proxy, llama: LocalSurrogate) -> None:
    said: list[str] = []
    answers: list[dict[str, Any]] = []
    first = parted(ask(server, llama))
    second = parted(ask(server, llama, on_text=said.append, on_answer=answers.append))
    assert [each.text for each in second[0]] == [each.text for each in first[0]]
    assert second[1].config["answer"]["cached"] is True
    assert (said, answers) == ([ANSWER], [second[1].config["answer"]])
    assert len(server.seen) == 1


def test_leaving_early_ends_the_request(server: Proxy, llama: LocalSurrogate) -> None:
    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(chunk({"content": "One is. Two "}).encode())
        handler.wfile.flush()
        threading.Event().wait(30)

    server.otherwise = endless
    items: Any = ask(server, llama)
    assert next(items).text == "One is."
    items.close()
    assert not [t for t in threading.enumerate() if t.name == "ropelime-requests"]


@pytest.mark.parametrize(
    ("said", "end"),
    [("", 0), ("Marta is", 0), ("Marta is.", 0), ("Marta is. It", 10), ("A is. B is. C", 12)],
)
def test_a_sentence_is_finished_when_another_begins(said: str, end: int) -> None:
    assert finished(said) == end


def test_the_commands_print_sentences_as_they_come(
    server: Proxy,
    llama: LocalSurrogate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    monkeypatch.setattr("ropelime.surrogate.load_surrogate", lambda *_, **__: llama)
    monkeypatch.setenv("COLUMNS", "60")
    files = []
    for i, text in enumerate(CONTEXT):
        (tmp_path / f"{i}.txt").write_text(text)
        files.append(str(tmp_path / f"{i}.txt"))
    monkeypatch.chdir(tmp_path)
    context = ["--context", "0.txt", "1.txt", "2.txt", "--features", "document"]
    asked = ["ask", "Where?", *context, "--model", "m", "--base-url", server.url, "--stream"]
    given = ["explain", *context, "--question", "Where?", "--output", ANSWER, "--stream"]
    for command in (asked, given):
        assert main(command) == 0
        out, err = capsys.readouterr()
        lines = err.splitlines()
        at = [lines.index(sentence) for sentence in ("Marta is from Kessel.", "Salmon swim there.")]
        assert at == sorted(at)
        assert all("% chunk " in line for line in lines[at[0] + 1 : at[0] + 2])
        assert max(map(len, lines)) <= 60
        assert "the 3 largest weights" in out
    assert main([*given, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
