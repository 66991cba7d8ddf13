"""``ropelime verify``: check a saved explanation by further calls of the answering model."""

from __future__ import annotations

import argparse
from pathlib import Path

from ropelime.cli import shared
from ropelime.explain import load
from ropelime.files import check_writable

HELP = "check a saved explanation by further calls"
DESCRIPTION = (
    "Call the answering model a few times more, without the parts at the top of a saved explanation or "
    "with them alone, and see whether its answer changes. The ranking and the trust follow what was "
    "seen. The outcome is written into the file, or to --json."
)
EPILOG = """\
Model, server, sampling and prices are those of `ropelime ask` if not given. The number of calls and
about what they cost are printed before the first one. If a call fails, what was paid for is written,
and the exit code is 1. The API key is read from OPENAI_API_KEY and never stored.

examples:
  ropelime verify why.json
  ropelime verify why.json --calls 8 --model gpt-4o-mini --html why.html
  ropelime verify why.json --price-in 0.15 --price-out 0.6 --max-cost 0.01
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, the answering model and the limits."""
    add = parser.add_argument
    add("file", type=Path, help="an explanation that --json wrote")
    text = "the most calls to make (default 4)"
    add("--calls", "-k", type=shared.count, default=4, metavar="K", help=text)
    add("--messages", metavar="FILE|-", help="the chat as it was sent, if it holds tool calls")
    shared.add_max_cost(add)
    shared.add_answering(parser, required=False)
    shared.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Load, verify, write and show."""
    explanation = load(options.file)
    options.json = options.json or options.file
    check_writable(options.json)  # before calls are paid for
    given = shared.answering(options)
    with shared.showing_interrupted(options):
        verified = explanation.verify(
            options.calls,
            **{**given, "sampling": given["sampling"] or None},
            messages=shared.messages(options.messages),
            max_cost=options.max_cost,
            progress=False if options.quiet else "auto",
        )
    shared.emit(verified, options)
    return shared.unverified(verified)
