"""``architectures``: how a tiny model of every causal class of transformers is scored."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cli import shared


def add(commands: Any) -> None:
    """Add this command."""
    text = "compare the scores of tiny models of every architecture with a naive loop"
    kind = shared.new_command(commands, "architectures", text)
    kind.add_argument("types", nargs="*", metavar="TYPE", help="model types (default: all)")
    kind.add_argument(
        "--docs", type=Path, metavar="FOLDER", help="write results/architectures.md there"
    )
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a line for each; the exit code is 1 if some scores differ."""
    from benchmarks.architectures import build, page

    found: dict[str, page.Found] = {}
    for model_type in options.types or build.causal_types():
        found[model_type] = page.examine(model_type)
        print(f"{model_type}: {page.worded(found[model_type])}")
    if options.docs:
        print(page.write(options.docs / "results", found.items()))
    return int(not all(map(page.agrees, found.values())))
