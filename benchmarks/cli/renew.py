"""``renew``: the present presets in stored results of earlier ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cli import shared
from benchmarks.cli.closed import short
from ropelime.errors import InputError
from ropelime.progress import reporting

_HELP = "the present presets in results of `closed`, `hotpotqa`, `budget` or `mmlu`"


def add(commands: Any) -> None:
    """Add this command."""
    text = f"{_HELP}; all else in the file stays, and nobody is asked again"
    kind = shared.new_command(commands, "renew", text)
    kind.add_argument("file", type=Path, metavar="FILE", help="finished results")
    kind.add_argument("--data", type=Path, required=True, metavar="FILE", help="the data of the run")
    shared.add_model(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Put the present presets into the rows of an older run."""
    from benchmarks import experiments, rows
    from benchmarks.store import read

    header, name = read(options.file)[0], short(options.surrogate)
    if header["bench"] == "closed":
        _renew_closed(options, name)
    else:
        rows.check(options.file, header)
        if short(str(header["surrogate"]["name"])) != name:
            raise InputError(
                f"{options.file} was made by {header['surrogate']['name']}: name it with "
                f"--surrogate, not {name}."
            )
        surrogate = shared.load(options)
        with reporting(shared.progress(options, name), name) as report:
            experiments.renew(options.file, options.data, surrogate, shared.command(options), report)
    shared.written(options, options.file)


def _renew_closed(options: argparse.Namespace, name: str) -> None:
    from benchmarks.closed import cases
    from benchmarks.closed.place import COUNTED
    from benchmarks.closed.renew import renew as again
    from benchmarks.store import read, renewals, rewrite
    from ropelime.method.learnt import EVIDENCE, INSTANT

    header, rows = read(options.file)
    if name not in header["surrogates"]:
        raise InputError(f"{options.file} has no rankings by {name} in the arena of `closed`.")
    known = {case.id: case for case in cases.KINDS[header["kind"]](options.data)}
    surrogate, found = shared.load_local(options), []
    with reporting(shared.progress(options, name), name) as report:
        for done, row in enumerate(rows):
            if report:
                report(done, len(rows))
            found.append(again(row, known[row["example"]], surrogate, name, header))
    present = {"evidence": dict(EVIDENCE), "instant": dict(INSTANT)}
    changed = renewals(header, shared.command(options), {name: {**surrogate.describe(), "name": name}})
    changed["last_part"] = {**header.get("last_part", {}), name: COUNTED}
    rewrite(options.file, [{**header, "signals": present, **changed}, *found])
