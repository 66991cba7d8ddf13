"""``agents``: which part of the prompt made an agent act, where an injected instruction is known."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import Any

from benchmarks.cli import shared
from benchmarks.cli.closed import short
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.progress import note, reporting

_HELP = "steps of agents with an injected instruction: is it found, and did the agent follow it"
FORMS = ("plain", "unframed", "asked")


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "agents", _HELP)
    kind.add_argument("--data", nargs="+", type=Path, metavar="FILE", help="runs of AgentDyn")
    text = (
        "the runs as they were; with only the instruction left of the injected text; with a user who "
        "asks for such an action himself (default plain)"
    )
    kind.add_argument("--form", nargs="+", choices=FORMS, default=["plain"], help=text)
    kind.add_argument("--limit", type=int, metavar="N", help="number of steps, of each file and form")
    kind.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N steps")
    text = "make these rankings only, such as words evidence instant; faithful is made if named here"
    kind.add_argument("--only", nargs="+", default=[], metavar="RANKING", help=text)
    text = "steps in the same forward passes (default 8)"
    kind.add_argument("--together", type=int, default=8, metavar="N", help=text)
    text = "stop after so long; the same command resumes"
    kind.add_argument("--seconds", type=float, metavar="N", help=text)
    text = "measure the time of guard beside a forward pass, and the tokens of a run, instead"
    kind.add_argument("--latency", action="store_true", help=text)
    text = "with --latency: how often each is timed (default 3)"
    kind.add_argument("--rounds", type=int, default=3, metavar="N", help=text)
    shared.add_run(kind)
    kind.set_defaults(run=run)
    text = "results of `agents` without parts and signals, which only learning needs"
    fewer = shared.new_command(commands, "trim", text)
    fewer.add_argument("results", nargs="+", type=Path, metavar="FILE", help="what `agents` wrote")
    fewer.set_defaults(run=trim)
    text = "the chance that a tool's output caused an action, out of rows of `agents --only guard`"
    fitted = shared.new_command(commands, "calibrate-actions", text)
    fitted.add_argument("results", nargs="+", type=Path, metavar="ROWS", help="what `agents` wrote")
    shared.add_write(fitted)
    fitted.set_defaults(run=calibrate)


def run(options: argparse.Namespace) -> None:
    """Rank the parts of every step."""
    from benchmarks.agents import items, rankings
    from benchmarks.agents import run as agents
    from benchmarks.store import Store

    shared.check(options, "limit", "together", "rounds")
    if options.latency:
        return _latency(options)
    if not options.data:
        raise InputError("--data FILE is needed.")
    if unknown := set(options.only) - set(rankings.KNOWN):
        known = ", ".join(rankings.KNOWN)
        raise InputError(f"There is no ranking {', '.join(sorted(unknown))}. Known: {known}.")
    last = None if options.limit is None else options.skip + options.limit
    chosen = [list(items.read(path))[options.skip : last] for path in options.data]
    found = [
        made
        for form in options.form
        for some in chosen
        for item in some
        for made in items.FORMS[form](item)
    ]
    if not found:
        raise InputError(f"There are no steps left after --skip {options.skip}.")
    model, name = shared.load_local(options), short(options.surrogate)
    results = shared.results_file(options, f"agents-{name}")
    only = [each for each in rankings.KNOWN if each in (options.only or rankings.BY_DEFAULT)]
    settings = {
        "bench": "agents",
        "surrogate": {**model.describe(), "name": name},
        "rankings": only,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    store = Store(results, settings, [agents.STEP])
    with reporting(shared.progress(options, "agents"), "agents") as report:
        done = agents.run(
            found,
            model,
            store,
            only=only,
            together=options.together,
            seconds=options.seconds,
            progress=report,
        )
    if not done and not options.quiet:
        note("ropelime: stopped in time; the same command resumes it.")
    shared.written(options, results)


def _latency(options: argparse.Namespace) -> None:
    """Time ``guard``, and count the tokens of a run."""
    from benchmarks.agents import latency
    from benchmarks.hardware import Hardware
    from benchmarks.store import Store

    model, name = shared.load_local(options), short(options.surrogate)
    results = shared.results_file(options, f"agents-latency-{model.device.type}-{name}")
    settings = {
        "bench": "agents",
        "kind": latency.LATENCY,
        "surrogate": {**model.describe(), "name": name},
        "machine": Hardware(model).describe(),
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    latency.measure(model, Store(results, settings, [latency.LATENCY]), rounds=options.rounds)
    shared.written(options, results)


def trim(options: argparse.Namespace) -> None:
    """Leave only what the page shows."""
    from benchmarks.agents.run import trimmed
    from benchmarks.store import read, rewrite

    for path in options.results:
        header, rows = read(path)
        if header.get("bench") != "agents":
            raise InputError(f"{path} was not written by `python -m benchmarks agents`.")
        rewrite(path, [header, *map(trimmed, rows)])
        print(f"{path} has no signals any more.")


def calibrate(options: argparse.Namespace) -> None:
    """Fit the chance to the rows that are for learning, and put it beside what was learnt before."""
    from benchmarks.agents import fit
    from benchmarks.agents.page import merge
    from benchmarks.store import read

    found: list[dict[str, Any]] = []
    for path in options.results:
        header, rows = read(path)
        if header.get("bench") != "agents":
            raise InputError(f"{path} was not written by `python -m benchmarks agents`.")
        found += rows
    learnt = shared.learnt()
    learnt["chances_actions"] = fit.learn(merge(found))
    names = " ".join(path.name for path in options.results)
    learnt["chances_actions_made_by"] = f"python -m benchmarks calibrate-actions {names}"
    shared.write_learnt(options.write, learnt)
    print(f"Written to {options.write}")
