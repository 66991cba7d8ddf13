"""``ropelime batch``: many explanations, one per line, on this machine or on a Ray cluster."""

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
Each line of IN is a JSON object with the input of explain (prompt, context with question, or messages;
and the output), optionally an "id" (default: "line 7") and options for this line only:

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


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "batch",
        help="explain many answers, one on each line of a file",
        description="Explain every line of a file. The surrogate is loaded once and scores many lines "
        "in the same forward passes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", type=Path, metavar="IN", help="JSON lines")
    parser.add_argument("output", type=writable, metavar="OUT", help="JSON lines to write or to resume")
    parser.add_argument(
        "--full", action="store_true", help="write whole explanations, not only the ranking"
    )
    parser.add_argument("--top", type=count, metavar="K", help="features in the ranking (default all)")
    parser.add_argument("--retry-errors", action="store_true", help="explain lines with an error again")
    parser.add_argument(
        "--together", type=count, default=64, metavar="N", help="lines scored together (default 64)"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "--engine",
        choices=["local", "ray"],
        default="local",
        help="this process, or Ray (default local)",
    )
    group.add_argument(
        "--address", help="Ray cluster, HOST:PORT or auto; a new one on this machine if not given"
    )
    group.add_argument(
        "--actors", type=count, metavar="N", help="copies of the surrogate (default: one for each GPU)"
    )
    group.add_argument(
        "--gpus-per-actor",
        type=float,
        metavar="G",
        help="GPUs of each copy, such as 0.5 (default 1 if there are any)",
    )
    group = add_answering(parser, required=False)
    group.add_argument(
        "--concurrency", type=count, default=8, metavar="N", help="calls in parallel (default 8)"
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explain every line; returns the exit code."""
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
            f"ropelime: interrupted; {far[0]} of {far[1]} lines have a row in {options.output}; repeat "
            "the command to resume"
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
