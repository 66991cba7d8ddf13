"""Results of ``python -m benchmarks batch`` become the figures in ``docs/scale.md``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale.measure import MEMORY, RAY, SPEED
from benchmarks.store import Row, read
from benchmarks.tables import markdown
from ropelime.errors import InputError

_BEGIN, _END = "<!-- figures: made by `python -m benchmarks report` -->", "<!-- end of figures -->"
_COMMAND = "python -m benchmarks batch --device cuda"
_MILLION = 1_000_000
_GPUS = (1, 8, 64)
_WANTED = 3.0  # times the explanations of one call after another


def write(results: Sequence[Path], docs: Path) -> list[Path]:
    """Put the figures into the page, between its two marks.

    Args:
        results: Results files of ``python -m benchmarks batch``.
        docs: The folder that holds ``scale.md``.
    """
    page = docs / "scale.md"
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{page} cannot be read: {error.strerror}.") from None
    head, begin, rest = text.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not begin or not end:
        raise InputError(f"{page} has no place for figures: {_BEGIN} and {_END}.")
    runs = [_Run(path) for path in sorted(results)]
    body = "\n\n".join([_speed(runs), *_ray(runs), *_memory(runs), _million(runs)])
    page.write_text(f"{head}{_BEGIN}\n\n{body}\n\n{_END}{tail}", encoding="utf-8", newline="\n")
    return [page]


class _Run:
    """One results file."""

    def __init__(self, path: Path) -> None:
        self.header, rows = read(path)
        self.path = path
        self.rows = {str(row["example"]): row for row in rows}
        model, machine = self.header["surrogate"], self.header["machine"]
        self.model = f"{model['name']}, {model['dtype']}"
        self.gpu = machine.get("gpu")
        threads = machine["threads"]
        self.machine = self.gpu or f"{machine['cpu']}, {threads} thread{'s' * (threads != 1)}"

    def rate(self, way: str) -> float | None:
        """Explanations a second, one call after another or as a batch."""
        row = self.rows.get(SPEED)
        return None if row is None else row["lines"] / statistics.median(row[way])

    def some(self, kind: str) -> list[Row]:
        """The rows of a kind of measurement."""
        return [row for unit, row in self.rows.items() if unit.startswith(f"{kind},")]


def _speed(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        loop, batch = run.rate("loop"), run.rate("batch")
        if loop is None or batch is None:
            continue
        row = run.rows[SPEED]
        rows.append(
            [
                run.model,
                run.machine,
                f"{loop:.2f}",
                f"{batch:.2f}",
                f"**{batch / loop:.2f}**",
                f"{row['weights apart']:.0e}",
                f"{row['shares apart']:.0e}",
                f"{row['tokens']:.0f}",
            ]
        )
    head = ["model", "machine", "one by one, a second", "batch, a second", "times"]
    head += ["weights differ by", "shares by", "tokens of one"]
    reached = [run for run in runs if (run.rate("batch") or 0) >= _WANTED * (run.rate("loop") or 1)]
    names = "; ".join(f"{run.model} on {run.machine}" for run in reached)
    says = f"At least {_WANTED:g} times: {names}." if reached else f"Nowhere {_WANTED:g} times."
    commands = "\n".join(str(run.header["command"]) for run in runs)
    return f"```\n{commands}\n```\n\n{markdown(head, rows)}\n\n{says}"


def _ray(runs: Sequence[_Run]) -> list[str]:
    rows = []
    for run in runs:
        for row in run.some(RAY):
            rate, batch = (statistics.median(row[key]) for key in ("a second", "local a second"))
            over = f"{1000 * (1 / rate - 1 / batch):+.1f} ms" if row["actors"] == 1 else ""
            start = f"{statistics.median(row['start']):.0f} s"
            rows.append([run.model, run.machine, str(row["actors"]), f"{batch:.2f}", f"{rate:.2f}"])
            rows[-1] += [f"{rate / batch:.2f}", over, start]
    if not rows:
        return []
    head = ["model", "machine", "actors", "local engine, a second", "Ray, a second", "times"]
    head += ["more for a line"]
    return ["### On Ray", markdown([*head, "until all work"], rows)]


def _memory(runs: Sequence[_Run]) -> list[str]:
    told = []
    for run in runs:
        for row in run.some(MEMORY):
            seen = row["resident"]
            tenth = next(size for done, size in seen if done >= row["lines"] / 10)
            told.append(
                f"{run.model}, {row['lines']:,} lines: {tenth / 2**20:,.0f} MiB after a tenth of them, "
                f"{seen[-1][1] / 2**20:,.0f} MiB after all, {max(s for _, s in seen) / 2**20:,.0f} MiB "
                "at most."
            )
    return ["### Memory", *told] if told else []


def _million(runs: Sequence[_Run]) -> str:
    title = "### A million explanations, on paper"
    found = [run for run in runs if run.gpu and "H200" in run.gpu and run.rate("batch")]
    if not found:
        return f"{title}\n\nNo figures of an H200 were given. This makes them: `{_COMMAND}`"
    rows = []
    for run in found:
        rate = run.rate("batch") or 1.0
        for count in _GPUS:
            hours = _MILLION / rate / count / 3600
            rows.append(
                [run.model, str(count), f"{rate * count:,.0f}", _time(hours), f"{hours * count:.1f}"]
            )
    head = ["model", "H200s", "explanations a second", "time", "GPU hours"]
    run = found[0]
    rate = run.rate("batch") or 1.0
    sums = (
        f"{_MILLION:,} / ({rate:.1f} a second and GPU) = {_MILLION / rate:,.0f} s of GPU time = "
        f"{_MILLION / rate / 3600:.1f} GPU hours, whatever their number; what that costs is this times "
        "the price of an hour."
    )
    return f"{title}\n\n{run.model}: {sums}\n\n{markdown(head, rows)}"


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
