"""The command line: one file for each command, with its texts, its arguments and ``run``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from ropelime._version import __version__
from ropelime.cli import (
    ask,
    audit,
    batch,
    check,
    demo,
    explain,
    models,
    serve,
    show,
    summary,
    trace,
    verify,
)
from ropelime.errors import RopeLimeError
from ropelime.progress import note

_DESCRIPTION = """\
Which part of my prompt made the model say that? A small open model, the surrogate, scores a fixed
answer under masked prompts, and every part of the prompt gets a weight."""
_EPILOG = """\
exit codes: 0 success, 1 error (the message names the cause), 2 wrong usage, 130 interrupted

examples:
  ropelime demo
  ropelime explain --prompt @prompt.txt --output "The answer."
  ropelime serve
  ropelime explain --context a.txt b.txt --question "Who?" --output @answer.txt --json why.json
  ropelime ask "Who?" --context a.txt b.txt --model gpt-4o-mini
  ropelime show why.json --full
  ropelime verify why.json --model gpt-4o-mini
  ropelime batch answers.jsonl why.jsonl
  ropelime summary why.jsonl
  ropelime check answers.jsonl --junit report.xml
  ropelime audit --context a.txt b.txt --question "Who?" --output @answer.md
  ropelime trace run.json
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="ropelime", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw
    )
    top.add_argument("--version", action="version", version=f"ropelime {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    ordered = (
        explain, ask, show, verify, batch, summary, check, audit, trace, demo, models, serve
    )  # fmt: skip
    for command in ordered:
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
    if sys.stdout is None:  # closed by whoever started it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack some characters
            stream.reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")
    _check_unicode(parser, sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except RopeLimeError as error:
        note(f"ropelime: {error}")
        return 1
    except KeyboardInterrupt:
        note("ropelime: interrupted; files written so far are complete")
        return 130
    except MemoryError as error:
        note(f"ropelime: there is not enough memory for this. {error}".rstrip())
        return 1
    except OSError as error:
        if error.filename is not None:  # about a file, not about standard output
            note(f"ropelime: {error.filename} cannot be used: {error.strerror}.")
            return 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails too
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, such as head
            return 0
        note(f"ropelime: the output cannot be written: {error.strerror}")
        return 1
    return int(code or 0)


def _check_unicode(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8, or hold NUL: they could be neither shown, sent nor saved."""
    for argument in arguments:
        if "\0" in argument or any("\ud800" <= character <= "\udfff" for character in argument):
            cure = "Rename a file of that name, or set the terminal to UTF-8."
            parser.error(f"{argument!a} is not UTF-8 text. {cure}")
