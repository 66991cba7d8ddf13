"""``batch``: throughput of many short prompts."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.cli import shared
from ropelime.progress import reporting

if TYPE_CHECKING:
    from ropelime.surrogate.local import LocalSurrogate

_HELP = "many short prompts: one call after another, as a batch, as a batch on Ray"


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "batch", _HELP)
    shared.add_run(kind)
    kind.add_argument("--shape", metavar="NAME", help="random weights of this shape")
    kind.add_argument(
        "--lines", type=int, default=256, metavar="N", help="lines of a round (default 256)"
    )
    kind.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default 3)")
    kind.add_argument("--together", type=int, default=64, metavar="N", help="as in `ropelime batch`")
    kind.add_argument("--memory", type=int, default=0, metavar="N", help="sample memory over N lines")
    kind.add_argument(
        "--actors", type=int, nargs="+", default=[], metavar="N", help="also on Ray, with N actors"
    )
    kind.set_defaults(run=run, data=None)


def run(options: argparse.Namespace) -> None:
    """Measure batches."""
    from benchmarks.scale.measure import measure
    from ropelime.batch.ray import installed

    shared.check(options, "lines", "rounds", "together")
    if options.actors:
        installed()
    with TemporaryDirectory(prefix="ropelime-shape-") as folder:
        surrogate = _surrogate(options, Path(folder))
        name = options.shape or Path(surrogate.name).name.lower()
        what = f"batch-{surrogate.device.type}-{name}"
        results = shared.results_file(options, what)
        with reporting(shared.progress(options, what), what) as report:
            measure(
                surrogate,
                results,
                lines=options.lines,
                rounds=options.rounds,
                together=options.together,
                command=shared.command(options),
                device=options.device,
                dtype=options.dtype,
                memory=options.memory,
                actors=tuple(options.actors),
                seed=options.seed,
                progress=report,
            )
    shared.written(options, results)


def _surrogate(options: argparse.Namespace, folder: Path) -> LocalSurrogate:
    """The model, or random weights with the tokenizer of the embedded one, saved for Ray's actors."""
    from ropelime.surrogate import load_surrogate
    from ropelime.surrogate.local import LocalSurrogate

    if not options.shape:
        return shared.load_local(options)
    embedded = load_surrogate("smollm2", device="cpu", dtype="float32")
    assert isinstance(embedded, LocalSurrogate)
    made = shared.random_weights(options, options.shape, embedded.tokenizer)
    if not options.actors:
        return made
    name = str(folder / made.name)
    made.model.save_pretrained(name)
    made.tokenizer.save_pretrained(name)
    return shared.load_local(options, name)
