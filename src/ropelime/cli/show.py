"""``ropelime show``: a saved explanation once more."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ropelime.batch.work import short
from ropelime.cli import shared
from ropelime.errors import InputError
from ropelime.explain import Explanation, load
from ropelime.files import write_text

HELP = "show a saved explanation"
DESCRIPTION = (
    "Show an explanation that --json wrote: in the terminal, as a page, as citations, or its parts as "
    "JSON. No model is loaded."
)
EPILOG = """\
examples:
  ropelime show why.json
  ropelime show why.json --full --details
  ropelime show why.json --of "blue pottery" --top 3
  ropelime show why.json --cite --html why.html
  ropelime show why.json --json - | jq '.features[0].text'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, and what to show of it."""
    add = parser.add_argument
    add("file", type=Path, help="an explanation that --json wrote")
    text = f"explain only this part of the answer. {shared.TEXTS}"
    add("--of", metavar="TEXT", help=text)
    shared.add_output(parser, json=_place, json_help="write the ranked parts as JSON; - prints them")


def run(options: argparse.Namespace) -> None:
    """Load, write, show."""
    e = load(options.file)
    if (of := shared.text_of("--of", options.of)) is not None:
        e = _part(e, of)
    if (place := options.json) is not None:
        text = json.dumps(_parts(e), ensure_ascii=False, indent=1) + "\n"
        if str(place) == "-":
            print(text, end="")
            options.quiet = True
        else:
            write_text(place, text)
    shared.emit(e, options, save=False)


def _place(name: str) -> Path:
    """A file to write to, or standard output."""
    return Path(name) if name == "-" else shared.writable(name)


def _part(e: Explanation, text: str) -> Explanation:
    start = e.output.find(text)
    if start < 0 or not text.strip():
        raise InputError(
            f"--of: the answer does not contain {text!r}. Copy the words as they stand in it."
        )
    return e.for_output(start, start + len(text))


def _parts(e: Explanation) -> dict[str, Any]:
    """A row of ``ropelime batch`` with the name of each part's document or message."""
    row = short(e)
    for each in row["features"]:
        each["where"] = e.prompt.where(each["part"])
    return row
