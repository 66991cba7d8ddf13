"""Speed of several checkouts: which folders are accepted, and the rows and the table they give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_toy import sized, write_hotpotqa
from benchmarks import cli
from benchmarks.speed import accelerators, versions
from ropelime.errors import InputError

ROOT = Path(__file__).parents[2]


def test_checkouts_have_names_and_the_package() -> None:
    assert versions.checkouts([f"after={ROOT}"]) == {"after": ROOT / "src"}
    for wrong in (str(ROOT), f"after={ROOT / 'docs'}", "after="):
        with pytest.raises(InputError, match="must be NAME=FOLDER"):
            versions.checkouts([wrong])


@pytest.mark.slow
@pytest.mark.real_model
def test_rows_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, file = tmp_path / "hotpot.json", tmp_path / "versions-cpu.jsonl"
    write_hotpotqa(data, [sized("four", 4), sized("three", 3)])
    arguments = ["versions", f"before={ROOT}", f"after={ROOT}", "--data", str(data), "--rounds", "1"]
    arguments += ["--limit", "2"]
    assert cli.main([*arguments, "--results", str(file), "--device", "cpu", "--quiet"]) == 0
    rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    tasks = ["default"] * 3 + ["exact"]
    assert [row["configuration"] for row in rows] == ["before"] * 4 + ["after"] * 4
    assert [row["task"] for row in rows] == tasks * 2
    assert {row["tokens"] for row in rows[:3]} == {row["tokens"] for row in rows[4:7]}
    assert rows[0]["prompts"] == 2
    assert 0 < rows[0]["width"] == rows[4]["width"] <= 1
    assert 0 < rows[0]["median_width"] <= 1
    table = accelerators.tables([file], "versions").splitlines()
    assert table[-4].endswith("| mean width of intervals | median | prompts |")
    assert table[0].startswith("### Versions: ")
    assert [line.split(" | ")[0] for line in table[-2:]] == ["| before", "| after"]
