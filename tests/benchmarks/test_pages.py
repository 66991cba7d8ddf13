"""Templates: every hole is filled, and the words are those of the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import benchmarks
from benchmarks import pages
from ropelime.errors import InputError

TEMPLATES = sorted((Path(benchmarks.__file__).parent / "templates").glob("*.md"))
DOCS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_is_filled_completely(path: Path) -> None:
    holes = re.findall(r"\$(\w+)", path.read_text(encoding="utf-8"))
    assert holes
    text = pages.render(path.stem, **{hole: f"<{hole}>" for hole in holes})
    assert all(f"<{hole}>" in text for hole in holes)
    assert "$" not in text
    with pytest.raises(KeyError):
        pages.render(path.stem)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_the_page_in_docs_is_made_from_its_template(path: Path) -> None:
    page = (DOCS / path.name).read_text(encoding="utf-8")
    pieces = re.split(r"\$\w+", path.read_text(encoding="utf-8"))
    place = -1
    for piece in pieces:
        found = page.find(piece.strip(), place + 1)
        assert found > place, (
            f"`python -m benchmarks report results/*` was not run after: {piece[:80]!r}"
        )
        place = found


def test_empty_holes_leave_no_gap() -> None:
    holes = dict.fromkeys(["throughput", "ray", "memory", "million"], "")
    assert "\n\n\n" not in pages.render("scale", **holes)


def test_tables_and_commands() -> None:
    assert pages.table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert pages.commands("one", "two") == "```\none\ntwo\n```"
    assert pages.blocks("a\n", "", "b") == "a\n\nb"
    assert pages.number(None) == pages.NONE
    assert pages.number(1234.5, ",.0f") == "1,234"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "docs").touch()
    with pytest.raises(InputError, match="not a folder to write into"):
        pages.folder(tmp_path / "docs")
