"""Threads are limited by the container, and the user has the last word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ropelime.surrogate import threads


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 8)],
)
def test_no_more_than_the_container_has(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert threads.limit(8, quota=quota) == expected
    assert threads.limit(1, quota=quota) == 1
    assert threads.limit(8, quota=tmp_path / "none") == 8


def test_a_number_that_was_asked_for_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000")
    assert threads.limit(8, quota=quota) == 8


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "1000 256 16"),
        ({"GOMP_SPINCOUNT": "7", "LRU_CACHE_CAPACITY": "8"}, "7 256 8"),
        ({"OMP_WAIT_POLICY": "active"}, "None 256 16"),
    ],
)
def test_what_torch_reads_is_set_before_it_only(given: dict[str, str], expected: str) -> None:
    names = ("GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    code = (
        "import os; from ropelime.surrogate import threads; threads.before_torch(); "
        f"print(*map(os.environ.get, {names}))"
    )
    unset = {k: v for k, v in os.environ.items() if k not in (*names, "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=unset | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
