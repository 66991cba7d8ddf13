"""The speed measurements, each into a resumable results file of its own."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.data import Example
from benchmarks.hardware import Hardware, Size
from benchmarks.shapes import random_scorer
from benchmarks.speed import contest, names, peers, start
from benchmarks.speed.measure import alternate
from benchmarks.store import Store
from ropelime._version import __version__
from ropelime.surrogate.local import LocalSurrogate

Progress = Callable[[int, int], None]
SPARSE_K = "sparse-k:2sqrt:M:kept:64"
SIZES = (50, 100, 200, 500, 1000, 2000)
COUNTS = (16, 64, 256)
FIXED = 200  # features while the number of masks is varied
FEATURE_TOKENS = 16


def run_contest(
    examples: Sequence[Example],
    surrogate: LocalSurrogate,
    results: Path,
    *,
    rounds: int,
    command: str,
    compiled: bool = False,
    progress: Progress | None = None,
) -> None:
    """Our engine, plain loops and the peers on the same prompts.

    Args:
        examples: The prompts.
        surrogate: The model that all contenders run.
        results: The results file.
        rounds: How often each contender runs.
        command: The command line, for the report.
        compiled: Whether to run our engine with compiled layers too.
        progress: Called with the prompts done and in all.
    """
    hardware, size = Hardware(surrogate), Size.of(surrogate.model)
    settings = _settings("contest", surrogate, hardware, rounds, command)
    settings["examples"] = [example.id for example in examples]
    methods = [m for m in names.CONTENDERS if compiled or m != names.COMPILED]
    store = Store(results, settings, methods)
    other = _compiled(surrogate) if compiled else None
    first = contest.Task.of(names.RANDOM_HALF, examples[0])
    batch = peers.BatchSize(surrogate, first.example, first.masks)
    units = [(example, task) for example in examples for task in names.TASKS]
    for done, (example, name) in enumerate(units):
        unit = f"{example.id}, {name}"
        if progress:
            progress(done, len(units))
        if unit in store.done:
            continue
        found = contest.contenders(contest.Task.of(name, example), surrogate, batch, other)
        outputs = len(contest.prepare(surrogate, example).tokenized.output_ids)
        rows = alternate(found, hardware, size, outputs=outputs, rounds=rounds)
        known = {"example": unit, "prompt": example.id, "task": name, "features": len(example.spans)}
        store.add(unit, [{**known, **row} for row in rows])
    if progress:
        progress(len(units), len(units))


def _compiled(surrogate: LocalSurrogate) -> LocalSurrogate:
    """The same model with compiled layers."""
    return LocalSurrogate(surrogate.model, surrogate.tokenizer, name=surrogate.name, compiled=True)


def run_shape(
    surrogate: LocalSurrogate,
    results: Path,
    *,
    features: int,
    tokens: int,
    rounds: int,
    seed: int,
    command: str,
    compiled: bool = False,
) -> None:
    """A whole explanation with a model of some shape and a prompt of random tokens.

    Args:
        surrogate: The model.
        results: The results file.
        features: Features of the prompt.
        tokens: Tokens of a feature.
        rounds: How often it is run.
        seed: Seed of prompt and masks.
        command: The command line, for the report.
        compiled: Whether to run it with compiled layers too.
    """
    hardware, size = Hardware(surrogate), Size.of(surrogate.model)
    scorer = random_scorer(surrogate, features=features, tokens=tokens, seed=seed)
    masks = contest.explained(features, SPARSE_K, seed)
    settings = _settings("shape", surrogate, hardware, rounds, command)
    settings |= {"features": features, "feature-tokens": tokens, "sampler": SPARSE_K, "seed": seed}
    other = None
    if compiled:
        other = random_scorer(_compiled(surrogate), features=features, tokens=tokens, seed=seed)
    found = contest.synthetic(surrogate, scorer, masks, other)
    store = Store(results, settings, [contender.name for contender in found])
    unit = f"{features} features of {tokens} tokens"
    if unit in store.done:
        return
    outputs = len(scorer.tokenized.output_ids)
    rows = alternate(found, hardware, size, outputs=outputs, rounds=rounds)
    store.add(unit, [{"example": unit, "features": features, **row} for row in rows])


def run_scaling(
    surrogate: LocalSurrogate,
    results: Path,
    *,
    rounds: int,
    seed: int,
    command: str,
    sizes: Sequence[int] = SIZES,
    counts: Sequence[int] = COUNTS,
    progress: Progress | None = None,
) -> None:
    """Cost of an explanation against the number of features, and memory against the number of masks.

    Args:
        surrogate: The model.
        results: The results file.
        rounds: How often each is run.
        seed: Seed of prompts and masks.
        command: The command line, for the report.
        sizes: Numbers of features, with 64 masks that keep √M of them.
        counts: Numbers of such masks, with ``FIXED`` features.
        progress: Called with the settings done and in all.
    """
    hardware, size = Hardware(surrogate), Size.of(surrogate.model)
    settings = _settings("scaling", surrogate, hardware, rounds, command)
    settings |= {"feature-tokens": FEATURE_TOKENS, "seed": seed}
    store = Store(results, settings, names.SCALED)
    units = [(n, 64, f"{n} features") for n in sizes]
    units += [(FIXED, count, f"{count} masks") for count in counts]
    warm_up = True  # once, because first use imports modules
    for done, (n, count, unit) in enumerate(units):
        if progress:
            progress(done, len(units))
        if unit in store.done:
            continue
        scorer = random_scorer(surrogate, features=n, tokens=FEATURE_TOKENS, seed=seed)
        found = contest.scaled(scorer, count, seed, whole=unit.endswith("features"))
        outputs = len(scorer.tokenized.output_ids)
        rows = alternate(found, hardware, size, outputs=outputs, rounds=rounds, warm_up=warm_up)
        warm_up = False
        known = {"example": unit, "features": n, "masks": count, "length": len(scorer.tokenized.ids)}
        store.add(unit, [{**known, **row} for row in rows])
    if progress:
        progress(len(units), len(units))


def run_start(
    surrogate: LocalSurrogate,
    results: Path,
    *,
    device: str | None,
    dtype: str | None,
    rounds: int,
    command: str,
) -> None:
    """The first explanation of a new process, and the second one in it.

    Args:
        surrogate: The model; each process loads it again by its name.
        results: The results file.
        device: The device that was requested.
        dtype: The dtype that was requested.
        rounds: Number of processes.
        command: The command line, for the report.
    """
    settings = _settings("start", surrogate, Hardware(surrogate), rounds, command)
    store = Store(results, settings, [start.METHOD])
    if start.METHOD not in store.done:
        row = start.measure(surrogate.name, device, dtype, rounds)
        store.add(start.METHOD, [{"example": start.METHOD, **row}])


def _settings(
    kind: str, surrogate: LocalSurrogate, hardware: Hardware, rounds: int, command: str
) -> dict[str, Any]:
    return {
        "bench": "speed",
        "kind": kind,
        "surrogate": {**surrogate.describe(), "name": Path(surrogate.name).name},
        "machine": hardware.describe(),
        "rounds": rounds,
        "command": command,
        "versions": {"ropelime": __version__, "python": platform.python_version(), **_peers()},
        "date": datetime.date.today().isoformat(),
    }


def _peers() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("context-cite", "captum", "shapiq"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
