"""The table of accelerators, from made-up timings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.speed import accelerators
from benchmarks.store import compress
from ropelime.errors import InputError

Row = dict[str, Any]


def row(name: str, task: str, seconds: float, *, number: int = 1, **more: Any) -> Row:
    known = {"configuration": name, "round": number, "task": task, "seconds": seconds}
    return {**known, "tokens": 2012, "cpu": "A chip", "torch": "2.13.0", **more}


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        row("no-tiles", "default", 3.0),
        row("all", "loading", 9.0),
        row("all", "default", 2.0),
        row("all", "default", 2.2),
        row("all", "default", 2.4),
        row("all", "default", 3.0, number=2),
        row("no-tiles", "64 masks", 40.0, tokens=34_603),
        row("all", "exact", 50.0, tokens=34_603),
        {"configuration": "no-norms", "round": 1, "task": "failed", "why": "no such module"},
        row("slow", "default", 5.2, tokens=2013),
    ]
    return write(tmp_path / "accelerators-cpu.jsonl", rows)


def test_medians_and_gains(file: Path) -> None:
    text = accelerators.tables([file], "accelerators")
    lines = text.splitlines()
    assert lines[0] == "### Accelerators: A chip, torch 2.13.0"
    # The rounds of "all" have the medians 2.2 and 3.0, and so 2.6 together.
    assert lines[4] == "| all | 2.60 | 2,012 | – | 50.00 | 34,603 | – |"
    assert lines[5] == "| no-tiles | 3.00 | 2,012 | +15% | 40.00 | 34,603 | -20% |"
    assert lines[6] == "| slow | 5.20 | 2,013 | +100% | – | – | – |"
    assert len(lines) == 7, "nothing of what failed"


def test_machines_and_conditions_are_not_mixed(tmp_path: Path) -> None:
    rows = [
        row("all", "default", 2.0, dtype="bfloat16", threads=2, command="python accelerators.py"),
        row("all", "default", 4.0, dtype="bfloat16", threads=2, busy=True),
        row("all", "default", 0.1, dtype="bfloat16", threads=8, gpu="A card", disturbed=True),
    ]
    text = accelerators.tables([write(tmp_path / "accelerators-a.jsonl", rows)], "accelerators")
    titles = [line for line in text.splitlines() if line.startswith("###")]
    assert titles == [
        "### Accelerators: A chip, 2 threads, bfloat16, torch 2.13.0",
        "### Accelerators: A chip, 2 threads, bfloat16, torch 2.13.0, one core busy with other work",
        "### Accelerators: A card, bfloat16, torch 2.13.0",
    ]
    assert "```\npython accelerators.py\n```" in text
    assert text.count("Other processes disturbed 1 of 1 timings") == 1


@pytest.mark.parametrize("packed", [False, True])
def test_the_section_of_the_page(file: Path, tmp_path: Path, packed: bool) -> None:
    path = compress(file) if packed else file
    (written,) = report.write([path], tmp_path / "docs")
    text = written.read_text(encoding="utf-8")
    section = text.split("\n## Accelerators\n")[1].split("\n## ")[0]
    assert "| no-tiles | 3.00 | 2,012 | +15% |" in section
    assert f"`{path.name}`" in text


def test_rows_without_timings_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "accelerators-x.jsonl", [row("all", "default", 1.0), {"task": "default"}])
    with pytest.raises(
        InputError, match="line 2: no configuration, cpu, round, seconds, tokens, torch"
    ):
        accelerators.tables([path], "accelerators")
    assert accelerators.tables([], "accelerators") == "No results yet."
