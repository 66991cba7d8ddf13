"""``heads``: how much each attention head of a model counts, for AT2's row of ``closed``."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import Any

from benchmarks.cli import shared
from benchmarks.cli.closed import KINDS, MOST, short
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.progress import reporting

_HELP = "learn from a model's own ablations how much each of its attention heads counts (AT2)"


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "heads", _HELP)
    kind.add_argument("kind", choices=KINDS, help="the prompts")
    kind.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N prompts")
    kind.add_argument("--masks", type=int, default=32, metavar="N", help="of a prompt (default 32)")
    kind.add_argument(
        "--ablation", default="delete", help="delete, as `closed` does, or in-place, as AT2's package"
    )
    kind.add_argument(
        "--answers",
        type=Path,
        metavar="FILE",
        help="results of `closed` with the answers (default: those of the data, or the model's own)",
    )
    shared.add_data(kind)
    shared.add_run(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Sample ablations, which can be resumed, and learn from them."""
    from benchmarks.closed import cases, heads
    from benchmarks.store import Store, read
    from ropelime.surrogate import Ablation

    shared.check(options, "limit")
    if options.masks < 2:
        raise InputError(f"--masks must be at least 2, not {options.masks}.")
    if options.data is None:
        raise InputError("--data FILE is needed.")
    found = cases.KINDS[options.kind](options.data)[options.skip :][: options.limit]
    if not found:
        raise InputError(f"{options.data} has no prompts left after --skip {options.skip}.")
    answers = None
    if options.answers:
        answers = {row["example"]: row.get("output", "") for row in read(options.answers)[1]}
    ablation = Ablation.of(options.ablation)
    model, name = shared.load_local(options), short(options.surrogate)
    results = shared.results_file(options, f"heads-{options.kind}-{name}")
    settings = {
        "bench": "heads",
        "kind": options.kind,
        "surrogate": {**model.describe(), "name": name},
        "masks": options.masks,
        "ablation": str(options.ablation),
        "answers": options.answers.name if options.answers else None,
        "skip": options.skip,
        "seed": options.seed,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    store = Store(results.with_suffix(".jsonl"), settings, [heads.SAMPLE])
    with reporting(shared.progress(options, "heads"), "heads") as report:
        heads.sample(
            found,
            model,
            store,
            masks=options.masks,
            seed=options.seed,
            first=options.skip,
            most=MOST[options.kind],
            ablation=ablation,
            answers=answers,
            progress=report,
        )
    wanted = {case.id for case in found}
    rows = [row for row in read(store.path)[1] if row["example"] in wanted]
    features, targets = heads.samples(rows)
    weights = heads.learn(features, targets, seed=options.seed)
    made = heads.Heads(
        model=name,
        layers=model.layers,
        heads=features.shape[2] // model.layers,
        weights=weights.reshape(model.layers, -1).tolist(),
        command=shared.command(options),
        examples=len(features),
        data=options.data.name,
    )
    made.save(results.with_suffix(".json"))
    shared.written(options, results.with_suffix(".json"))
