"""``speed``: how fast scoring is, beside a plain loop, the peers and the machine's own matrix rate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks.cli import shared
from ropelime.errors import InputError
from ropelime.progress import reporting

if TYPE_CHECKING:
    from ropelime.surrogate.local import LocalSurrogate

_HELP = "speed of scoring, compared with a plain loop, other libraries and the roofline"


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "speed", _HELP)
    shared.add_data(kind)
    shared.add_run(kind)
    kind.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default 3)")
    kind.add_argument("--shape", metavar="NAME", help="random weights of this shape, a random prompt")
    kind.add_argument("--features", type=int, default=40, metavar="N", help="features of that prompt")
    kind.add_argument("--feature-tokens", type=int, default=33, metavar="N", help="tokens of each")
    kind.add_argument("--scaling", action="store_true", help="cost against features, random weights")
    kind.add_argument("--start", action="store_true", help="the first explanation of a new process")
    kind.set_defaults(run=run)
    kind = shared.new_command(commands, "versions", "speed of several checkouts, by turns")
    kind.add_argument(
        "checkouts", nargs="+", metavar="NAME=FOLDER", help="such as before=../old after=."
    )
    shared.add_data(kind)
    shared.add_run(kind)
    kind.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default 3)")
    kind.set_defaults(run=run_versions)


def run(options: argparse.Namespace) -> None:
    """Measure speed."""
    shared.check(options, "limit", "rounds", "features", "feature_tokens")
    if options.scaling + options.start + bool(options.shape) * (not options.scaling) > 1:
        raise InputError("--scaling, --start and --shape are measured one at a time.")
    surrogate = _surrogate(options)
    what = next((w for w in ("scaling", "start") if getattr(options, w)), options.shape)
    name = "-".join(filter(None, ["speed", surrogate.device.type, what]))
    results = shared.results_file(options, name)
    with reporting(shared.progress(options, name), name) as report:
        _measure(options, surrogate, results, report)
    shared.written(options, results)


def _measure(options: argparse.Namespace, surrogate: LocalSurrogate, results: Any, report: Any) -> None:
    from benchmarks import data
    from benchmarks.speed import run as speed

    common: dict[str, Any] = {"rounds": options.rounds, "command": shared.command(options)}
    if options.scaling:
        speed.run_scaling(surrogate, results, seed=options.seed, progress=report, **common)
    elif options.start:
        speed.run_start(surrogate, results, device=options.device, dtype=options.dtype, **common)
    elif options.shape:
        prompt = {"features": options.features, "tokens": options.feature_tokens, "seed": options.seed}
        speed.run_shape(surrogate, results, **prompt, **common)
    else:
        examples = data.hotpotqa(options.data, context="all", limit=options.limit or 2)
        speed.run_contest(examples, surrogate, results, progress=report, **common)


def run_versions(options: argparse.Namespace) -> None:
    """Measure the speed of several checkouts."""
    from benchmarks import data
    from benchmarks.hardware import cpu
    from benchmarks.speed import versions
    from ropelime.surrogate.loading import best_device

    shared.check(options, "rounds")
    found = versions.checkouts(options.checkouts)
    examples = data.hotpotqa(options.data, context="all", limit=options.limit or 1)
    device = options.device or best_device()
    results = shared.results_file(options, f"versions-{device}")
    with reporting(shared.progress(options, "versions"), "versions") as report:
        versions.measure(
            found, examples, results, rounds=options.rounds, surrogate=options.surrogate, device=device,
            dtype=options.dtype, known={"cpu": cpu()}, progress=report,
        )  # fmt: skip
    shared.written(options, results)


def _surrogate(options: argparse.Namespace) -> LocalSurrogate:
    from ropelime.surrogate.loading import best_device

    if not (options.shape or options.scaling):
        return shared.load_local(options)
    device = options.device or best_device()
    shape = options.shape or ("smollm2-135m" if device.startswith("cuda") else "tiny")
    return shared.random_weights(options, shape)
