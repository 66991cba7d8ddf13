"""``believe`` and ``calibrate``: whether the numbers beside a ranking can be believed."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cli import shared
from benchmarks.cli.closed import short
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.progress import reporting

_HELP = "verdicts, grounding and intervals, held against what is known of answers"
KINDS = ("asked", "answers", "short", "lfqa", "agentdyn", "faithbench", "citations", "masks")
WORDS = "words"


def add(commands: Any) -> None:
    """Add these commands."""
    kind = shared.new_command(commands, "believe", _HELP)
    kind.add_argument("kind", choices=KINDS, help="the answers")
    kind.add_argument(
        "--rows",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="for asked: results of `closed`; for answers: those of `closed --answers-only`",
    )
    text = f"default evidence; {WORDS}: what words alone tell, without a model"
    kind.add_argument("--preset", default="evidence", metavar="NAME", help=text)
    kind.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N answers")
    shared.add_data(kind)
    shared.add_run(kind)
    kind.set_defaults(run=run)
    text = "the chances of verdicts and grounding, out of rows of `believe`"
    again = shared.new_command(commands, "calibrate", text)
    again.add_argument("results", nargs="+", type=Path, metavar="ROWS", help="what `believe` wrote")
    shared.add_write(again)
    again.set_defaults(run=calibrate)


def run(options: argparse.Namespace) -> None:
    """Explain answers and compare."""
    from itertools import islice

    from benchmarks.believe import items, masks
    from benchmarks.believe import run as believe
    from benchmarks.store import Store

    shared.check(options, "limit")
    if options.data is None:
        raise InputError("--data FILE is needed.")
    if bool(options.rows) != (options.kind in items.NEED_ROWS):
        raise InputError(f"--rows is needed for {' and '.join(items.NEED_ROWS)}, and for nothing else.")
    fitted = options.kind == "masks"
    if fitted and options.preset != "evidence":
        raise InputError(
            f"masks compares the presets {' and '.join(masks.FITTED)}: leave out --preset."
        )
    found: Iterator[Any] = (
        masks.prompts(options.data) if fitted else items.KINDS[options.kind](options.data, options.rows)
    )
    last = None if options.limit is None else options.skip + options.limit
    chosen: list[Any] = list(islice(found, options.skip, last))
    if not chosen:
        raise InputError(f"There are no answers left after --skip {options.skip}.")
    model = None if options.preset == WORDS else shared.load_local(options)
    name = WORDS if model is None else short(options.surrogate)
    results = shared.results_file(options, f"believe-{options.kind}-{name}")
    settings = {
        "bench": "believe",
        "kind": options.kind,
        "preset": None if fitted else options.preset,
        "rows": [path.name for path in options.rows],
        "surrogate": None if model is None else {**model.describe(), "name": name},
        "skip": options.skip,
        "limit": options.limit,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    store = Store(results, settings, masks.FITTED if fitted else [believe.ITEM])
    with reporting(shared.progress(options, options.kind), options.kind) as report:
        if fitted:
            assert model is not None
            masks.run(chosen, model, store, progress=report)
        else:
            believe.run(chosen, model, store, preset=options.preset, progress=report)
    shared.written(options, results)


def calibrate(options: argparse.Namespace) -> None:
    """Fit the chances, and put them beside what was learnt before."""
    from benchmarks.believe import fit
    from benchmarks.store import read

    found = []
    for path in options.results:
        header, rows = read(path)
        if header.get("bench") != "believe":
            raise InputError(f"{path} was not written by `python -m benchmarks believe`.")
        found += [(header["kind"], row) for row in rows]
    learnt = shared.learnt()
    learnt["chances"] = fit.learn(found)
    names = " ".join(path.name for path in options.results)
    learnt["chances_made_by"] = f"python -m benchmarks calibrate {names}"
    shared.write_learnt(options.write, learnt)
    print(f"Written to {options.write}")
