"""Some seconds of every fuzzer; ``make fuzz`` runs them for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import FUZZERS, kills
from fuzz.harness import run

CASES = {
    "cli": pytest.param("cli", 120),
    "saved": pytest.param("saved", 150),
    "api": pytest.param("api", 80, marks=pytest.mark.slow),
    "cutter": pytest.param("cutter", 1000),
    "traces": pytest.param("traces", 1000),
}


@pytest.mark.parametrize(("name", "cases"), CASES.values(), ids=CASES)
def test_a_fuzzer_finds_nothing(name: str, cases: int) -> None:
    found, counts = run(FUZZERS[name], cases=iter(range(cases)))
    assert not found, "\n".join(map(str, found))
    assert sum(counts.values()) == cases
    assert len(counts) > 1, "some cases go well and some are refused"


def test_every_fuzzer_is_run() -> None:
    assert set(CASES) == set(FUZZERS)


@pytest.mark.slow
def test_a_batch_that_is_killed(tmp_path: Path) -> None:
    assert kills.run(2, "local", 0, tmp_path)
