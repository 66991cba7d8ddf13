"""``ropelime mcp``: a server of the Model Context Protocol on standard input and output."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from ropelime.cli.shared import SURROGATE, add_running, count, running
from ropelime.errors import InputError
from ropelime.progress import note
from ropelime.surrogate import is_served
from ropelime.surrogate.catalog import locate
from ropelime.surrogate.embedded import EMBEDDED

HELP = "let an assistant ask why (Model Context Protocol)"
DESCRIPTION = (
    "Serve the tools explain, cite and check_citations, and explain_step with --traces, to an "
    "assistant that speaks the Model Context Protocol, on standard input and output."
)
EPILOG = """\
An assistant starts this command by itself. Its settings name it, for example:
  {"mcpServers": {"ropelime": {"command": "ropelime", "args": ["mcp"]}}}

examples:
  ropelime mcp
  ropelime mcp --surrogate qwen3-1.7b --traces runs/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the surrogate, the folder of traces and the limits."""
    text = f"the open model that scores answers: {SURROGATE}; one of them (default smollm2)"
    parser.add_argument("--surrogate", default=EMBEDDED, metavar="MODEL", help=text)
    text = "folder of recorded runs that explain_step may read (default: none)"
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help=text)
    add_running(parser.add_argument_group("how the surrogate runs"))
    add = parser.add_argument_group("limits").add_argument
    text = "characters of a prompt and its answer (default 200000)"
    add("--max-characters", type=count, default=200_000, metavar="N", help=text)
    add("--max-features", type=count, default=500, metavar="N", help="parts of a prompt (default 500)")


def run(options: argparse.Namespace) -> None:
    """Serve until standard input ends."""
    from ropelime.integrations.mcp import Explainer, Limits, create_server

    if options.traces is not None and not options.traces.is_dir():
        raise InputError(f"There is no folder {options.traces} (--traces).")
    if options.surrogate != EMBEDDED and not is_served(options.surrogate):
        locate(options.surrogate, say=note)  # a wrong name fails now
    if sys.stdin is not None and sys.stdin.isatty():
        note("This is a server for an assistant, which starts it by itself. Stop it with Ctrl-D.")
    limits = Limits(options.max_characters, options.max_features)
    given = {} if is_served(options.surrogate) else running(options)
    with suppress(KeyboardInterrupt):
        create_server(Explainer(options.surrogate, given, limits, options.traces)).run()
