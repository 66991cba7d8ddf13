"""``ropelime summary``: what many answers rest on."""

from __future__ import annotations

import argparse

from ropelime.cli.shared import writable
from ropelime.progress import note
from ropelime.summary import summary
from ropelime.text.display import plain

HELP = "sum up the output of `ropelime batch`"
DESCRIPTION = (
    "Sum up many explanations: which documents, messages and instructions ever mattered and which "
    "never did, their shares, the sentences without a source, and the cost."
)
EPILOG = """\
A part of the prompt matters to an answer if a sentence of the answer comes from it. Documents are told
apart by their source, or by their text if they have none; messages by place and role; instructions
(system and developer messages) and plain prompts by sentence. Files are read line by line; damaged
lines are named and skipped.

examples:
  ropelime summary whys.jsonl
  ropelime summary monday.jsonl tuesday.jsonl --html summary.html --json summary.json
  ropelime summary why.json other.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files."""
    add = parser.add_argument
    text = "output of `ropelime batch`, or a saved explanation"
    add("files", nargs="+", metavar="FILE", help=text)
    add("--json", type=writable, metavar="FILE", help="write the summary as JSON")
    add("--html", type=writable, metavar="FILE", help="write a self-contained HTML page")
    add("--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> None:
    """Read, show, write."""
    result = summary(options.files)
    if options.json:
        result.save(options.json)
    if options.html:
        result.to_html(options.html)
    for problem in result.problems:
        note(f"ropelime: skipped {plain(problem)}")
    if options.quiet:
        return
    from ropelime.views.tables import show_summary

    show_summary(result)
    for path in filter(None, (options.json, options.html)):
        print(f"Written to {path}")
