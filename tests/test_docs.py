"""Links lead somewhere, commands and extras in the pages exist, the tutorials run, the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import doc_examples
import ropelime
from doc_examples import ROOT, SITE
from ropelime.cli import parser
from ropelime.typing import Floats, Masks

PAGES = doc_examples.pages()
TOML = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SHELL = {"ropelime", "pip", "make", "export", "uvx", "vllm"}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", PAGES, ids=name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)|(?:src|href)=\"([^\"]+)\"", text)
    for link in filter(None, (part for pair in links for part in pair)):
        if "://" not in link:
            assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", PAGES, ids=name)
def test_links_to_headings_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
        assert anchor in _anchors(document.parent / file if file else document), (file, anchor)


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_pages_exist(page: Path) -> None:
    """`tests/test_guide.py` runs those that need nothing else."""
    for words in doc_examples.commands(page):
        assert words[0] in SHELL
        if words[0] in ("ropelime", "uvx"):
            parser().parse_args(words[2:] if words[0] == "uvx" else words[1:])
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_extras_in_the_pages_exist(page: Path) -> None:
    extras = TOML.split("[project.optional-dependencies]")[1]
    known = set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))
    for names in re.findall(r"(?:ropelime|'\.)\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
        assert set(names.split(",")) <= known, names


def test_the_page_on_files_names_every_key() -> None:
    saved = ropelime.explain("A is. B is.", "C.", surrogate=count, preset="faithful", progress=False)
    text = (SITE / "reference/files.md").read_text(encoding="utf-8")
    table = text[text.index("## Saved explanations") : text.index("## Batch input")]
    named = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert sorted(named) == sorted(saved.to_dict())


def count(masks: Masks) -> Floats:
    return np.asarray(masks.sum(axis=1) - 9.0)


def test_the_page_on_the_http_api_names_every_route() -> None:
    pytest.importorskip("fastapi", reason="pip install 'ropelime[web]'")
    from fastapi import FastAPI

    from ropelime.web.api import router

    app = FastAPI()
    app.include_router(router)
    text = (SITE / "reference/http.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([A-Z]+ /api/[^`?]+)", text, re.MULTILINE))
    routes = [(how.upper(), path) for path, hows in app.openapi()["paths"].items() for how in hows]
    paths = [(how, path.replace("{step}", "N")) for how, path in routes]
    assert named == {f"{how} {re.sub('{.*?}', 'ID', path)}" for how, path in paths}


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="pip install 'ropelime[docs]'")
    build = [sys.executable, str(ROOT / "tools/build_docs.py"), str(tmp_path)]
    ran = subprocess.run(build, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    html = tmp_path / "html"
    sources = [p for p in PAGES if p.is_relative_to(SITE)] + list(SITE.rglob("tutorials/*.ipynb"))
    listed = (html / "llms.txt").read_text(encoding="utf-8")
    for page in sources:
        place = page.relative_to(SITE)
        assert (html / place.with_suffix(".html")).stat().st_size > 1000
        twin = (html / place.with_suffix(".md")).read_text(encoding="utf-8")
        assert len(twin) > 100
        assert place.name == "index.md" or f"({place.with_suffix('.md').as_posix()})" in listed
    commands = (html / "reference/cli.md").read_text(encoding="utf-8")
    (action,) = [a for a in parser()._actions if a.dest == "command"]
    for command in action.choices or ():
        assert f"usage: ropelime {command} [-h]" in commands
    api = (html / "reference/api.md").read_text(encoding="utf-8")
    for public in set(ropelime.__all__) - {"__version__"}:
        assert f"ropelime.{public}" in api
    for report in SITE.glob("gallery/*.html"):
        assert (html / "gallery" / report.name).read_bytes() == report.read_bytes()
