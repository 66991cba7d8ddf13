"""The measurements of speed, each into a results file of its own that can be gone on with."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ropelime._version import __version__
from ropelime.bench.data import Example
from ropelime.bench.speed import contest, peers
from ropelime.bench.speed.measure import Contender, alternate
from ropelime.bench.store import Store
from ropelime.surrogate.hardware import Hardware, Size
from ropelime.surrogate.local import LocalSurrogate
from ropelime.surrogate.shapes import random_scorer

Progress = Callable[[int, int], None]
SPARSE_K = "sparse-k:2sqrt:M:kept:64"


def run_contest(
    examples: Sequence[Example],
    surrogate: LocalSurrogate,
    results: Path,
    *,
    rounds: int,
    command: str,
    progress: Progress | None = None,
) -> None:
    """Our engine, plain loops and the peers on the same prompts.

    Args:
        examples: The prompts.
        surrogate: The model that everybody runs.
        results: The results file.
        rounds: How often everybody runs.
        command: The command line, for the report.
        progress: Called with the prompts done and in all.
    """
    hardware, size = Hardware(surrogate), Size.of(surrogate.model)
    settings = _settings("contest", surrogate, hardware, rounds, command)
    settings["examples"] = [example.id for example in examples]
    store = Store(results, settings, contest.NAMES)
    first = contest.Task.of(contest.HALVES, examples[0])
    batch = peers.BatchSize(surrogate, first.example, first.masks)
    units = [(example, task) for example in examples for task in contest.TASKS]
    for done, (example, name) in enumerate(units):
        unit = f"{example.id}, {name}"
        if progress:
            progress(done, len(units))
        if unit in store.done:
            continue
        found = contest.contenders(contest.Task.of(name, example), surrogate, batch)
        outputs = len(contest.prepare(surrogate, example).sequences.output_ids)
        rows = alternate(found, hardware, size, outputs=outputs, rounds=rounds)
        known = {"example": unit, "prompt": example.id, "task": name, "features": len(example.spans)}
        store.add(unit, [{**known, **row} for row in rows])
    if progress:
        progress(len(units), len(units))


def run_shape(
    surrogate: LocalSurrogate,
    results: Path,
    *,
    features: int,
    tokens: int,
    rounds: int,
    seed: int,
    command: str,
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
    """
    hardware, size = Hardware(surrogate), Size.of(surrogate.model)
    scorer = random_scorer(surrogate, features=features, tokens=tokens, seed=seed)
    masks = contest.explained(features, SPARSE_K, seed)
    settings = _settings("shape", surrogate, hardware, rounds, command)
    settings |= {"features": features, "feature-tokens": tokens, "sampler": SPARSE_K, "seed": seed}
    found: Sequence[Contender] = contest.synthetic(surrogate, scorer, masks)
    store = Store(results, settings, [contender.name for contender in found])
    unit = f"{features} features of {tokens} tokens"
    if unit in store.done:
        return
    outputs = len(scorer.sequences.output_ids)
    rows = alternate(found, hardware, size, outputs=outputs, rounds=rounds)
    store.add(unit, [{"example": unit, "features": features, **row} for row in rows])


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
