"""A batch whose surrogate is a function, so that processes that run it start fast.

As a program it runs one: ``python batch_toy.py IN OUT [SECONDS]``, with a pause for each call.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ropelime.batch import local
from ropelime.batch.run import BatchSummary, run
from ropelime.batch.store import rows
from ropelime.batch.work import Settings
from ropelime.options import Options
from ropelime.surrogate import FunctionSurrogate, Surrogate
from ropelime.typing import Floats, Masks

OPTIONS = Options(preset="faithful", features="word")


@dataclass(frozen=True)
class Reading:
    """More features, more sense; after a pause."""

    pause: float = 0.0

    def __call__(self, masks: Masks) -> Floats:
        time.sleep(self.pause)
        return np.asarray(masks @ (0.1 + np.arange(masks.shape[1])) - 40.0)


@dataclass(frozen=True)
class ToySettings(Settings):
    """Settings whose model needs no file."""

    pause: float = 0.0

    def load(self, say: Any = None) -> list[Surrogate]:
        return [FunctionSurrogate(Reading(self.pause), name="toy")]


def write_lines(path: Path, count: int, start: int = 0) -> Path:
    """An input of short prompts, each with its own name."""
    with path.open("a") as file:
        for i in range(start, start + count):
            words = " ".join(f"w{i}{letter}" for letter in "abcd")
            file.write(json.dumps({"id": f"n{i}", "prompt": words, "output": "yes"}) + "\n")
    return path


def go(source: Path, target: Path, *, pause: float = 0.0, **options: Any) -> BatchSummary:
    """Run a batch by the toy surrogate."""
    chosen = {name: options.pop(name) for name in ("options", "full") if name in options}
    settings = ToySettings(**{"options": OPTIONS, **chosen}, pause=pause)
    engine = options.pop("engine", None) or partial(local.run, models=settings.load())
    return run(source, target, settings, engine, **options)


def check(target: Path, ids: list[str | int]) -> None:
    """Every line has one row, and every row is whole."""
    found = list(rows(target))
    assert sorted(map(str, (row["id"] for row in found))) == sorted(map(str, ids))
    assert all(row["error"] is None and len(row["features"]) == 4 for row in found)
    assert target.read_bytes().endswith(b"\n")


if __name__ == "__main__":
    go(Path(sys.argv[1]), Path(sys.argv[2]), pause=float(sys.argv[3]), together=4,
       progress=lambda done, total: print(done, flush=True))  # fmt: skip
