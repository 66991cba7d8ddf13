"""Many explanations summed up: the figures of known ones, damaged lines, and memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from batch_toy import go
from ropelime import Explanation, InputError, Summary, summary
from ropelime.batch.work import short
from ropelime.cli import main
from ropelime.results import summary as sums
from ropelime.results.digest import digest
from toy import additive, toy

Capture = pytest.CaptureFixture[str]
TWO = "Yes it is. Now it was."  # two sentences, a token each
LAMPS = {"text": "Lamps last.", "source": "lamps.pdf"}
MORE = {"text": "Lamps shine.", "source": "lamps.pdf"}
CUPS = {"text": "Cups break.", "source": "cups.md"}
BAGS = "Bags tear."


def documents(*coef: Any, context: Any = (LAMPS, MORE, CUPS, BAGS), **options: Any) -> Explanation:
    return toy(None, TWO, context=list(context), question="?", features="document",
               sampler="exhaustive", surrogate=additive(coef, -4.2), **options)  # fmt: skip


NONE = [0.0, 0.0]
BOTH = documents([4.0, 0.0], [0.0, 4.0], NONE, NONE)  # each sentence from one page of the same file
LAST = documents(NONE, NONE, NONE, [4.0, 0.0])  # the second sentence from nothing


def part(result: Summary, name: str) -> sums.PartSummary:
    (found,) = [part for part in result.parts if part.name == name]
    return found


def rows(path: Path, *explanations: Explanation, name: str = "a") -> Path:
    lines: list[dict[str, Any]] = [{"ropelime-batch": 1, "full": False}]
    lines += [{"id": f"{name}{i}", "error": None, **short(e)} for i, e in enumerate(explanations)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_figures_of_documents() -> None:
    result = summary([BOTH, LAST])
    lamps = part(result, "lamps.pdf")
    assert (lamps.given, lamps.mattered, lamps.first, lamps.cited) == (2, 1, 1, 2)
    assert lamps.mean_share == pytest.approx(0.5)  # all of one answer, nothing of the other
    assert [p.name for p in result.documents] == ["lamps.pdf", "Bags tear.", "cups.md"]
    assert [p.name for p in result.never] == ["cups.md"]
    assert (result.answers, result.sentences, result.ungrounded) == (2, 4, 1)
    (sentence,) = result.ungrounded_sentences
    assert (sentence.answer, sentence.text) == ("explanation 2", "Now it was.")
    masks = BOTH.cost.masks + LAST.cost.masks
    assert (result.cost.masks, result.cost.price) == (masks, None)
    assert result.cost.seconds is not None
    assert repr(result) == (
        "<Summary of 2 answers; 1 of 3 parts never mattered, 1 of 4 sentences have no source>"
    )


def test_documents_without_a_name_are_told_apart_by_their_text() -> None:
    long = "x" * 200
    e = documents([3.0, 0.0], NONE, NONE, context=[f"{long} a.", f"{long} b.", BAGS])
    other = documents([3.0, 0.0], NONE, context=[f"{long}  a.", BAGS])
    result = summary([e, other])
    assert [p.given for p in result.documents] == [2, 2, 1]
    assert all(len(p.name) <= 100 for p in result.documents)


def test_messages_by_place_and_role_and_instructions_by_sentence() -> None:
    def chat(question: str, **options: Any) -> Explanation:
        messages = [
            {"role": "system", "content": "Be kind. Be brief."},
            {"role": "user", "content": question},
        ]
        return toy(None, TWO, messages=messages, **options)

    coef = [[3.0, 0.0], NONE, NONE]
    first = chat("One?", features="sentence", surrogate=additive(coef))
    words = chat("Two?", features="word", surrogate=additive([[0.0, 3.0], NONE, NONE, NONE, NONE]))
    result = summary([first, words])
    assert {(p.kind, p.name, p.given, p.mattered) for p in result.parts} == {
        ("instruction", "Be kind.", 2, 2),
        ("instruction", "Be brief.", 2, 0),
        ("message", "message 2, user", 2, 0),
    }
    whole = chat("One?", features="message", surrogate=additive([[3.0, 0.0], NONE]))
    assert {(p.kind, p.name) for p in summary(whole).parts} == {
        ("instruction", "Be kind. Be brief."),
        ("message", "message 2, user"),
    }


def test_sentences_of_plain_prompts() -> None:
    e = toy("Be kind. What is it?", TWO, features="word", surrogate=additive([[3.0, 0.0], *[NONE] * 4]))
    parts = summary(e).of_kind("passage")
    assert [(p.name, p.mattered) for p in parts] == [("Be kind.", 1), ("What is it?", 0)]


def test_rows_of_a_batch_say_the_same(tmp_path: Path) -> None:
    expected = summary([BOTH, LAST]).to_dict()
    short_rows = rows(tmp_path / "short.jsonl", BOTH, LAST)
    full = tmp_path / "full.jsonl"
    full.write_text(
        "".join(
            json.dumps({"id": f"a{i}", "error": None, **e.to_dict()}) + "\n"
            for i, e in enumerate([BOTH, LAST])
        )
    )
    for e, name in ((BOTH, "one.json"), (LAST, "two.json")):
        e.save(tmp_path / name)
    saved: Any = [tmp_path / "one.json", str(tmp_path / "two.json")]
    for given in (short_rows, [full], saved):
        found = summary(given).to_dict()
        for name in ("parts", "answers", "sentences", "ungrounded"):
            assert found[name] == expected[name]
        assert found["cost"]["seconds"] is None, "files do not hold times"


def test_top_does_not_hide_what_never_mattered(tmp_path: Path) -> None:
    row = short(BOTH, 1)
    assert len(row["features"]) == 1
    assert [p["name"] for p in row["parts"]] == ["lamps.pdf", "cups.md", "Bags tear."]
    assert row["sentences"][0]["sources"] == [0]
    assert sum(p["share"] for p in row["parts"]) == pytest.approx(1.0)


def test_a_real_batch_is_summed_up(tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "in.jsonl"
    chunks = [{"text": "red green", "source": "a.txt"}, {"text": "blue", "source": "b.txt"}]
    lines: list[Any] = [{"context": chunks, "question": "?", "output": "yes"} for _ in range(3)]
    source.write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {"prompt": 5, "output": "x"}])
    )
    go(source, tmp_path / "out.jsonl")
    result = summary(tmp_path / "out.jsonl")
    assert (result.answers, result.errors, result.skipped) == (3, 1, 0)
    assert {p.name: p.given for p in result.documents} == {"a.txt": 3, "b.txt": 3}


def test_what_answers_cost(tmp_path: Path) -> None:
    answer = {"usage": {"prompt_tokens": 10, "completion_tokens": 5}, "cost": 0.25, "cached": True}
    path = rows(tmp_path / "a.jsonl", BOTH, LAST, BOTH)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["answer"] = answer
    lines[2]["answer"] = {**answer, "usage": {}, "cost": None, "cached": False}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cost = summary(path).cost
    assert (cost.calls, cost.cached, cost.prompt_tokens, cost.completion_tokens) == (2, 1, 10, 5)
    assert cost.price == 0.25


def test_damaged_lines_are_named_and_skipped(tmp_path: Path, capsys: Capture) -> None:
    path = rows(tmp_path / "a.jsonl", BOTH, LAST)
    good = path.read_text().splitlines()[1]
    data = json.loads(good)
    old = {key: value for key, value in data.items() if key not in ("parts", "sentences")}
    bad: list[Any] = [
        "{", "5", "\udc80", old, {**data, "parts": 5}, {**data, "sentences": [{}]},
        {**data, "parts": [{**data["parts"][0], "share": "NaN"}]},
        {**data, "parts": [{**data["parts"][0], "kind": "x"}]}, {"format": "ropelime.explanation"},
    ]  # fmt: skip
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in bad)
    with path.open("ab") as file:
        file.write(
            text.encode("utf-8", "surrogateescape") + b"\n" + good.encode() + b"\n" + b'{"id": "cut'
        )
    result = summary(path)
    assert (result.answers, result.skipped) == (3, len(bad) + 1)
    assert [problem.partition(": ")[0] for problem in result.problems] == [
        *(f"{path}, line {number}" for number in range(4, 4 + len(bad))),
        f"{path}, line {5 + len(bad)}",
    ]
    assert "older release" in result.problems[3]
    json.dumps(result.to_dict(), allow_nan=False)
    assert main(["summary", str(path)]) == 0
    assert f"ropelime: skipped {path}, line 4: not complete JSON" in capsys.readouterr().err


def test_what_cannot_be_summed_up(tmp_path: Path, capsys: Capture) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for given, says in [
        (empty, "no explanations to sum up"),
        (tmp_path / "none.jsonl", "cannot be read"),
        ([5], "takes paths and explanations, not int"),
        ([], "no explanations to sum up"),
    ]:
        with pytest.raises(InputError, match=says):
            summary(given)  # type: ignore[arg-type]
    assert main(["summary", str(empty)]) == 1


def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        line = json.dumps({"id": "a", "error": None, **short(LAST)}) + "\n"
        path = tmp_path / "many.jsonl"
        path.write_text(line * count)
        tracemalloc.start()
        assert summary(path).ungrounded == count
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(2000) < 1.5 * peak(200)


def test_different_parts_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_PARTS", 2)
    result = summary([BOTH, LAST])
    assert len(result.parts) == 2
    assert result.parts_left_out == 2


def test_its_forms(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    path = rows(tmp_path / "whys.jsonl", BOTH, LAST)
    page, data = tmp_path / "s.html", tmp_path / "s.json"
    assert main(["summary", str(path), "--html", str(page), "--json", str(data)]) == 0
    shown = capsys.readouterr().out
    assert "1 of 2         50%      1          2  lamps.pdf" in shown
    assert "2 answers: 1 of 3 documents never mattered; 1 of 4 sentences without a source." in shown
    assert "Now it was. (a1)" in shown
    assert json.loads(data.read_text()) == summary(path).to_dict() | {
        key: json.loads(json.dumps(value)) for key, value in summary(path).to_dict().items()
    }
    text = page.read_text(encoding="utf-8")
    assert "lamps.pdf" in text
    assert "1 of 3 never mattered." in text
    assert main(["summary", str(path), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_nothing_in_the_page_is_anything_but_text() -> None:
    hostile = "<script>alert(1)</script>"
    e = documents([0.0, 0.0], NONE, context=[{"text": hostile, "source": hostile}, hostile])
    page = summary(e).to_html()
    assert "<script" not in page
    assert "style=" not in page


def test_the_digest_of_an_ensemble() -> None:
    e = toy(surrogate=[additive(), additive()], sampler="exhaustive")
    assert digest(e)["parts"][0]["name"] == "red green blue black white"
