"""Needles in long prompts and long answers: the cases, a run with a tiny model, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bench_toy
from benchmarks.cli import main
from benchmarks.long import needles
from benchmarks.store import read
from ropelime.surrogate.local import LocalSurrogate


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twenty examples, whose paragraphs are long enough to be prose."""
    words = "old river town with many quiet streets and a market that opens early"
    entries = []
    for number in range(20):
        first = [f"Number {number} is an {words}.", f" It has {number} bridges over the {words}."]
        entries.append(bench_toy.entry(f"e{number}", first, [f"{number} b {words}."], [("A", 0)]))
    return bench_toy.write_hotpotqa(tmp_path / "hotpot.json", entries)


@pytest.fixture
def tiny_run(monkeypatch: pytest.MonkeyPatch, tiny: Any) -> LocalSurrogate:
    surrogate: LocalSurrogate = tiny("llama")
    monkeypatch.setattr("benchmarks.cli.shared.load_local", lambda *_: surrogate)
    return surrogate


def test_needles_are_where_the_labels_say(data: Path) -> None:
    made = list(needles.cases(data, [200, 400], 4, seed=0))
    assert len(made) == 2 * 4 * len(needles.KINDS)
    assert [case.id for case in made] == [case.id for case in needles.cases(data, [200, 400], 4, 0)]
    assert len({case.id for case in made}) == len(made)
    for case in made:
        found = [case.prompt.text[start:end] for start, end in case.gold]
        assert len(found) == (2 if case.kind == "two" else 1)
        assert all(text.endswith(".") for text in found)
        assert "{" not in case.prompt.text + case.question + case.answer
        assert len(case.prompt.text) > case.size * 4


def test_a_needle_without_words_shares_none_that_is_rare(data: Path) -> None:
    common = {"the", "a", "in", "at", "for", "of", "his", "her", "their", "was", "did", "do", "by"}
    for case in needles.cases(data, [200], 4, seed=0):
        if case.kind == "no words":
            ((start, end),) = case.gold
            fact = {word.strip(".,?").lower() for word in case.prompt.text[start:end].split()}
            asked = {w.strip(".,?").lower() for w in f"{case.question} {case.answer}".split()}
            assert not (fact & asked) - common, case.id


def test_a_run_resumes_and_becomes_a_page(data: Path, tmp_path: Path, tiny_run: LocalSurrogate) -> None:
    results = tmp_path / "needles.jsonl"
    line = ["long", "needles", "--sizes", "100", "300", "--limit", "1", "--data", str(data)]
    assert main([*line, "--results", str(results), "--quiet", "--seconds", "0"]) == 0
    assert main([*line, "--results", str(results), "--quiet"]) == 0
    _, rows = read(results)
    assert len(rows) == 2 * len(needles.KINDS)
    assert any(row["read"] is not None for row in rows), "some are longer than the window"
    among = tmp_path / "sentences.jsonl"
    line = ["long", "sentences", "--sizes", "60", "--limit", "2", "--data", str(data)]
    assert main([*line, "--results", str(among), "--quiet"]) == 0
    words = tmp_path / "words.jsonl"
    line = ["long", "words", "--sizes", "100", "--limit", "4", "--data", str(data)]
    assert main([*line, "--results", str(words), "--quiet"]) == 0
    assert main(["report", str(results), str(among), str(words), "--docs", str(tmp_path)]) == 0
    page = (tmp_path / "results" / "long.md").read_text(encoding="utf-8")
    assert "given | 100 | two | 1 |" in page
    assert "| 100 | shared | 4 | 1.00 | 1.00 | 1.00 |" in page, "words are enough for these"
    assert "No results yet. Run: `python -m benchmarks long answers --data FILE`" in page


def test_long_answers_in_groups_and_in_full(tmp_path: Path, tiny_run: LocalSurrogate) -> None:
    content = " ".join(f"Fact {i} is here." for i in range(20))
    row: dict[str, Any] = {"id": "a", "messages": [{"role": "user", "content": content}]}
    row |= {"output": "It is so. " * 8, "kind": "hijacked"}
    row["injections"] = [{"message": 0, "start": 0, "end": len(content)}]
    data, results = tmp_path / "a.jsonl", tmp_path / "r.jsonl"
    data.write_text(json.dumps(row) + "\n", encoding="utf-8")
    line = ["long", "answers", "--data", str(data), "--results", str(results), "--quiet"]
    assert main([*line, "--sizes", "100"]) == 0
    _, (found,) = read(results)
    assert found["features"] == 20
    assert not found["grouped"], "short ones are scored in full"
    assert found["ours"]["same first"] == 1
    assert found["true"] == {"ours": True, "full": True, "instant": True}, "all of it was injected"
    assert main(["report", str(results), "--docs", str(tmp_path)]) == 0
    assert "leave-one-out" in (tmp_path / "results" / "long.md").read_text(encoding="utf-8")


def test_what_does_not_go_together(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["long", "sentences", "--answering", "x", "--data", str(data)]) == 1
    assert "--answering is for needles" in capsys.readouterr().err


def test_a_window_is_filled(tmp_path: Path) -> None:
    results = tmp_path / "window.jsonl"
    line = ["long", "window", "--shape", "tiny", "--sizes", "256", "--device", "cpu"]
    assert main([*line, "--dtype", "float32", "--results", str(results), "--quiet"]) == 0
    header, (row,) = read(results)
    assert header["command"].startswith("python -m benchmarks long window --device cpu --dtype")
    assert (row["features"], row["masks"]) == (8, 10), "all, none, and each without one"
    assert row["part"] == pytest.approx(row["operations"] / row["seconds"] / row["rate"], rel=0.05)
    assert main(["report", str(results), "--docs", str(tmp_path)]) == 0
    assert "| tiny |" in (tmp_path / "results" / "long.md").read_text(encoding="utf-8")


def test_what_the_peers_take(data: Path, tmp_path: Path, tiny_run: LocalSurrogate) -> None:
    results = tmp_path / "cost.jsonl"
    line = ["long", "cost", "--sizes", "100", "300", "--data", str(data), "--results", str(results)]
    assert main([*line, "--quiet"]) == 0
    short, long = read(results)[1]
    full, n = short["tokens"], short["features"]
    assert short["ways"]["leave-one-out, exact"]["tokens"] > (n - 1) * full * 0.8
    assert {"contextcite", "TracLLM"} < set(long["ways"])
    assert "seconds" in short["ways"]["TracLLM"]
    assert "seconds" not in long["ways"]["TracLLM"], "it does not fit the window"
    assert long["ways"]["TracLLM"]["tokens"] > long["ways"]["instant"]["tokens"]
    assert main(["report", str(results), "--docs", str(tmp_path)]) == 0
    page = (tmp_path / "results" / "long.md").read_text(encoding="utf-8")
    assert "| TracLLM |" in page
    assert "| estimated |" in page


def test_a_right_answer_says_what_the_needle_says(data: Path) -> None:
    for case in needles.cases(data, [200], 4, seed=3):
        row = {"kind": case.kind, "size": case.size, "example": case.id, "output": case.answer}
        assert needles.is_right(row, 3), case.id
        assert not needles.is_right({**row, "output": "Nobody knows."}, 3)
