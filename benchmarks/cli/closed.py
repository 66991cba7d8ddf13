"""``closed``: explanations held against the model that answered."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cli import shared
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.progress import reporting

if TYPE_CHECKING:
    from ropelime.surrogate.local import LocalSurrogate

_HELP = "explanations held against the model that answered, which is asked again with parts removed"
_KINDS = ("hotpotqa", "mixed", "lfqa", "agentdyn")
_MOST = {"hotpotqa": 32, "mixed": 64, "lfqa": 128, "agentdyn": 0}  # tokens of an answer


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "closed", _HELP)
    kind.add_argument("kind", choices=_KINDS, help="the prompts")
    kind.add_argument("--answering", metavar="MODEL", help="the model that answers; not for agentdyn")
    kind.add_argument("--also-by", nargs="*", default=[], metavar="MODEL", help="further surrogates")
    kind.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N prompts")
    kind.add_argument("--cached-only", action="store_true", help="leave out methods that score exactly")
    kind.add_argument(
        "--labels-only", action="store_true", help="ask the answering model only, to learn from it"
    )
    shared.add_data(kind)
    shared.add_model(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the arena."""
    from benchmarks.closed import cases
    from benchmarks.closed import run as arena
    from benchmarks.store import Store

    shared.check(options, "limit")
    if (options.answering is None) != (options.kind == "agentdyn"):
        raise InputError(
            "--answering MODEL is needed, except for agentdyn, whose models have answered."
        )
    if options.data is None:
        raise InputError("--data FILE is needed.")
    found = cases.KINDS[options.kind](options.data)[options.skip :][: options.limit]
    if not found:
        raise InputError(f"{options.data} has no prompts left after --skip {options.skip}.")
    if options.labels_only and options.answering is None:
        raise InputError("--labels-only needs --answering MODEL.")
    explaining = [] if options.labels_only else [options.surrogate, *options.also_by]
    loaded = {
        name: shared.load_local(options, name)
        for name in dict.fromkeys([*filter(None, [options.answering]), *explaining])
    }
    surrogates = {_short(name): loaded[name] for name in explaining}
    answering = loaded[options.answering] if options.answering else None
    parts = ["closed", options.kind, _short(options.answering) if answering else None]
    name = "-".join(filter(None, [*parts, *surrogates]))
    results = shared.results_file(options, name)
    settings = {
        "bench": "closed",
        "kind": options.kind,
        "answering": _described(options.answering, answering) if answering else None,
        "surrogates": {short: _described(short, model) for short, model in surrogates.items()},
        "skip": options.skip,
        "limit": options.limit,
        "seed": options.seed,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    store = Store(results, settings, [arena.CASE])
    with reporting(shared.progress(options, name), name) as report:
        arena.run(
            found,
            answering,
            surrogates,
            store,
            seed=options.seed,
            most=_MOST[options.kind],
            exact=not options.cached_only,
            compare=not options.labels_only,
            progress=report,
        )
    shared.written(options, results)


def _described(name: str, model: LocalSurrogate) -> dict[str, Any]:
    """What is recorded about a model: its name instead of its path."""
    return {**model.describe(), "name": _short(name)}


def _short(name: str) -> str:
    """The name of a model in the tables."""
    return Path(name).stem
