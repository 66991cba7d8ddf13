"""How much of the question's shift counts for the last part, which stands next to the question.

Stored rows hold the shares that each signal gave before that was asked, so the table needs no model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks import pages
from benchmarks.closed.attempts import mixed, shares
from benchmarks.closed.measures import SIGNALS, lost_without
from benchmarks.evaluation import agreement
from benchmarks.pages import NONE, number
from benchmarks.store import Row
from ropelime.method.attribution import above_floor, without_place
from ropelime.typing import Floats

COUNTED = 0.4  # by the default
_COUNTS = (1.0, 0.5, COUNTED, 0.25, 0.0)
_FIRST = 5


def table(files: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """A line for each run with all that was tried, and each way to count.

    Args:
        files: Header and rows of the runs.
    """
    lines = [
        [header["kind"], surrogate, f"{count:g}", *_judged(rows, surrogate, count)]
        for header, rows in files
        for surrogate in header["surrogates"]
        for count in _COUNTS
    ]
    head = [
        "prompts",
        "surrogate",
        "counts",
        "last is cited",
        "last is among the first five",
        "F1",
        "AUROC",
        "necessity 1",
    ]
    return pages.table(head, lines) if lines else NONE


def weights(row: Row, surrogate: str, count: float = COUNTED) -> Floats:
    """(n,) the weights of `evidence` where so much counts of the last part's share of the question."""
    known = shares(row, surrogate, SIGNALS)
    return above_floor(mixed({**known, "question": without_place(known["question"], count)}))


def _judged(rows: Sequence[Row], surrogate: str, count: float) -> list[str]:
    made = [(row, weights(row, surrogate, count)) for row in rows]
    last = [len(w) - 1 in np.argsort(-w, kind="stable")[:_FIRST] for _, w in made]
    cited = [float(len(w) - 1 in row["gold"]) for row, w in made if row.get("gold")]
    agreed = [
        agreement(w, np.isin(np.arange(len(w)), row["gold"])) for row, w in made if row.get("gold")
    ]
    lost = [float(lost_without(row)[int(np.argmax(w))]) for row, w in made if "held_out" in row]
    areas = [each.auroc for each in agreed if each.auroc is not None]
    means = (cited, last, [each.f1 for each in agreed], areas, lost)
    return [number(float(np.mean(each)) if each else None, ".3f") for each in means]
