"""Ctrl-C on the command line: what was scored is shown, and the exit code says that it is not all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropelime import cli
from ropelime.errors import Interrupted
from toy import toy


def test_what_was_scored_is_shown_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def explain(**_: Any) -> Any:
        raise Interrupted(toy())

    monkeypatch.setattr("ropelime.cli.explain.explain", explain)
    (tmp_path / "p.txt").write_text("One is here. Two is there.", encoding="utf-8")
    found = tmp_path / "e.json"
    line = ["explain", "--prompt", f"@{tmp_path / 'p.txt'}", "--output", "So.", "--json", str(found)]
    assert cli.main(line) == 130
    shown = capsys.readouterr()
    assert "red" in shown.out
    assert "what was scored until then is kept" in shown.err
    assert found.exists()
