"""Results of ``python -m benchmarks batch`` become the numbers in ``docs/results/scale.md``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.scale.measure import DIFFERENCES, MEMORY, RATE, RATE_LOCAL, RAY, SPEED
from benchmarks.store import Row, read

_COMMAND = "python -m benchmarks batch"
_MILLION = 1_000_000
_GPUS = (1, 8, 64)


def write(results: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page.

    Args:
        results: Results files of ``python -m benchmarks batch``.
        docs: The folder of the page.
    """
    runs = [_Run(path) for path in sorted(results)]
    holes = {
        "throughput": _throughput(runs),
        "ray": _ray(runs) or pages.no_results(f"{_COMMAND} --actors 1 2"),
        "memory": _memory(runs),
        "million": _million(runs) or pages.no_results(f"{_COMMAND} --device cuda"),
    }
    return [pages.write(docs, "scale", **holes)]


class _Run:
    """One results file."""

    def __init__(self, path: Path) -> None:
        self.header, rows = read(path)
        self.rows = {str(row["example"]): row for row in rows}
        model, machine = self.header["surrogate"], self.header["machine"]
        self.model = f"{model['name']}, {model['dtype']}"
        self.gpu = machine.get("gpu")
        threads = machine["threads"]
        self.machine = self.gpu or f"{machine['cpu']}, {threads} thread{'s' * (threads != 1)}"

    def rate(self, way: str) -> float | None:
        """Explanations per second, one call after another or as a batch."""
        row = self.rows.get(SPEED)
        return None if row is None else row["lines"] / statistics.median(row[way])

    def some(self, kind: str) -> list[Row]:
        """The rows of a kind of measurement."""
        return [row for unit, row in self.rows.items() if unit.startswith(f"{kind},")]


def _throughput(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        loop, batch = run.rate("loop"), run.rate("batch")
        if loop is None or batch is None:
            continue
        row = run.rows[SPEED]
        rates = [f"{loop:.2f}", f"{batch:.2f}", f"**{batch / loop:.2f} ×**"]
        differences = [f"{row[key]:.0e}" for key in DIFFERENCES]
        rows.append([run.model, run.machine, *rates, *differences, f"{row['tokens']:.0f}"])
    head = ["model", "machine", "one by one, per second", "batch, per second", "speed-up"]
    head += [*DIFFERENCES, "tokens per explanation"]
    return pages.blocks(
        pages.commands(*(run.header["command"] for run in runs)), pages.table(head, rows)
    )


def _ray(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        for row in run.some(RAY):
            rate, local = (statistics.median(row[key]) for key in (RATE, RATE_LOCAL))
            over = f"{1000 * (1 / rate - 1 / local):+.1f} ms" if row["actors"] == 1 else ""
            start = f"{statistics.median(row['start']):.0f} s"
            rows.append([run.model, run.machine, str(row["actors"]), f"{local:.2f}", f"{rate:.2f}"])
            rows[-1] += [f"{rate / local:.2f} ×", over, start]
    head = ["model", "machine", "actors", "local engine, per second", "Ray, per second", "speed-up"]
    head += ["overhead per line", "start-up"]
    return pages.table(head, rows) if rows else ""


def _memory(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        for row in run.some(MEMORY):
            seen = row["resident"]
            tenth = next(size for done, size in seen if done >= row["lines"] / 10)
            sizes = (tenth, seen[-1][1], max(size for _, size in seen))
            cells = [f"{size / 2**20:,.0f} MiB" for size in sizes]
            rows.append([run.model, run.machine, f"{row['lines']:,}", *cells])
    head = ["model", "machine", "lines", "after a tenth", "at the end", "peak"]
    return pages.blocks("### Memory", pages.table(head, rows)) if rows else ""


def _million(runs: Sequence[_Run]) -> str:
    """The time of a million explanations, computed from the measured rate of one H200."""
    rates = {
        run.model: rate for run in runs if run.gpu and "H200" in run.gpu and (rate := run.rate("batch"))
    }
    if not rates:
        return ""
    rows = []
    for model, rate in rates.items():
        for count in _GPUS:
            hours = _MILLION / rate / count / 3600
            rows.append(
                [model, str(count), f"{rate * count:,.0f}", _time(hours), f"{hours * count:.1f}"]
            )
    model, rate = next(iter(rates.items()))
    sums = (
        f"{model}: {_MILLION:,} / ({rate:.1f} per second and GPU) = {_MILLION / rate:,.0f} s of GPU "
        f"time = {_MILLION / rate / 3600:.1f} GPU hours."
    )
    head = ["model", "H200s", "explanations per second", "time", "GPU hours"]
    return pages.blocks(sums, pages.table(head, rows))


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
