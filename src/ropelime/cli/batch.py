"""``ropelime batch``: many explanations, a line each, on this machine or on a Ray cluster."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelime.cli.shared import (
    add_answering,
    add_options,
    answering,
    count,
    parsed,
    surrogates,
    writable,
)
from ropelime.errors import InputError
from ropelime.progress import Option, lines, note, reporting

if TYPE_CHECKING:
    from ropelime.batch.run import Engine

_EPILOG = """\
Each line of IN is a JSON object: an input of explain (prompt, context with question, or messages, with
the output), an "id" if its name shall not be "line 7", and options of its own if it wants any:

  {"id": "pottery", "context": ["...", "..."], "question": "...", "output": "..."}
  {"prompt": "...", "output": "...", "features": "word", "seed": 1}

The first line of OUT says how it was made; then there is a row for each line, in any order. A line that
cannot be explained has a row that says why. A run that was stopped or killed goes on where it was: give
the same command again. IN may have grown in the meantime. The exit code is 0 where some rows hold an
error, and 1 where all do.

examples:
  ropelime batch answers.jsonl why.jsonl
  ropelime batch answers.jsonl why.jsonl --features document --full
  ropelime batch questions.jsonl why.jsonl --model gpt-4o-mini --sampling temperature=0
  ropelime batch answers.jsonl why.jsonl --retry-errors
  ropelime batch answers.jsonl why.jsonl --engine ray --actors 2
  ropelime batch answers.jsonl why.jsonl --engine ray --address auto --gpus-per-actor 1
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "batch",
        help="explain many answers, one on each line of a file",
        description="Explain every line of a file, with the model loaded once and lines read together.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", type=Path, metavar="IN", help="JSON lines")
    parser.add_argument(
        "output", type=writable, metavar="OUT", help="JSON lines to write or go on with"
    )
    parser.add_argument("--full", action="store_true", help="rows hold the whole explanation")
    parser.add_argument("--top", type=count, metavar="K", help="features that a short row lists (all)")
    parser.add_argument(
        "--retry-errors", action="store_true", help="try lines again whose row holds an error"
    )
    parser.add_argument(
        "--together", type=count, default=64, metavar="N", help="lines read together (default 64)"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group = parser.add_argument_group("where it runs")
    group.add_argument("--engine", choices=["local", "ray"], default="local")
    group.add_argument(
        "--address", help="of a Ray cluster, HOST:PORT or auto; a new one on this machine if not given"
    )
    group.add_argument(
        "--actors", type=count, metavar="N", help="models that work side by side (one for each GPU)"
    )
    group.add_argument(
        "--gpus-per-actor", type=float, metavar="G", help="0.5 puts two on one GPU; 1 if there are GPUs"
    )
    add_answering(parser, required=False)
    parser.add_argument(
        "--concurrency", type=count, default=8, metavar="N", help="questions at once (default 8)"
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explain every line; gives the exit code."""
    from ropelime.ask import AnsweringModel
    from ropelime.batch import run as batch
    from ropelime.batch.work import Settings
    from ropelime.clients.sdk import sdk

    asks = options.model is not None
    if options.base_url is not None and not asks:
        raise InputError("--base-url goes with --model NAME.")
    settings = Settings(
        parsed(options),
        tuple(surrogates(options)),
        options.device,
        options.dtype,
        AnsweringModel(**answering(options)) if asks else None,
        options.full,
        options.top,
        options.concurrency,
    )
    if asks:
        sdk()
    engine = _engine(options)
    far = [0, 0]

    def follow(done: int, total: int) -> None:
        far[:] = done, total
        if report:
            report(done, total)

    try:
        with reporting(_progress(options), "Explaining lines") as report:
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
            f"ropelime: interrupted; {far[0]} of {far[1]} lines have a row in {options.output}, and "
            "the same command goes on with the others"
        )
        return 130
    if not options.quiet:
        fresh = summary.total - summary.before
        wrong = f"; {summary.errors} hold an error (--retry-errors)" if summary.errors else ""
        print(f"{options.output} has {summary.total} rows, {fresh} of them new{wrong}")
    return 1 if summary.errors == summary.total else 0


def _engine(options: argparse.Namespace) -> Engine:
    if options.engine == "local":
        for name in ("address", "actors", "gpus_per_actor"):
            if getattr(options, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} goes with --engine ray.")
        from ropelime.batch import local

        return partial(local.run, say=None if options.quiet else note)
    from ropelime.batch import ray

    ray.installed()
    return partial(
        ray.run,
        address=options.address,
        actors=options.actors,
        gpus=options.gpus_per_actor,
        say=None if options.quiet else note,
    )


def _progress(options: argparse.Namespace) -> Option:
    if options.quiet:
        return False
    return "auto" if sys.stderr.isatty() else lines("lines")
