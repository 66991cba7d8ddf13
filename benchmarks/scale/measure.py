"""Many short prompts: one call after another, a batch, and a batch on Ray."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hardware import Hardware, resident
from benchmarks.store import Row, Store
from ropelime._version import __version__
from ropelime.batch import local
from ropelime.batch.run import Engine, run
from ropelime.batch.store import rows
from ropelime.batch.work import Settings
from ropelime.explain import Explanation, explain
from ropelime.surrogate.local import LocalSurrogate

SPEED, MEMORY, RAY = "speed", "memory", "ray"
RATE, RATE_LOCAL = "per second", "local per second"
# The largest differences between a batch and one call after another.
DIFFERENCES = ("max weight difference", "max normalised weight difference")
_NAMES = ("Marta", "Jon", "Ada", "Kurt", "Lea", "Omar", "Nina", "Tom", "Ines", "Piet")
_TOWNS = ("Kessel", "Lind", "Orrin", "Dray", "Sorrel", "Brack", "Velm", "Tarn")
_TRADES = ("an engineer", "a potter", "a sailor", "a teacher", "a baker", "a painter")
_WARM_UP = 8  # lines that are explained before the timing starts


def short_lines(count: int, seed: int = 0) -> list[Row]:
    """Short retrieval prompts: three sentences, a question, an answer of a few words."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        name, town, trade = (str(rng.choice(known)) for known in (_NAMES, _TOWNS, _TRADES))
        facts = [
            f"{name} was born in {town} in {1900 + number % 100}.",
            f"{town} lies on a river.",
            f"{name} worked as {trade} for {2 + number % 40} years.",
        ]
        order = rng.permutation(len(facts))
        made.append(
            {
                "context": [facts[i] for i in order],
                "question": f"Where was {name} born?",
                "output": f"{name} was born in {town}.",
            }
        )
    return made


