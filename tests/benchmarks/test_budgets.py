"""``python -m benchmarks budget`` from end to end: contexts, rows and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_toy import entry, sized, write_hotpotqa
from benchmarks import data, methods, report
from benchmarks.budgets.tables import tokens_share
from benchmarks.cli import main
from benchmarks.names import LEXICAL
from benchmarks.store import read
from benchmarks.summary import load
from conftest import byte_level, tiny_model

pytestmark = pytest.mark.slow


def test_gold_paragraphs_stand_there_twice(tmp_path: Path) -> None:
    file = write_hotpotqa(tmp_path / "h.json", [entry("x", ["One.", " Two."], ["Three."], [("A", 1)])])
    (ten,) = data.hotpotqa(file, context="all")
    (twice,) = data.hotpotqa(file, context="twice")
    assert len(twice.spans) == len(ten.spans) + 2
    assert [twice.prompt[a:b].strip() for a, b in np.array(twice.spans)[twice.gold]] == ["Two.", "Two."]


def test_other_examples_make_a_context_longer(tmp_path: Path) -> None:
    given = []
    for number in range(8):
        one = sized(f"s{number}", 4)
        titles = {title: f"{title}{number}" for title, _ in one["context"]}
        one["context"] = [[titles[t], s] for t, s in one["context"]]
        one["supporting_facts"] = [[titles[t], n] for t, n in one["supporting_facts"]]
        given.append(one)
    file = write_hotpotqa(tmp_path / "h.json", given)
    short = data.hotpotqa(file, context="all")
    long = data.hotpotqa(file, context="40")
    for a, b in zip(short, long, strict=True):
        assert 40 <= len(b.spans) < 45
        assert b.gold.sum() == a.gold.sum()
        gold = [{e.prompt[s:t].strip() for s, t in np.array(e.spans)[e.gold]} for e in (a, b)]
        assert gold[0] == gold[1]
    assert data.hotpotqa(file, context="40")[3].prompt == long[3].prompt, "the same every time"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a tiny model in two contexts."""
    folder = tmp_path_factory.mktemp("budget")
    tiny_model("llama").model.save_pretrained(folder / "tiny")
    byte_level("chatml").save_pretrained(folder / "tiny")
    write_hotpotqa(folder / "h.json", [sized(f"s{n}", 3 + n % 5) for n in range(4)])
    common = ["--data", str(folder / "h.json"), "--surrogate", str(folder / "tiny")]
    common += ["--dtype", "float32", "--device", "cpu", "--quiet"]
    for context in ("gold", "twice"):
        results = ["--results", str(folder / f"{context}.jsonl")]
        assert main(["budget", "--context", context, *common, *results]) == 0
    return folder


def test_rows_hold_costs_and_coverage(ran: Path) -> None:
    header, rows = read(ran / "gold.jsonl")
    assert header["bench"] == "budget"
    by = {(row["example"], row["method"]): row for row in rows}
    names = [m.name for m in methods.budget("gold")]
    assert {m for _, m in by} == {*names, "chance", *LEXICAL}
    for (example, name), row in by.items():
        if name in ("chance", *LEXICAL):
            continue
        assert row["run"] <= row["tokens"] + row["masks"], "shared work is run once"
        assert ("first" in row) == (name in ("evidence", "instant", "faithful", "paper"))
        assert ("covered" in row) == (example == "s0" or example == "s3") or "nll" not in name
    assert by["s0", "exact, 64"]["covered"] is not None
    assert by["s0", "evidence"]["tokens"] < by["s0", "leave-one-out"]["tokens"]


def test_the_page(ran: Path, tmp_path: Path) -> None:
    written = report.write([ran / "gold.jsonl", ran / "twice.jsonl"], tmp_path)
    page = (tmp_path / "budget.md").read_text(encoding="utf-8")
    assert written[0] == tmp_path / "budget.md"
    for words in ("## Gold paragraphs", "## Duplicated evidence", "## Intervals", "paper, Qwen-8B"):
        assert words in page
    missing = "No results yet. Run: `python -m benchmarks budget --context"
    assert f"{missing} all --data FILE`" in page
    assert f"{missing} gold --data FILE`" not in page
    assert str(ran) not in page, "no path of this machine"
    report.write([ran / "twice.jsonl", ran / "gold.jsonl"], tmp_path)
    assert len((tmp_path / "budget.md").read_text(encoding="utf-8")) == len(page)


def rows_of(method: str, count: int, **figures: Any) -> list[dict[str, Any]]:
    """Rows of one method."""
    return [
        {
            "example": str(i), "group": "all", "features": 40, "gold": 2, "method": method,
            "iou": i / count, "f1": i / count, "auroc": i / count, "lds": i / count,
            "first": float(i > count / 2), "masks": 42, "tokens": 100, "run": 90, "covered": 0.9,
            "halfwidth": 0.1, "reach": 1.0, **figures,
        }
        for i in range(count)
    ]  # fmt: skip


def test_tokens_are_compared_with_those_of_contextcite(tmp_path: Path) -> None:
    names = ["evidence", "faithful", "contextcite"]
    header = {
        "ropelime-results": 1, "bench": "budget", "context": "all", "methods": names, "examples": 40,
        "surrogate": {"name": "smollm2"}, "seed": 0, "command": "python -m benchmarks budget",
    }  # fmt: skip
    rows = [*rows_of("evidence", 40), *rows_of("faithful", 40)]
    rows += rows_of("contextcite", 40, tokens=1000, f1=0.1, lds=0.2)
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [header, *rows]) + "\n", encoding="utf-8")
    results = load(path)
    assert tokens_share(results, "evidence", "tokens") == pytest.approx(0.1)
    report.write([path], tmp_path)
    page = (tmp_path / "budget.md").read_text(encoding="utf-8")
    assert "| 42 | 100 | 0.100 | 90 | 0.090 |" in page


@pytest.mark.slow
def test_other_ablations_compare_exact_scores_only(ran: Path, tmp_path: Path) -> None:
    common = ["--data", str(ran / "h.json"), "--surrogate", str(ran / "tiny")]
    common += ["--dtype", "float32", "--device", "cpu", "--quiet", "--limit", "3", "--context", "all"]
    for how in ("delete", "in-place"):
        results = ["--results", str(tmp_path / f"{how}.jsonl")]
        assert main(["budget", "--ablation", how, *common, *results]) == 0
    header, rows = read(tmp_path / "in-place.jsonl")
    assert header["ablation"] == "in-place"
    assert "--ablation in-place" in header["command"]
    assert {row["method"] for row in rows} >= {"leave-one-out, exact", "contextcite"}
    assert not {row["method"] for row in rows} & {"evidence", "leave-one-out, cached", "cached, 128"}
    report.write([tmp_path / "delete.jsonl", tmp_path / "in-place.jsonl"], tmp_path)
    page = (tmp_path / "budget.md").read_text(encoding="utf-8")
    assert "hidden from all tokens after it (exact, in place)" in page
