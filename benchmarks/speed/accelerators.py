"""Tables of timings by configuration: accelerators left out in turn, or versions of the package.

Files hold lines of JSON without a header, one per timing: ``configuration``, ``round``, ``task``,
``seconds``, ``tokens``, ``cpu`` and ``torch``; optionally ``gpu``, ``dtype``, ``threads``, ``command``,
``width`` and ``median_width`` (of the intervals of normalised weights, the mean over so many
``prompts``),
``disturbed`` (by other processes) and the conditions ``busy`` and ``parallel``. Several rows of one
round are repetitions. Rows of tasks that are not in ``TASKS`` are set-up times and failures.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.pages import NONE
from benchmarks.store import Row, rows
from ropelime.errors import InputError

BASES = {"accelerators": "all", "versions": "before"}  # what the others are compared with, by file
# Each task with the names that rows give it.
TASKS = {"default explanation": ("default",), "64 exact masks": ("64 masks", "exact")}
_CONDITIONS = {"busy": "one core busy with other work", "parallel": "several runs at once"}
_NEEDED = {"configuration", "round", "task"}
_TIMED = {"seconds", "tokens", "cpu", "torch"}


def holds(path: Path) -> bool:
    """Whether a file is one of these, by its name."""
    return path.name.partition("-")[0] in BASES


def load(path: Path) -> list[Row]:
    """The timings of a file."""
    known = {name for names in TASKS.values() for name in names}
    timings = []
    for number, row in enumerate(rows(path), start=1):
        needed = _NEEDED | (_TIMED if row.get("task") in known else set())
        if lacking := sorted(needed - set(row)):
            raise InputError(f"{path}, line {number}: no {', '.join(lacking)}. Make the file again.")
        if row["task"] in known:
            timings.append(row)
    return timings


def tables(paths: Sequence[Path], kind: str) -> str:
    """A table for each machine, out of the files of one kind."""
    mine = sorted(path for path in paths if path.name.startswith(f"{kind}-"))
    found = [row for path in mine for row in load(path)]
    if not found:
        return "No results yet."
    base = BASES[kind]
    machines: dict[str, list[Row]] = {}
    for row in found:
        machines.setdefault(_machine(row), []).append(row)
    parts = []
    for machine, rows_ in machines.items():
        commands = dict.fromkeys(row["command"] for row in rows_ if "command" in row)
        parts += [f"### {kind.capitalize()}: {machine}", pages.commands(*commands) if commands else ""]
        parts += [_disturbed(rows_), _table(rows_, base)]
    return pages.blocks(*parts)


def _disturbed(found: Sequence[Row]) -> str:
    """How many timings are left out, because other processes used the cores meanwhile."""
    count = sum(bool(row.get("disturbed")) for row in found)
    words = "are left out; where all of a cell's were, it is empty."
    return f"Other processes disturbed {count} of {len(found)} timings, which {words}" if count else ""


def _table(found: Sequence[Row], base: str) -> str:
    names = list(dict.fromkeys(row["configuration"] for row in found))
    names.sort(key=lambda name: name != base)
    widths = {row["configuration"]: row for row in found if "width" in row}
    head = ["configuration"]
    for task in TASKS:
        head += [f"{task}, s", "tokens run", f"against {base}"]
    head += ["mean width of intervals", "median", "prompts"] if widths else []
    lines = []
    for name in names:
        line = [name]
        for task in TASKS:
            line += _cells(found, name, task, base)
        if widths:
            wide = widths.get(name)
            both = [] if wide is None else [f"{wide[key]:.3f}" for key in ("width", "median_width")]
            line += [NONE] * 3 if wide is None else [*both, str(wide["prompts"])]
        lines.append(line)
    return pages.table(head, lines)


def _cells(found: Sequence[Row], name: str, task: str, base: str) -> list[str]:
    """Median seconds, tokens, and by how much the median differs from that of the base."""
    mine, others = (_rounds(found, which, task) for which in (name, base))
    if not mine:
        return [NONE] * 3
    seconds = statistics.median(mine)
    tokens = {row["tokens"] for row in found if _is(row, name, task)}
    against = NONE if name == base or not others else f"{seconds / statistics.median(others) - 1:+.0%}"
    return [f"{seconds:.2f}", " / ".join(f"{count:,}" for count in sorted(tokens)), against]


def _rounds(found: Sequence[Row], name: str, task: str) -> list[float]:
    """The median of each round, so that a round with more repetitions does not count more."""
    by_round: dict[int, list[float]] = {}
    for row in found:
        if _is(row, name, task) and not row.get("disturbed"):
            by_round.setdefault(row["round"], []).append(row["seconds"])
    return [statistics.median(seconds) for seconds in by_round.values()]


def _is(row: Row, name: str, task: str) -> bool:
    return row["configuration"] == name and row["task"] in TASKS[task]


def _machine(row: Row) -> str:
    """The machine and the conditions under which rows can be compared."""
    facts = [row.get("gpu") or row["cpu"], row.get("dtype"), f"torch {row['torch']}"]
    if "threads" in row and "gpu" not in row:
        facts.insert(1, f"{row['threads']} threads")
    facts += [words for key, words in _CONDITIONS.items() if row.get(key)]
    return ", ".join(str(fact) for fact in facts if fact)
