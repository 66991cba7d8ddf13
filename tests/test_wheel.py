"""The check of a built wheel; ``make dist`` runs it on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.wheel import problems

DATA = "ropelime/method/learnt.json"
GOOD = ["ropelime/__init__.py", "ropelime/py.typed", "ropelime-0.1.0.dist-info/METADATA", DATA]


def test_the_package_alone_is_right() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize("top", ["benchmarks", "tests"])
def test_what_does_not_belong_into_it_is_named(top: str) -> None:
    assert problems([*GOOD, f"{top}/a.py", f"{top}/b.py"]) == [f"{top} does not belong into the wheel"]


def test_types_must_be_marked() -> None:
    assert problems([GOOD[0], *GOOD[2:]]) == [
        "ropelime/py.typed is missing: type checkers would ignore the annotations"
    ]


def test_what_was_learnt_must_be_in_it() -> None:
    assert problems(GOOD[:3]) == [f"{DATA} is missing: the package could not be imported"]
    assert (Path(__file__).parents[1] / "src" / DATA).is_file()
