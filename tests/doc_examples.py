"""The examples in Markdown pages: Python blocks with their output, and lines for a shell."""

from __future__ import annotations

import contextlib
import glob
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs"
# A Python block, and its output if that is shown.
_PYTHON = re.compile(r"```python\n(.*?)```(?:\n\n<!-- output -->\n```\n(.*?)```)?", re.DOTALL)
_SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_PERCENTAGE = re.compile(r"^(\d+)%", re.MULTILINE)


def pages() -> list[Path]:
    """Every page of the site, and those beside it; not what a build wrote."""
    beside = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
    return beside + sorted(p for p in SITE.rglob("*.md") if "_build" not in p.parts)


def python_blocks(page: Path) -> list[tuple[str, str]]:
    """Each block of Python with the output that the page shows, or an empty text."""
    return _PYTHON.findall(page.read_text(encoding="utf-8"))


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each line that a page gives to a shell."""
    for block in _SHELL.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def expanded(words: list[str]) -> list[str]:
    """The same with ``*`` replaced by the files here, as a shell does."""
    return [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]


def run(page: Path, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the Python of a page from top to bottom; each block must print what the page shows."""
    names = {} if names is None else names
    for code, shown in python_blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if shown:
            same(printed.getvalue(), shown)
    return names


def same(printed: str, shown: str) -> None:
    """Weights may differ by a few points between CPUs; the ranking and the text may not."""
    assert _PERCENTAGE.sub("", printed).split("\n") == _PERCENTAGE.sub("", shown).split("\n")
    for ours, theirs in zip(_PERCENTAGE.findall(printed), _PERCENTAGE.findall(shown), strict=True):
        assert abs(int(ours) - int(theirs)) <= 10
