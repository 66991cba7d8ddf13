"""``long``: prompts that are longer than the window."""

from __future__ import annotations

import argparse
import platform
from typing import Any

from benchmarks.cli import shared
from benchmarks.cli.closed import short
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.progress import reporting

_HELP = "needles in long prompts, HotpotQA among thousands of sentences, long answers, and their cost"
KINDS = ("needles", "sentences", "answers")
_SIZES = {"needles": [8_000, 32_000, 128_000], "sentences": [1000, 4000]}


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "long", _HELP)
    kind.add_argument("kind", choices=KINDS, help="the prompts")
    text = "tokens of the prose (8000 32000 128000), or sentences (1000 4000)"
    kind.add_argument("--sizes", nargs="+", type=int, metavar="N", help=text)
    text = "the model that answers, as --surrogate; the given answers are explained without it"
    kind.add_argument("--answering", metavar="MODEL", help=text)
    kind.add_argument("--preset", default="evidence", metavar="NAME", help="default evidence")
    text = "stop before the next prompt when so many seconds have passed; the same command resumes"
    kind.add_argument("--seconds", type=float, metavar="N", help=text)
    shared.add_data(kind)
    shared.add_model(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Explain long prompts."""
    from benchmarks.hardware import Hardware
    from benchmarks.long import answers, needles
    from benchmarks.long import run as long
    from benchmarks.store import Store

    shared.check(options, "limit")
    sizes = sorted(options.sizes or _SIZES.get(options.kind, ()))
    if sizes and sizes[0] < 1:
        raise InputError(f"--sizes must be at least 1, not {sizes[0]}.")
    if options.answering and options.kind != "needles":
        raise InputError("--answering is for needles: the other prompts come with their answers.")
    limit = options.limit or 10
    found: list[Any] = list(
        needles.cases(options.data, sizes, limit, options.seed)
        if options.kind == "needles"
        else long.sentences(options.data, sizes, limit)
        if options.kind == "sentences"
        else answers.steps(options.data, limit)
    )
    model, name = shared.load_local(options), short(options.surrogate)
    answering = shared.load_local(options, options.answering) if options.answering else None
    parts = ["long", options.kind, name, *([short(options.answering)] if answering else [])]
    results = shared.results_file(options, "-".join(parts))
    settings = {
        "bench": "long",
        "kind": options.kind,
        "preset": options.preset,
        "sizes": sizes,
        "answering": {**answering.describe(), "name": parts[-1]} if answering else None,
        "surrogate": {**model.describe(), "name": name},
        "machine": Hardware(model).describe(),
        "limit": options.limit,
        "seed": options.seed,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    store = Store(results, settings, [long.METHOD])
    with reporting(shared.progress(options, options.kind), options.kind) as report:
        how: dict[str, Any] = {"seconds": options.seconds, "progress": report}
        if options.kind == "answers":
            answers.run(found, model, store, **how)
        else:
            long.run(found, model, store, preset=options.preset, answering=answering, **how)
    shared.written(options, results)
