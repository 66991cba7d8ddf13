"""The command line: one file for each command, with its texts, its arguments and ``run``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from ropelime._version import __version__
from ropelime.cli import ask, audit, batch, check, demo, explain, models, serve, summary, verify
from ropelime.errors import RopeLimeError

_DESCRIPTION = """\
Which part of my prompt made the model say that? A small open model, the surrogate, scores a fixed
answer under masked prompts, and every part of the prompt gets a weight."""
_EPILOG = """\
exit codes: 0 success, 1 error (the message names the cause), 2 wrong usage, 130 interrupted

examples:
  ropelime demo
  ropelime explain --prompt prompt.txt --output "The answer."
  ropelime serve
  ropelime explain --context a.txt b.txt --question "Who?" --output answer.txt --json why.json
  ropelime ask "Who?" --context a.txt b.txt --model gpt-4o-mini
  ropelime verify why.json --model gpt-4o-mini
  ropelime batch answers.jsonl why.jsonl
  ropelime summary why.jsonl
  ropelime check answers.jsonl --junit report.xml
  ropelime audit --context a.txt b.txt --question "Who?" --output answer.md
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="ropelime", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw
    )
    top.add_argument("--version", action="version", version=f"ropelime {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (explain, ask, verify, batch, summary, check, audit, demo, models, serve):
        name = command.__name__.rpartition(".")[2]
        texts = {"help": command.HELP, "description": command.DESCRIPTION, "epilog": command.EPILOG}
        added = commands.add_parser(name, **texts, formatter_class=raw)
        added.set_defaults(run=command.run)
        command.add_arguments(added)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    return run_command(parser(), arguments)


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Parse, call ``run`` of the options, and turn errors into messages and exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack some characters
            stream.reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")
    options = parser.parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except RopeLimeError as error:
        print(f"ropelime: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ropelime: interrupted; files written so far are complete", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is not None:  # about a file, not about standard output: unexpected
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails too
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, such as head
            return 0
        print(f"ropelime: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return int(code or 0)
