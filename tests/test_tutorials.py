"""The tutorials run from top to bottom and print what they show."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from doc_examples import SITE
from ropelime import Explanation

NOTEBOOKS = sorted((SITE / "tutorials").glob("*.ipynb"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells(path):
        printed, value = run("".join(cell["source"]), names)
        same(printed, "".join(o["text"] for o in map(joined, cell["outputs"]) if "text" in o))
        shown = [kind for o in cell["outputs"] for kind in o.get("data", {})]
        assert ("text/html" in shown) == isinstance(value, Explanation)
        assert ("image/png" in shown) == hasattr(value, "savefig")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_has_its_outputs(path: Path) -> None:
    numbers = [cell["execution_count"] for cell in cells(path)]
    assert numbers == list(range(1, len(numbers) + 1)), "run `make notebooks`"
    kinds = {kind for cell in cells(path) for o in cell["outputs"] for kind in o.get("data", {})}
    assert "image/png" in kinds
    assert path.stat().st_size < 400_000


def cells(path: Path) -> list[dict[str, Any]]:
    every = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in every if cell["cell_type"] == "code"]


def joined(output: dict[str, Any]) -> dict[str, Any]:
    return {**output, "text": "".join(output["text"])} if "text" in output else output


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line."""
    tree = ast.parse(source.removeprefix("%matplotlib inline\n"))
    last = tree.body[-1] if isinstance(tree.body[-1], ast.Expr) else None
    tree.body = tree.body[: -1 if last else None]
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def same(printed: str, shown: str) -> None:
    """The same text; numbers may differ a little between CPUs."""
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    for ours, theirs in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        near = 0.15 if "." in theirs else max(15, 0.1 * abs(float(theirs)))
        assert abs(float(ours) - float(theirs)) <= near