def measure(
    surrogate: LocalSurrogate,
    results: Path,
    *,
    lines: int,
    rounds: int,
    together: int,
    command: str,
    device: str | None = None,
    dtype: str | None = None,
    memory: int = 0,
    actors: tuple[int, ...] = (),
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Measure what was not measured yet.

    Args:
        surrogate: The model.
        results: The results file.
        lines: Lines of a round.
        rounds: Number of rounds; the loop of single calls and the batch alternate.
        together: Lines that a batch scores together.
        command: The command line, for the report.
        device: The device of Ray's actors.
        dtype: Their dtype.
        memory: Lines of a batch during which memory is sampled; not measured if 0.
        actors: Numbers of Ray actors, one run for each.
        seed: Seed of the lines.
        progress: Called with the measurements done and in all.
    """
    settings = {
        "bench": "batch",
        "surrogate": {**surrogate.describe(), "name": Path(surrogate.name).name},
        "machine": Hardware(surrogate).describe(),
        "lines": lines,
        "rounds": rounds,
        "together": together,
        "seed": seed,
        "command": command,
        "versions": {"ropelime": __version__, "python": platform.python_version(), **_ray()},
        "date": datetime.date.today().isoformat(),
    }
    store = Store(results, settings, [SPEED])
    bench = _Bench(surrogate, lines, together, seed, device, dtype)
    units: dict[str, Callable[[], Row]] = {SPEED: partial(bench.speed, rounds)}
    if memory:
        units[f"{MEMORY}, {memory} lines"] = partial(bench.memory, memory)
    for count in actors:
        units[f"{RAY}, {count} actors"] = partial(bench.ray, count, rounds)
    for done, (unit, take) in enumerate(units.items()):
        if progress:
            progress(done, len(units))
        if unit not in store.done:
            store.add(unit, [{"example": unit, "method": SPEED, **take()}])
    if progress:
        progress(len(units), len(units))


class _Bench:
    """The measurements of one model."""

    def __init__(
        self,
        surrogate: LocalSurrogate,
        lines: int,
        together: int,
        seed: int,
        device: str | None,
        dtype: str | None,
    ) -> None:
        self._model, self._together = surrogate, together
        self._lines = short_lines(lines, seed)
        self._settings = Settings(surrogates=(surrogate.name,), device=device, dtype=dtype)
        self._one_process: Engine = partial(local.run, models=[surrogate])

    def speed(self, rounds: int) -> Row:
        """Seconds for all lines, one call after another and as a batch."""
        self._one_by_one(self._lines[:_WARM_UP])
        self._batch(self._lines, self._one_process)  # warms up chunks of this size
        loop: list[float] = []
        batch: list[float] = []
        for _ in range(rounds):
            start = time.perf_counter()
            alone = self._one_by_one(self._lines)
            loop.append(time.perf_counter() - start)
            start = time.perf_counter()
            found = self._batch(self._lines, self._one_process)
            batch.append(time.perf_counter() - start)
        differences = [_differences(e, found[f"line {n}"]) for n, e in enumerate(alone, 1)]
        return {
            "lines": len(self._lines),
            "loop": [round(s, 4) for s in loop],
            "batch": [round(s, 4) for s in batch],
            **dict(zip(DIFFERENCES, np.max(differences, axis=0).tolist(), strict=True)),
            "masked prompts": statistics.mean(e.cost.masks for e in alone),
            "tokens": statistics.mean(e.cost.tokens for e in alone),
            "features": statistics.mean(len(e.features) for e in alone),
        }

    def memory(self, lines: int) -> Row:
        """Memory of this process while a long batch runs."""
        seen: list[list[int]] = []

        def look(done: int, total: int) -> None:
            if done // max(1, total // 20) >= len(seen):
                seen.append([done, resident()])

        start = time.perf_counter()
        self._batch(short_lines(lines), self._one_process, progress=look)
        return {"lines": lines, "seconds": round(time.perf_counter() - start, 2), "resident": seen}

    def ray(self, actors: int, rounds: int) -> Row:
        """Batches in this process and on a local Ray cluster in turn; start-up is timed separately."""
        from ropelime.batch import ray

        starts: list[float] = []
        rates: list[float] = []
        ours: list[float] = []
        for _ in range(rounds):
            begin = time.perf_counter()
            self._batch(self._lines, self._one_process)
            ours.append(len(self._lines) / (time.perf_counter() - begin))
            at: list[tuple[float, int]] = []
            begin = time.perf_counter()
            self._batch(
                self._lines,
                partial(ray.run, actors=actors),
                progress=lambda done, _, at=at: at.append((time.perf_counter(), done)),
            )
            # By then every actor has returned its first group.
            first, last = at[min(actors, len(at) - 2)], at[-1]
            starts.append(first[0] - begin)
            rates.append((last[1] - first[1]) / (last[0] - first[0]))
        return {
            "lines": len(self._lines),
            "actors": actors,
            "start": [round(s, 3) for s in starts],
            RATE: [round(rate, 4) for rate in rates],
            RATE_LOCAL: [round(rate, 4) for rate in ours],
        }

    def _one_by_one(self, lines: list[Row]) -> list[Explanation]:
        each: list[Any] = [explain(**line, surrogate=self._model, progress=False) for line in lines]
        return each

    def _batch(self, lines: list[Row], engine: Engine, progress: Any = None) -> dict[str, Row]:
        with tempfile.TemporaryDirectory(prefix="ropelime-batch-") as folder:
            source, target = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
            source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            run(
                source,
                target,
                self._settings,
                engine,
                together=self._together,
                progress=progress,
            )
            return {row["id"]: row for row in rows(target)} if len(lines) <= 4096 else {}


def _differences(e: Explanation, row: Row) -> tuple[float, float]:
    """The largest differences of weights and normalised weights between a row and an explanation."""
    place = {feature.start: number for number, feature in enumerate(e.features)}
    found = [(f["weight"], f["normalized_weight"], place[f["start"]]) for f in row["features"]]
    return (
        max(abs(weight - float(e.weights[i])) for weight, _, i in found),
        max(abs(score - float(e.normalized_weights[i])) for _, score, i in found),
    )


def _ray() -> dict[str, str]:
    with suppress(PackageNotFoundError):
        return {"ray": version("ray")}
    return {}
