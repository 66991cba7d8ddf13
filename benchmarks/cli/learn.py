"""``learn``: how much each signal counts, from what ablations did."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cli import shared
from ropelime.errors import InputError
from ropelime.progress import reporting

_HELP = "the weights of signals and attention heads, out of rows of `closed --labels-only`"


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "learn", _HELP)
    kind.add_argument("rows", nargs="+", type=Path, metavar="ROWS", help="what `closed` has written")
    kind.add_argument("--data", type=Path, required=True, metavar="FILE", help="the data of the rows")
    kind.add_argument(
        "--instant-words",
        type=float,
        default=0.7,
        metavar="X",
        help="how much words count in preset='instant', the rest being attention (default 0.7)",
    )
    kind.add_argument(
        "--cited",
        nargs=2,
        type=int,
        metavar=("FIRST", "LAST"),
        help="learn from the labels of people too: of the questions from number FIRST to before LAST",
    )
    shared.add_write(kind)
    shared.add_run(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Learn."""
    from benchmarks.closed import cases, learn
    from benchmarks.store import read

    if not 0 <= options.instant_words < 1:
        raise InputError(f"--instant-words must be from 0 to below 1, not {options.instant_words}.")
    surrogate = shared.load_local(options)
    found: list[learn.Lesson] = []
    for path in options.rows:
        header, known_rows = read(path)
        known = {case.id: case for case in cases.KINDS[header["kind"]](options.data)}
        with reporting(shared.progress(options, path.stem), path.stem) as report:
            found += learn.lessons(known, known_rows, surrogate, report)
    if not found:
        raise InputError("No ablation did anything in these rows: there is nothing to learn.")
    labelled: list[learn.Effects] = []
    if options.cited:
        chosen = cases.reference(options.data)[slice(*options.cited)]
        with reporting(shared.progress(options, "cited"), "cited") as report:
            labelled = learn.cited(chosen, surrogate, report)
    learnt = learn.learn(found, labelled, surrogate, options.instant_words)
    learnt["made_by"] = " ".join(
        [
            "python -m benchmarks learn",
            *(path.name for path in options.rows),
            "--data",
            options.data.name,
            *(["--cited", *map(str, options.cited)] if options.cited else []),
        ]
    )
    kept = shared.learnt()
    learnt |= {name: value for name, value in kept.items() if name.startswith("chances")}
    shared.write_learnt(options.write, learnt)
    shared.written(options, options.write)
