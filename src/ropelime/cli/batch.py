"""``ropelime batch``: many explanations, one per line, on this machine or on a Ray cluster."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from ropelime.answering import AnsweringModel
from ropelime.batch import local, ray
from ropelime.batch import run as batch
from ropelime.batch.work import Settings
from ropelime.cli.shared import (
    add_answering,
    add_options,
    answering,
    chosen,
    count,
    running,
    writable,
)
from ropelime.clients.sdk import sdk
from ropelime.errors import InputError
from ropelime.options import Options
from ropelime.progress import Option, lines, note, reporting
from ropelime.surrogate.embedded import EMBEDDED

HELP = "explain many answers, one on each line of a file"
DESCRIPTION = (
    "Explain every line of a file. The surrogate is loaded once and scores many lines in the same "
    "forward passes."
)
EPILOG = """\
Each line of IN is a JSON object with the input of explain (prompt, context with question, or messages;
and the output), optionally an "id" (by default such as "line 7") and options for this line only:

  {"id": "pottery", "context": ["...", "..."], "question": "...", "output": "..."}
  {"prompt": "...", "output": "...", "features": "word", "seed": 1}

The first line of OUT records the settings. Then follows one row for each line of IN, in any order; a
line that cannot be explained has a row with the error. To resume a run that was stopped or killed,
repeat the command; IN may have grown in the meantime. The exit code is 0 if at least one row has no
error.

examples:
  ropelime batch answers.jsonl why.jsonl
  ropelime batch answers.jsonl why.jsonl --features document --full
  ropelime batch questions.jsonl why.jsonl --model gpt-4o-mini --sampling temperature=0
  ropelime batch answers.jsonl why.jsonl --retry-errors
  ropelime batch answers.jsonl why.jsonl --engine ray --actors 2
  ropelime batch answers.jsonl why.jsonl --engine ray --address auto --gpus-per-actor 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files, where it runs, the answering model and the options."""
    add = parser.add_argument
    add("input", type=Path, metavar="IN", help="one JSON object per line")
    add("output", type=writable, metavar="OUT", help="file to write, or to resume")
    add("--full", action="store_true", help="write whole explanations, not only the ranking")
    add("--top", type=count, metavar="K", help="features in the ranking (default all)")
    add("--retry-errors", action="store_true", help="explain lines with an error again")
    add("--together", type=count, default=64, metavar="N", help="lines scored together (default 64)")
    add("--quiet", action="store_true", help="print nothing but errors")
    add = parser.add_argument_group("where it runs").add_argument
    text = "this process, or Ray (default local)"
    add("--engine", choices=["local", "ray"], default="local", help=text)
    add("--address", help="Ray cluster, HOST:PORT or auto; a new one on this machine if not given")
    text = "copies of the surrogate (default: one for each GPU)"
    add("--actors", type=count, metavar="N", help=text)
    text = "GPUs of each copy, such as 0.5 (default 1 if there are any)"
    add("--gpus-per-actor", type=float, metavar="G", help=text)
    add = add_answering(parser, required=False).add_argument
    add("--concurrency", type=count, default=8, metavar="N", help="calls in parallel (default 8)")
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Explain every line; returns the exit code."""
    settings, engine = _settings(options), _engine(options)
    progress: Option = "auto" if sys.stderr.isatty() else lines("lines")
    far = [0, 0]

    def follow(done: int, total: int) -> None:
        far[:] = done, total
        if report:
            report(done, total)

    try:
        with reporting(False if options.quiet else progress, "Explaining lines") as report:
            summary = batch.run(
                options.input,
                options.output,
                settings,
                engine,
                together=options.together,
                retry_errors=options.retry_errors,
                progress=follow,
            )
    except KeyboardInterrupt:
        note(
            f"ropelime: interrupted; {far[0]} of {far[1]} lines have a row in {options.output}; repeat "
            "the command to resume"
        )
        return 130
    if not options.quiet:
        fresh = summary.total - summary.before
        holds = "holds" if summary.errors == 1 else "hold"
        wrong = f"; {summary.errors} {holds} an error (--retry-errors)" if summary.errors else ""
        rows = f"{summary.total} row{'s' * (summary.total != 1)}"
        print(f"{options.output} has {rows}, {fresh} of them new{wrong}")
    return 1 if summary.errors == summary.total else 0


def _settings(options: argparse.Namespace) -> Settings:
    if options.base_url is not None and options.model is None:
        raise InputError("--base-url goes with --model NAME.")
    settings = Settings(
        options=Options(**chosen(options)),
        surrogates=tuple(options.surrogate or [EMBEDDED]),
        answering=None if options.model is None else AnsweringModel(**answering(options)),
        **running(options),
        **{name: getattr(options, name) for name in ("full", "top", "concurrency")},
    )
    if settings.answering:
        sdk()  # fails now if it is not installed
    return settings


def _engine(options: argparse.Namespace) -> batch.Engine:
    say = None if options.quiet else note
    how = {"address": options.address, "actors": options.actors, "gpus": options.gpus_per_actor}
    if options.engine == "ray":
        ray.installed()
        return partial(ray.run, **how, say=say)
    for name in ("address", "actors", "gpus_per_actor"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} goes with --engine ray.")
    return partial(local.run, say=say)
