"""The README's example prints the output shown, and tables match the results files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import doc_examples
from benchmarks.cli import main
from benchmarks.closed import headline
from benchmarks.store import read
from ropelime.errors import InputError

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SUMMARY = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")
RESULTS = ROOT / "results"


@pytest.mark.real_model
def test_the_example_prints_the_output_shown() -> None:
    ((_, shown),) = doc_examples.python_blocks(README)
    assert shown
    doc_examples.run(README)


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert text.count("| ---") == len(headline.COLUMNS) + 1, "one table"
    assert "`make demo`" in text
    assert "`make test`" in text


def test_the_table_is_what_the_results_say(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(README.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["headline", "--readme", str(copy), "--results", str(RESULTS)]) == 0
    assert copy.read_bytes() == README.read_bytes(), "run `python -m benchmarks headline`"
    shown = copy.read_text(encoding="utf-8")
    _, rows = read(RESULTS / "closed-hotpotqa-qwen2.5-coder-1.5b-smollm2.jsonl.xz")
    ours = [row["rankings"]["smollm2: evidence"]["necessity1"] for row in rows if "rankings" in row]
    known = [value for value in ours if value is not None]
    cell = f"{sum(known) / len(known):.2f}"
    assert re.search(rf'^\| `preset="evidence"`, the default \| {cell} \|', shown, re.MULTILINE)


def test_the_table_has_every_ranking_by_words() -> None:
    shown = README.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (BM25\([^|]*\)|longest common substring) \| (.*) \|$", shown, re.M))
    for name, cells in rows.items():
        expected = []
        for file, measure in list(headline.COLUMNS.values())[:3]:
            _, found = read(RESULTS / f"{file}.jsonl.xz")
            own = [row["rankings"][name] for row in found if "rankings" in row]
            expected.append(f"{_mean(own, measure):.2f}")
        assert cells == " | ".join([*expected, "–"])
    assert list(rows) == [
        "BM25(question)",
        "BM25(answer)",
        "BM25(question + 2 × answer)",
        "longest common substring",
    ]


def test_a_readme_without_a_place_for_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("No table.\n", encoding="utf-8")
    with pytest.raises(InputError, match="has 0 places for the table"):
        headline.update(tmp_path / "README.md", RESULTS)


def test_the_gold_table_matches_the_results() -> None:
    _, rows = read(RESULTS / "hotpotqa-gold.jsonl.xz")
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
            for line in SUMMARY.splitlines()
            if line.startswith(("| " + label, "| `" + label)) and line.count("|") == 7
        ]
        for group, cell in zip(groups, line.split("|")[2:-1], strict=True):
            values = [r["iou"] for r in rows if (r["method"], r["group"]) == (method, group)]
            assert float(cell) == round(sum(values) / len(values), 3)


def test_the_budget_rows_match_the_results() -> None:
    files = {"135M": "smollm2", "1.5B": "qwen2.5-coder-1.5b-instruct"}
    named = {f'`preset="{name}"`': name for name in ("evidence", "instant", "faithful")}
    named["ContextCite's estimator"] = "contextcite"
    rows = re.findall(r"^\| (.+), (135M|1\.5B) \| (.+) \|$", SUMMARY, re.MULTILINE)
    assert len(rows) == 14
    for name, size, cells in rows:
        ten = cells.count("|") == 3
        if not ten and named.get(name) not in ("evidence", "instant"):
            continue  # from the other experiment
        file = RESULTS / f"budget-{'all' if ten else 'gold'}-{files[size]}.jsonl.xz"
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
    rows = re.findall(r"^\| (.+), the (300|200) examples \| (.+) \|$", SUMMARY, re.MULTILINE)
    assert len(rows) == 5
    for name, count, cells in rows:
        _, found = read(RESULTS / f"budget-all-{files[count]}.jsonl.xz")
        own = [row for row in found if row["method"] == name]
        assert len(own) == int(count)
        assert cells == " | ".join([*(f"{_mean(own, key):.3f}" for key in ("f1", "auroc")), "–", "–"])


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    values = [row[key] for row in rows if row[key] is not None]
    return float(sum(values) / len(values))
