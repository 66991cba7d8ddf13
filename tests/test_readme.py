"""The README's example prints the output shown, and its tables match the results files."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.store import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "results" / "hotpotqa-gold.jsonl.xz"


@pytest.mark.real_model
def test_the_example_prints_the_output_shown() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (shown,) = re.findall(r"<!-- output -->\n```\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    # Weights differ by a point or two between CPUs, so close ones may change places.
    ours, theirs = _percentages(printed.getvalue()), _percentages(shown)
    assert ours.keys() == theirs.keys()
    for sentence, percentage in ours.items():
        assert abs(percentage - theirs[sentence]) <= 10


def _percentages(text: str) -> dict[str, int]:
    return {sentence: int(n) for n, sentence in re.findall(r"^(\d+)% (.+)$", text, re.MULTILINE)}


def test_the_gold_table_matches_the_results() -> None:
    _, rows = read(RESULTS)
    groups = ("2-3", "4-5", "6-8", "9-11", "12+")
    shown = {
        'preset="paper"`, 135M': "sparse-k",
        "leave-one-out, 135M": "leave-one-out",
        "ContextCite's estimator, 135M": "contextcite",
        "BM25(question + answer)": "BM25(question + answer)",
        "longest common substring": "longest common substring",
        "chance": "chance",
    }
    for label, method in shown.items():
        (line,) = [
            line
            for line in README.splitlines()
            if line.startswith(("| " + label, "| `" + label)) and line.count("|") == 7
        ]
        for group, cell in zip(groups, line.split("|")[2:-1], strict=True):
            values = [r["iou"] for r in rows if (r["method"], r["group"]) == (method, group)]
            assert float(cell) == round(sum(values) / len(values), 3)


def test_the_first_table_matches_the_results() -> None:
    names = ("closed-hotpotqa-qwen2.5-coder-1.5b-smollm2", "closed-lfqa-qwen2.5-coder-1.5b-smollm2")
    files = [*names, "closed-reference-smollm2"]
    found = [read(ROOT / "results" / f"{name}.jsonl.xz")[1] for name in files]
    asked = (0, "necessity1"), (0, "lds"), (1, "necessity1"), (1, "lds"), (2, "f1"), (2, "auroc")
    ours = {"ContextCite's estimator": "contextcite", "AT2": "AT2 (hotpotqa)"}
    rows = re.findall(r"^\| ([^|]+)((?: \| [\d.–]+){6}) \| [\d,–]+ \|$", README, re.MULTILINE)
    assert len(rows) == 11
    for label, cells in rows:
        name = label.removeprefix('`preset="').removesuffix('"`')
        name = ours.get(name, name)
        for (file, key), cell in zip(asked, cells.split(" | ")[1:], strict=True):
            every = [row["rankings"] for row in found[file] if "rankings" in row]
            own = [r.get(name) or r.get(f"smollm2: {name}") or {} for r in every]
            values = [row[key] for row in own if row.get(key) is not None]
            assert cell == (f"{sum(values) / len(values):.2f}" if values else "–"), (label, key)


def test_the_budget_rows_match_the_results() -> None:
    files = {"135M": "smollm2", "1.5B": "qwen2.5-coder-1.5b-instruct"}
    named = {"`evidence` before words": "evidence", '`preset="faithful"`': "faithful"}
    named["ContextCite's estimator"] = "contextcite"
    rows = re.findall(r"^\| (.+), (135M|1\.5B) \| (.+) \|$", README, re.MULTILINE)
    assert len(rows) == 11
    for name, size, cells in rows:
        ten = cells.count("|") == 3
        if not ten and name != "`evidence` before words":
            continue  # from the other experiment
        file = ROOT / "results" / f"budget-{'all' if ten else 'gold'}-{files[size]}.jsonl.xz"
        found = [row for row in read(file)[1] if row["method"] == named[name]]
        if ten:
            ours = [_mean(found, key) for key in ("f1", "auroc", "lds", "tokens")]
            expected = [*(f"{value:.3f}" for value in ours[:3]), f"{ours[3]:,.0f}"]
        else:
            groups = ("2-3", "4-5", "6-8", "9-11", "12+")
            expected = [f"{_mean([r for r in found if r['group'] == g], 'iou'):.3f}" for g in groups]
        assert cells.split(" | ") == expected, (name, size)


def test_the_rankings_by_words_match_the_results() -> None:
    files = {"300": "smollm2", "200": "qwen2.5-coder-1.5b-instruct"}
    rows = re.findall(r"^\| (.+), the (300|200) examples \| (.+) \|$", README, re.MULTILINE)
    assert len(rows) == 5
    for name, count, cells in rows:
        _, found = read(ROOT / "results" / f"budget-all-{files[count]}.jsonl.xz")
        own = [row for row in found if row["method"] == name]
        assert len(own) == int(count)
        assert cells == " | ".join([*(f"{_mean(own, key):.3f}" for key in ("f1", "auroc")), "–", "–"])


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    values = [row[key] for row in rows if row[key] is not None]
    return float(sum(values) / len(values))
