"""Markdown pages: templates with holes, and the blocks that fill them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.store import renewed_by
from ropelime.errors import InputError

NONE = "–"


def write(docs: Path, name: str, **holes: str) -> Path:
    """Fill ``templates/NAME.md`` and write it as a page.

    Args:
        docs: The folder of the page.
        name: The template, and the page.
        holes: The text of each hole of the template.
    """
    page = docs / f"{name}.md"
    docs.mkdir(parents=True, exist_ok=True)
    page.write_text(render(name, **holes), encoding="utf-8", newline="\n")
    return page


def render(name: str, **holes: str) -> str:
    """The text of a template with all its holes filled."""
    folder = resources.files(__package__).joinpath("templates")
    text = Template(folder.joinpath(f"{name}.md").read_text("utf-8")).substitute(holes)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def folder(docs: Path) -> None:
    """Make the folder of the pages and of their figures."""
    try:
        (docs / "figures").mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{docs} is not a folder to write into. Name another one.") from None


def blocks(*parts: str) -> str:
    """Paragraphs, tables and figures below each other; empty ones are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part)


def no_results(command: str) -> str:
    """What stands where results are missing."""
    return f"No results yet. Run: `{command}`"


def commands(*lines: object) -> str:
    """A block of commands."""
    return "\n".join(["```", *map(str, lines), "```"])


def made_by(header: Mapping[str, Any]) -> str:
    """The commands that made a results file."""
    return commands(*filter(None, (header.get("command"), *renewed_by(header))))


def files(paths: Iterable[Path]) -> str:
    """The names of results files."""
    return ", ".join(f"`{path.name}`" for path in paths)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, style: str = ".3f") -> str:
    """A number, or a dash."""
    return NONE if value is None else f"{value:{style}}"
