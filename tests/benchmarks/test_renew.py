"""The rows of the present presets, made anew in results files of experiments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_toy import sized, write_hotpotqa
from benchmarks import data, experiments, pages
from benchmarks.cli import main, shared
from benchmarks.cli.closed import short
from benchmarks.closed.place import COUNTED
from benchmarks.names import EVIDENCE, FAITHFUL, INSTANT, LEAVE_ONE_OUT_CACHED
from benchmarks.store import Row, read, renewals, rewrite
from ropelime.errors import InputError
from ropelime.surrogate import Surrogate

_TIMED = ("seconds",)  # what no two runs have in common


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two examples."""
    return write_hotpotqa(tmp_path / "hotpot.json", [sized("four", 4), sized("five", 5)])


@pytest.fixture
def made(source: Path, tiny: Callable[..., Surrogate], tmp_path: Path) -> Path:
    """A new results file."""
    path = tmp_path / "budget-twice.jsonl"
    examples = data.hotpotqa(source, context="twice")
    how: dict[str, Any] = {"context": "twice", "seed": 3, "limit": None, "command": "it"}
    experiments.run("budget", examples, tiny(), path, **how)
    return path


def plain(path: Path) -> dict[tuple[str, str], Row]:
    """The rows by example and method, without what no two runs have in common."""
    return {
        (row["example"], row["method"]): {k: v for k, v in row.items() if k not in _TIMED}
        for row in read(path)[1]
    }


def test_an_old_file_gets_the_rows_of_a_new_run(
    made: Path, source: Path, tiny: Callable[..., Surrogate]
) -> None:
    expected, (header, rows) = plain(made), read(made)
    old = [name for name in header["methods"] if name != INSTANT]
    stale = (EVIDENCE, LEAVE_ONE_OUT_CACHED)
    changed = [
        {**row, "f1": -1.0} if row["method"] in stale else row
        for row in rows
        if row["method"] != INSTANT
    ]
    rewrite(made, [{**header, "methods": old}, *changed])
    assert experiments.renew(made, source, tiny(), "again") > 0
    found = read(made)[0]
    assert plain(made) == expected
    assert found["methods"] == header["methods"], "in the order of a new run"
    assert (found["command"], found["renewed_by"]) == ("it", ["again"])
    assert not any("seconds" in row for row in read(made)[1] if row["method"] in (INSTANT, *stale))


def test_other_rows_stay_as_they_are(made: Path, source: Path, tiny: Callable[..., Surrogate]) -> None:
    header, rows = read(made)
    rewrite(made, [header, *({**row, "seconds": -7.0} for row in rows)])
    experiments.renew(made, source, tiny(), "again")
    kept = {row["method"] for row in read(made)[1] if row.get("seconds") == -7.0}
    assert FAITHFUL in kept
    assert kept.isdisjoint({EVIDENCE, INSTANT})


def test_the_command_names_the_file(
    made: Path, source: Path, tiny: Callable[..., Surrogate], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny()
    monkeypatch.setattr(shared, "load", lambda options: model)
    words = ["renew", str(made), "--data", str(source), "--surrogate", short(model.name)]
    assert main([*words, "--quiet"]) == 0
    by = f"renew results/{made.name} --surrogate {short(model.name)} --data {source.name}"
    assert read(made)[0]["renewed_by"] == [f"python -m benchmarks {by}"]


def test_the_arena(
    source: Path, tiny: Callable[..., Surrogate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the same version stay what they are, and the header says what was done."""
    model, path = tiny(), tmp_path / "closed.jsonl"
    name = short(model.name)
    monkeypatch.setattr(shared, "load", lambda *_: model)
    given = ["--data", str(source), "--surrogate", name, "--quiet"]
    line = ["closed", "reference", "--cached-only", "--only", "evidence", "instant"]
    assert main([*line, "--results", str(path), *given]) == 0
    first, before = read(path)
    assert first["last_part"] == {name: COUNTED}
    assert main(["renew", str(path), *given]) == 0
    header, after = read(path)
    assert after == before
    assert header["last_part"] == first["last_part"]
    assert header["renewed_by"] == [
        f"python -m benchmarks renew results/closed.jsonl --surrogate {name} --data {source.name}"
    ]
    assert header["renewed_with"][name]["name"] == name


def test_all_commands_that_renewed_are_kept() -> None:
    """Also those of older files, which have one of them."""
    old: Row = {"command": "it", "renewed_by": "first", "renewed_with": {"name": "a"}}
    found = renewals(old, "second", {"name": "b"})
    assert found == {"renewed_by": ["first", "second"], "renewed_with": {"name": "b"}}
    assert renewals(found, "second", {}) == found
    assert pages.made_by(old).splitlines()[1:-1] == ["it", "first"]
    assert pages.made_by({**old, **found}).splitlines()[1:-1] == ["it", "first", "second"]
    assert pages.made_by({"command": "it"}).splitlines()[1:-1] == ["it"]


def test_an_unfinished_file_is_refused(
    made: Path, source: Path, tiny: Callable[..., Surrogate]
) -> None:
    header, rows = read(made)
    rewrite(made, [header, *(row for row in rows[:-1] if row["method"] != FAITHFUL)])
    before = made.read_bytes()
    with pytest.raises(InputError, match=r"has no row of .*: finish the run first"):
        experiments.renew(made, source, tiny(), "again")
    assert made.read_bytes() == before


def test_another_surrogate_is_refused(made: Path, source: Path, capsys: Any) -> None:
    before = made.read_bytes()
    command = ["renew", str(made), "--data", str(source), "--surrogate", "somebody/else"]
    assert main(command) == 1
    assert "was made by" in capsys.readouterr().err
    assert made.read_bytes() == before


def test_other_experiments_are_refused(tmp_path: Path, source: Path, capsys: Any) -> None:
    path = tmp_path / "sweep.jsonl"
    rewrite(path, [{"ropelime-results": 1, "bench": "sweep", "methods": []}])
    assert main(["renew", str(path), "--data", str(source)]) == 1
    assert "holds results of 'sweep'" in capsys.readouterr().err
