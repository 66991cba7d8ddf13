"""``long``: prompts that are longer than the window."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.cli import shared
from benchmarks.cli.closed import short
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.progress import reporting

if TYPE_CHECKING:
    from benchmarks.store import Row

_HELP = "needles in long prompts, HotpotQA among thousands of sentences, long answers, and their cost"
KINDS = ("needles", "words", "sentences", "answers", "cost", "window")
_TOKENS = [8_000, 32_000, 128_000]
_SIZES = {
    "cost": [2_000, 128_000],
    "needles": _TOKENS,
    "words": _TOKENS,
    "sentences": [1000, 4000],
    "window": [128_000],
}
_SHAPE, _SPARE = "qwen3-8b", 1024  # of the model, and tokens of its window besides the prompt


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "long", _HELP)
    text = (
        "the prompts; words: the same needles, ranked by words alone and without a model; cost: what "
        "ours and the peers take for one needle of each size; window: random tokens in one window, and "
        "the part of the machine's matrix rate that scoring reaches"
    )
    kind.add_argument("kind", choices=KINDS, help=text)
    text = (
        "tokens of the prose (8000 32000 128000; cost: 2000 128000), sentences (1000 4000), or the "
        "most tokens of an answer (any)"
    )
    kind.add_argument("--sizes", nargs="+", type=int, metavar="N", help=text)
    text = "the model that answers, as --surrogate; the given answers are explained without it"
    text = f"window: random weights of this shape (default {_SHAPE})"
    kind.add_argument("--shape", metavar="NAME", help=text)
    kind.add_argument("--answering", metavar="MODEL", help=text)
    kind.add_argument("--preset", default="evidence", metavar="NAME", help="default evidence")
    text = "stop before the next prompt when so many seconds have passed; the same command resumes"
    kind.add_argument("--seconds", type=float, metavar="N", help=text)
    shared.add_data(kind)
    shared.add_run(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Explain long prompts."""
    from benchmarks.hardware import Hardware
    from benchmarks.long import answers, cost, needles
    from benchmarks.long import run as long

    shared.check(options, "limit")
    sizes = sorted(options.sizes or _SIZES.get(options.kind, ()))
    if sizes and sizes[0] < 1:
        raise InputError(f"--sizes must be at least 1, not {sizes[0]}.")
    if options.answering and options.kind != "needles":
        raise InputError("--answering is for needles: the other prompts come with their answers.")
    limit = options.limit or 10
    if options.kind == "window":
        _fill_a_window(options, sizes)
        return
    found: list[Any] = list(
        long.sentences(options.data, sizes, limit)
        if options.kind == "sentences"
        else answers.steps(options.data, limit, max(sizes, default=None))
        if options.kind == "answers"
        else needles.cases(options.data, sizes, limit, options.seed)
    )
    if options.kind == "cost":
        found = found[: len(sizes)]  # a prompt of each size
    if options.kind == "words":
        _write(options, "long-words", _settings(options, sizes), found, long.by_words)
        return
    model, name = shared.load_local(options), short(options.surrogate)
    answering = shared.load_local(options, options.answering) if options.answering else None
    parts = ["long", options.kind, name, *([short(options.answering)] if answering else [])]
    settings = {
        **_settings(options, sizes),
        "preset": options.preset,
        "answering": {**answering.describe(), "name": parts[-1]} if answering else None,
        "surrogate": {**model.describe(), "name": name},
        "machine": Hardware(model).describe(),
    }
    make: Callable[[Any], Row]
    if options.kind == "answers":
        make = answers.comparing(model)
    elif options.kind == "cost":
        make = cost.measuring(model, options.seed)
    else:
        make = long.explaining(model, options.preset, answering)
    _write(options, "-".join(parts), settings, found, make)


def _fill_a_window(options: argparse.Namespace, sizes: list[int]) -> None:
    """Score random tokens with random weights, in one window."""
    from benchmarks.hardware import Hardware
    from benchmarks.long import window

    shape = options.shape or _SHAPE
    model = shared.random_weights(options, shape, window=max(sizes) + _SPARE)
    settings = {
        **_settings(options, sizes),
        "surrogate": {**model.describe(), "name": shape},
        "machine": Hardware(model).describe(),
    }
    prompts = [window.Filled(size) for size in sizes]
    make = window.scoring(model, options.seed)
    _write(options, f"long-window-{model.device.type}-{shape}", settings, prompts, make)


def _write(
    options: argparse.Namespace,
    name: str,
    settings: dict[str, Any],
    items: Sequence[Any],
    make: Callable[[Any], Row],
) -> None:
    """Make all rows, in a results file of this name unless another was given."""
    from benchmarks.long import run as long
    from benchmarks.store import Store

    results = shared.results_file(options, name)
    store = Store(results, settings, [long.METHOD])
    with reporting(shared.progress(options, options.kind), options.kind) as report:
        long.in_turn(items, store, make, seconds=options.seconds, progress=report)
    shared.written(options, results)


def _settings(options: argparse.Namespace, sizes: list[int]) -> dict[str, Any]:
    """What the header of any of these files says."""
    return {
        "bench": "long",
        "kind": options.kind,
        "sizes": sizes,
        "limit": options.limit,
        "seed": options.seed,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
