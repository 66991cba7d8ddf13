"""Results files as numbers for tables: complete examples, means and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.data import BUCKETS
from benchmarks.store import Row, read
from ropelime.errors import InputError
from ropelime.typing import Floats

RESAMPLES = 2000
COVERAGE = 0.90
METRICS = {"iou": "IoU", "f1": "F1", "auroc": "AUROC"}

Section = tuple[str, str | None]
# Every section of the results page, and the command that makes its results.
COMMANDS: dict[Section, str] = {
    ("hotpotqa", "gold"): "python -m benchmarks hotpotqa --context gold --data FILE",
    ("hotpotqa", "all"): "python -m benchmarks hotpotqa --context all --data FILE",
    ("sweep", None): "python -m benchmarks sweep --data FILE",
    ("mmlu", None): "python -m benchmarks mmlu --data FILE",
    ("ablation", "gold"): "python -m benchmarks ablation --context gold --data FILE",
    ("ablation", "all"): "python -m benchmarks ablation --context all --data FILE",
}
_ELSEWHERE = ("budget",)  # experiments that have a page of their own


@dataclass(frozen=True)
class Spread:
    """Summary statistics of some values.

    Attributes:
        n: How many.
        mean: Their mean.
        std: Their standard deviation, divided by n.
        low: Lower end of the bootstrap interval of the mean.
        high: Its upper end.
    """

    n: int
    mean: float
    std: float
    low: float
    high: float

    @property
    def interval(self) -> str:
        """The interval as tables show it."""
        return f"[{self.low:.3f}, {self.high:.3f}]"


def spread(values: Floats, coverage: float = COVERAGE) -> Spread | None:
    """Mean, deviation and percentile bootstrap interval, of 90 % by default; None without values."""
    if not len(values):
        return None
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    low, high = np.quantile(values[drawn].mean(1), tails)
    return Spread(len(values), float(values.mean()), float(values.std()), float(low), float(high))


@dataclass(frozen=True)
class Results:
    """The complete examples of one results file.

    Attributes:
        path: The file.
        header: Its header.
        rows: The rows of each method, in the same order of examples.
        missing: Examples that the run should have, or that the file begins, and that are incomplete.
    """

    path: Path
    header: Row
    rows: dict[str, list[Row]]
    missing: int

    @property
    def section(self) -> Section:
        """Its section of the results page."""
        bench = self.header["bench"]
        return bench, self.header["context"] if bench in ("hotpotqa", "ablation") else None

    def examples(self, group: str | None = None) -> list[Row]:
        """One row for each example, of one group or of all."""
        first = next(iter(self.rows.values()), [])
        return [row for row in first if group in (None, row["group"])]

    def buckets(self) -> list[str]:
        """The paper's buckets that have examples here."""
        return [name for name, _, _ in BUCKETS if self.examples(name)]

    def all_gold(self, group: str | None = None) -> int:
        """Examples without an AUROC, because every feature is gold."""
        return sum(row["gold"] == row["features"] for row in self.examples(group))

    def without_gold(self, group: str | None = None) -> int:
        """Examples without IoU, F1 and AUROC, because no feature is gold."""
        return sum(row["gold"] == 0 for row in self.examples(group))

    def values(self, method: str, metric: str, group: str | None = None) -> Floats:
        """The values of a method where it has one; none where the method was not run."""
        rows = [row for row in self.rows.get(method, []) if group in (None, row["group"])]
        return np.array([row[metric] for row in rows if row.get(metric) is not None], dtype=float)

    def mean(self, method: str, metric: str, group: str | None = None) -> float | None:
        """Their mean; None where there are none."""
        values = self.values(method, metric, group)
        return float(values.mean()) if len(values) else None

    def spread(self, method: str, metric: str, group: str | None = None) -> Spread | None:
        """The same with deviation and interval."""
        return spread(self.values(method, metric, group))

    def difference(self, method: str, other: str, metric: str) -> Floats:
        """One method minus another, over the examples where both have a value."""
        pairs = zip(self.rows.get(method, []), self.rows.get(other, []), strict=False)
        both = [(a[metric], b[metric]) for a, b in pairs if None not in (a.get(metric), b.get(metric))]
        return np.array([a - b for a, b in both], dtype=float)

    def averaged(self, methods: Sequence[str], metric: str) -> Floats:
        """For each example the mean over several methods, where one of them has a value."""
        columns = zip(*(self.rows[m] for m in methods), strict=True)
        found = [[row[metric] for row in rows if row.get(metric) is not None] for rows in columns]
        return np.array([np.mean(values) for values in found if values], dtype=float)


def load(path: Path) -> Results:
    """Read a results file and keep the examples that have a row for every method."""
    header, rows = read(path)
    bench, context = header.get("bench"), header.get("context")
    listed = any(bench == b and c in (None, context) for b, c in COMMANDS)
    if not listed and bench not in _ELSEWHERE:
        known = ", ".join(f"{b} {c or ''}".strip() for b, c in COMMANDS)
        raise InputError(
            f"{path} says that it holds bench {bench!r} with context {context!r}; the report knows "
            f"{known}. Make the file with `python -m benchmarks`."
        )
    methods: list[str] = header["methods"]
    needed = {"example", "group", "features", "gold", "method", *METRICS}
    found: dict[str, dict[str, Row]] = {}
    for number, row in enumerate(rows, start=2):
        if not needed <= set(row):
            lacking = ", ".join(sorted(needed - set(row)))
            raise InputError(f"{path}, line {number}: no {lacking}. Make the file again.")
        if row["method"] in found.setdefault(row["example"], {}):
            raise InputError(
                f"{path}, line {number}: a second row of {row['method']}. Make the file again."
            )
        found[row["example"]][row["method"]] = row
    whole = [by_method for by_method in found.values() if set(methods) <= set(by_method)]
    expected = max(len(found), header.get("examples") or 0)
    return Results(path, header, {m: [by[m] for by in whole] for m in methods}, expected - len(whole))
