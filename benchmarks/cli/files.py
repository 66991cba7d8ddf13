"""``report``, ``headline``, ``compress`` and ``lexical``: what is done with results files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cli import shared


def add(commands: Any) -> None:
    """Add these commands."""
    text = "make the pages of docs/results from results files"
    kind = shared.new_command(commands, "report", text)
    kind.add_argument("results", nargs="+", type=Path, metavar="FILE", help="compressed or not")
    text = "the folder of the documentation; pages go to its folder results (default docs)"
    kind.add_argument("--docs", type=Path, default=Path("docs"), metavar="FOLDER", help=text)
    kind.set_defaults(run=report)
    text = "replace the table of the README by what the results files say"
    kind = shared.new_command(commands, "headline", text)
    kind.add_argument("--readme", type=Path, default=Path("README.md"), metavar="FILE")
    kind.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    kind.set_defaults(run=headline)
    kind = shared.new_command(commands, "compress", "replace finished results files by FILE.xz")
    kind.add_argument("results", nargs="+", type=Path, metavar="FILE")
    kind.add_argument("--undo", action="store_true", help="decompress, so that a run can be resumed")
    kind.set_defaults(run=compress)
    text = "add rankings by words to results of hotpotqa, budget and mmlu that were made without them"
    kind = shared.new_command(commands, "lexical", text)
    kind.add_argument("results", nargs="+", type=Path, metavar="FILE", help="compressed or not")
    kind.add_argument("--data", type=Path, metavar="FILE", help="the data set (default: hub copy)")
    kind.set_defaults(run=lexical)


def report(options: argparse.Namespace) -> None:
    """Make the pages."""
    from benchmarks.report import write

    for path in write(options.results, options.docs / "results"):
        print(path)


def headline(options: argparse.Namespace) -> None:
    """Make the table of the README."""
    from benchmarks.closed.headline import update

    print(update(options.readme, options.results))


def compress(options: argparse.Namespace) -> None:
    """Compress results files, or decompress them."""
    from benchmarks import store

    change = store.decompress if options.undo else store.compress
    for path in options.results:
        print(change(path))


def lexical(options: argparse.Namespace) -> None:
    """Add rankings by words to results files; no model is needed."""
    from benchmarks import lexical_rows

    for path in options.results:
        print(f"{path}: {lexical_rows.add(path, options.data)} rows added")
