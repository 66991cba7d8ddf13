"""The notebook runs from top to bottom, and every link in the documents leads somewhere."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.real_model
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "explain.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert notebook["nbformat"] == 4
    assert "second sentence: The town is famous for its blue pottery." in printed.getvalue()
    assert "Marta Velling was born in Kessel. [1]" in printed.getvalue()
    assert {path.name for path in tmp_path.iterdir()} == {"why.html", "ranked.png", "tokens.png"}
    assert names["explanation"]._repr_html_().endswith("</iframe></details>")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)|src=\"([^\"]+)\"", text)
    for link in filter(None, (part for pair in links for part in pair)):
        if "://" not in link:
            assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
        assert anchor in _anchors(document.parent / file if file else document), (file, anchor)


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
