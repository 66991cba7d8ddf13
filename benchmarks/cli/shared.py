"""Options and helpers that several experiments share."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelime.errors import InputError
from ropelime.files import replacing
from ropelime.progress import Option, lines, note

if TYPE_CHECKING:
    from ropelime.surrogate import Surrogate
    from ropelime.surrogate.local import LocalSurrogate

# Options of the command line that results files name, unless they have their default.
_NAMED = ["context", "ablation", "limit", "surrogate", "device", "dtype", "seed", "generator"]
_NAMED += ["base_url", "rounds", "shape", "lines", "together", "memory", "answering", "skip", "masks"]
_DEFAULTS = {"surrogate": "smollm2", "ablation": "delete", "seed": 0, "rounds": 3, "together": 64}
_DEFAULTS |= {"memory": 0, "skip": 0, "masks": 32}
_SWITCHES = ("scaling", "start", "cached_only", "labels_only", "answers_only", "latency", "attempts")
_LEARNT = Path("src/ropelime/method/learnt.json")


def new_command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add a command with its help text."""
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text}.")
    return made


def add_data(kind: argparse.ArgumentParser) -> None:
    """Options of experiments on a data set."""
    kind.add_argument("--data", type=Path, metavar="FILE", help="the data set (default: hub copy)")
    kind.add_argument("--limit", type=int, metavar="N", help="number of examples, per bucket or in all")


def add_run(kind: argparse.ArgumentParser) -> None:
    """Options of everything that runs a model and writes a results file of its own."""
    kind.add_argument("--results", type=Path, metavar="FILE", help="results file to write or resume")
    kind.add_argument("--seed", type=int, default=0)
    add_model(kind)


def add_model(kind: argparse.ArgumentParser) -> None:
    """Options of everything that runs a model."""
    kind.add_argument("--surrogate", default="smollm2", metavar="MODEL", help="see `ropelime models`")
    kind.add_argument("--device", help="cpu, cuda, mps or auto")
    kind.add_argument("--dtype", help="float32, bfloat16 or float16")
    kind.add_argument("--quiet", action="store_true", help="print errors only")


def check(options: argparse.Namespace, *counts: str) -> None:
    """Refuse numbers below 1, and negative seeds."""
    for name in counts:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}.")
    if options.seed < 0:
        raise InputError(f"--seed must not be negative, not {options.seed}.")


def results_file(options: argparse.Namespace, name: str) -> Path:
    """The file that was named, or one in the folder ``results``."""
    if options.results is not None:
        return Path(options.results)
    results = Path("results") / f"{name}.jsonl"
    try:
        results.parent.mkdir(exist_ok=True)
    except FileExistsError:
        raise InputError(
            f"{results.parent} is a file, so no results can go into it. Pass --results FILE."
        ) from None
    return results


def progress(options: argparse.Namespace, name: str) -> Option:
    """How progress is shown: not at all, as a bar, or as lines."""
    if options.quiet:
        return False
    return "auto" if sys.stderr.isatty() else lines(name)


def add_write(kind: argparse.ArgumentParser) -> None:
    """Add the place of what is learnt."""
    kind.add_argument("--write", type=Path, default=_LEARNT, metavar="FILE", help=f"default {_LEARNT}")


def learnt() -> dict[str, Any]:
    """What was learnt before; nothing if there is no such file."""
    return dict(json.loads(_LEARNT.read_text(encoding="utf-8"))) if _LEARNT.exists() else {}


def write_learnt(place: Path, found: dict[str, Any]) -> None:
    """Write what was learnt."""
    with replacing(place) as file:
        file.write((json.dumps(found, indent=1) + "\n").encode())


def written(options: argparse.Namespace, results: Path) -> None:
    """Tell where the results are."""
    if not options.quiet:
        print(f"Written to {results}")


def load(options: argparse.Namespace, name: str | None = None) -> Surrogate:
    """The surrogate that was named, or another one on the same device."""
    from ropelime.surrogate import load_surrogate

    say = None if options.quiet else note
    name = name or options.surrogate
    return load_surrogate(name, device=options.device, dtype=options.dtype, say=say)


def load_local(options: argparse.Namespace, name: str | None = None) -> LocalSurrogate:
    """The same, for experiments that time the model in this process."""
    from ropelime.surrogate.local import LocalSurrogate

    loaded = load(options, name)
    if not isinstance(loaded, LocalSurrogate):
        raise InputError(f"{loaded.name} runs behind a server; this experiment needs a local model.")
    return loaded


def random_weights(
    options: argparse.Namespace, shape: str, tokenizer: Any = None, **more: Any
) -> LocalSurrogate:
    """A model of a known shape on the device that was named, or on the best one."""
    from benchmarks.shapes import random_surrogate
    from ropelime.surrogate.loading import best_device, best_dtype, check_device

    device = options.device or best_device()
    check_device(device)
    dtype = options.dtype or best_dtype(device)
    made = {"device": device, "dtype": dtype, "seed": options.seed, "tokenizer": tokenizer, **more}
    return random_surrogate(shape, **made)


def command(options: argparse.Namespace) -> str:
    """The command as anyone can repeat it: local paths by their names only."""
    words = ["python", "-m", "benchmarks", options.bench]
    words += [options.kind] if options.bench in ("closed", "heads", "believe", "long") else []
    words += [f"results/{options.file.name}"] if options.bench == "renew" else []
    switches = [name for name in _SWITCHES if getattr(options, name, False)]
    names = [name for name in _NAMED if (options.bench, name) != ("agents", "together")]
    if options.bench == "speed" and options.shape and "scaling" not in switches:
        names += ["features", "feature_tokens"]
    for name in names:
        value = getattr(options, name, None)
        if value is not None and value != _DEFAULTS.get(name):
            local = name in ("surrogate", "answering") and Path(value).expanduser().exists()
            words += [f"--{name.replace('_', '-')}", Path(value).name if local else str(value)]
    words += [f"--{name.replace('_', '-')}" for name in switches]
    if sampling := getattr(options, "sampling", None):
        words += ["--sampling", *sampling]
    if also := getattr(options, "also_by", None):
        words += ["--also-by", *(Path(name).name for name in also)]
    if options.bench == "long" and options.sizes:
        words += ["--sizes", *map(str, options.sizes)]
    if options.bench in ("believe", "long"):
        words += ["--preset", options.preset] if options.preset != "evidence" else []
    if options.bench == "believe":
        words += ["--rows", *(path.name for path in options.rows)] if options.rows else []
    if only := getattr(options, "only", None):
        words += ["--only", *only]
    for name, path in getattr(options, "heads", ()):
        words += ["--heads", f"{name}={path.name}"]
    if getattr(options, "answers", None):
        words += ["--answers", options.answers.name]
    if getattr(options, "actors", None):
        words += ["--actors", *map(str, options.actors)]
    if options.bench == "agents" and not options.latency:
        words += ["--form", *options.form]
    if options.data:
        given = options.data if isinstance(options.data, list) else [options.data]
        words += ["--data", *(path.name for path in given)]
    return shlex.join(words)
