"""Batches measured, and the page of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.scale import page
from benchmarks.scale.measure import short_lines
from benchmarks.store import Store, read


def results(path: Path, *, gpu: str | None = None, batch: float = 2.0, **more: Any) -> Path:
    machine = {"cpu": "a chip", "cores": 2, "threads": 2, **({"gpu": gpu} if gpu else {})}
    model = {"name": "tiny", "dtype": "bfloat16"}
    header = {
        "bench": "batch",
        "surrogate": model,
        "machine": machine,
        "command": "python -m benchmarks",
    }
    store = Store(path, header, ["speed"])
    row = {"lines": 100, "loop": [10.0, 20.0, 10.0], "batch": [batch, batch, 99.0], "tokens": 300.0}
    differences = {"max weight difference": 1e-6, "max normalised weight difference": 2e-7}
    store.add("speed", [{"example": "speed", "method": "speed", **row, **differences}])
    for unit, found in more.items():
        store.add(unit, [{"example": unit.replace("_", ", "), "method": "speed", **found}])
    return path


def test_the_sum_for_a_million(tmp_path: Path) -> None:
    page.write([results(tmp_path / "h.jsonl", gpu="NVIDIA H200")], tmp_path)
    text = (tmp_path / "scale.md").read_text()
    assert "1,000,000 / (50.0 per second and GPU) = 20,000 s of GPU time = 5.6 GPU hours" in text
    assert "| tiny, bfloat16 | 8 | 400 | 42 min | 5.6 |" in text
    assert "| tiny, bfloat16 | 64 | 3,200 | 5 min | 5.6 |" in text
    assert "| tiny, bfloat16 | NVIDIA H200 | 10.00 | 50.00 | **5.00 ×** | 1e-06 | 2e-07 | 300 |" in text
    assert "## Memory" not in text
    page.write([tmp_path / "h.jsonl"], tmp_path)
    assert (tmp_path / "scale.md").read_text() == text, "the same files, the same page"


def test_without_an_h200_the_page_says_how_to_measure_one(tmp_path: Path) -> None:
    ray = {"lines": 100, "actors": 1, "start": [5.0], "per second": [8.0]}
    ray["local per second"] = [10.0]
    memory = {"lines": 1000, "resident": [[0, 1 << 20], [100, 3 << 20], [1000, 4 << 20]]}
    path = results(tmp_path / "c.jsonl", batch=10.0, ray_1=ray, memory_1=memory)
    page.write([path], tmp_path)
    text = (tmp_path / "scale.md").read_text()
    assert "No results yet. Run: `python -m benchmarks batch --device cuda`" in text
    assert "| 1 | 10.00 | 8.00 | 0.80 × | +25.0 ms | 5 s |" in text
    assert "| tiny, bfloat16 | a chip, 2 threads | 1,000 | 3 MiB | 4 MiB | 4 MiB |" in text


def test_short_lines_differ_and_are_the_same_again() -> None:
    lines = short_lines(50)
    assert lines == short_lines(50)
    assert len({json.dumps(line) for line in lines}) == 50


@pytest.mark.slow
def test_the_command_measures_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    how = ["--shape", "tiny", "--lines", "6", "--rounds", "1", "--memory", "12", "--together", "4"]
    command = ["batch", *how, "--device", "cpu", "--dtype", "float32", "--quiet"]
    assert main([*command, "--results", str(path)]) == 0
    header, rows = read(path)
    assert header["command"].startswith("python -m benchmarks batch --device cpu")
    assert header["surrogate"]["name"] == "tiny, random weights"
    assert [row["example"] for row in rows] == ["speed", "memory, 12 lines"]
    assert rows[0]["max weight difference"] < 1e-4
    assert rows[1]["resident"][-1][0] == 12
    before = path.read_bytes()
    assert main([*command, "--results", str(path)]) == 0
    assert path.read_bytes() == before
    assert main(["report", str(path), "--docs", str(tmp_path)]) == 0
