"""What the site has besides its pages: help texts, saved reports, Markdown twins and ``llms.txt``."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH = "100"  # columns of the help texts
ABOUT = "Which part of my prompt made the model say that? A Python library and a command line."


class CommandHelp(SphinxDirective):
    """``{command-help} explain``: what ``ropelime explain --help`` prints, when the site is built."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A literal block."""
        text = command_help(self.arguments[0])
        return [nodes.literal_block(text, text, language="none")]


def command_help(name: str) -> str:
    """The help text of a command; of all of them together for ``ropelime``."""
    from ropelime.cli import parser

    os.environ["COLUMNS"] = WIDTH  # argparse wraps at the width of the terminal
    os.environ["NO_COLOR"] = "1"
    top = parser()
    if name == "ropelime":
        return top.format_help()
    return commands(top)[name].format_help()


def commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of the command line by their names."""
    (action,) = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(action.choices)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Add saved reports to a built site, and its pages as Markdown if they have been made."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for report in sorted(Path(app.srcdir, "gallery").glob("*.html")):
        (out / "gallery").mkdir(exist_ok=True)
        shutil.copy(report, out / "gallery" / report.name)
    twins = out.parent / "markdown"
    if twins.is_dir():
        for page in twins.rglob("*.md"):
            place = out / page.relative_to(twins)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, place)
        (out / "llms.txt").write_text(index(app, twins), encoding="utf-8")


def index(app: Sphinx, twins: Path) -> str:
    """``llms.txt``: the title and the first sentence of every page, with the address of its twin."""
    lines = ["# RoPE-LIME", "", f"> {ABOUT}"]
    for section, pages in sections(app).items():
        lines += ["", f"## {section}", ""]
        for page in pages:
            first = first_sentence((twins / f"{page}.md").read_text(encoding="utf-8"))
            lines.append(f"- [{app.env.titles[page].astext()}]({page}.md): {first}".rstrip(": "))
    return "\n".join(lines) + "\n"


def sections(app: Sphinx) -> dict[str, list[str]]:
    """The pages under each heading of the site's table of contents, in its order."""
    env, found = app.env, {}
    for tree in env.get_doctree(env.config.root_doc).findall(lambda n: n.tagname == "toctree"):
        pages: list[str] = []
        for name in tree["includefiles"]:
            pages += [name, *env.toctree_includes.get(name, [])]
        found[tree["caption"] or "Pages"] = pages
    return found


def first_sentence(text: str) -> str:
    """The first sentence below the title, without links and marks."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(("#", "<", "!"))]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(blocks[0].split())) if blocks else ""
    return re.split(r"(?<=[.?!:]) ", re.sub(r"[*`]", "", plain))[0]


def plain_marks(app: Sphinx, tree: nodes.document, _: str) -> None:
    """Marks of signatures as text: the Markdown builder does not know abbreviations."""
    if app.builder.name == "markdown":
        for node in list(tree.findall(nodes.abbreviation)):
            node.replace_self(nodes.Text(node.astext()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the last step."""
    app.add_directive("command-help", CommandHelp)
    app.connect("doctree-resolved", plain_marks)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
