"""Rows of rankings by words alone, in new runs and in results files that were made without them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import rows
from benchmarks.data import Example
from benchmarks.evaluation import agreement
from benchmarks.lexical import RANKINGS
from benchmarks.names import LEXICAL
from benchmarks.runner import UNLABELLED, Extra
from benchmarks.store import Row, read


def extras() -> dict[str, Extra]:
    """The rankings as methods of a run."""
    return {name: partial(row, name) for name in LEXICAL}


def row(name: str, example: Example, rng: np.random.Generator | None = None) -> Row:
    """The agreement with labels of one ranking; it takes no surrogate, so it has no other figures."""
    if not example.gold.any():
        return dict(UNLABELLED)
    weights = RANKINGS[name](example.question, example.answer, example.parts)
    found = asdict(agreement(weights, example.gold))
    return {key: None if value is None else round(value, 6) for key, value in found.items()}


def add(path: Path, source: Path | None) -> int:
    """Add the rows to a results file, compressed or not; gives how many were added.

    Args:
        path: The results file; rows that it has already are left as they are.
        source: The data that it was made from; the copy on the hub if None.
    """
    new = [name for name in LEXICAL if name not in read(path)[0].get("methods", ())]
    if not new:
        return 0
    return rows.replace(
        path, source, new, lambda _, example: [{"method": n, **row(n, example)} for n in new]
    )
