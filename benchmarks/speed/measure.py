"""Contenders take turns, and what each took becomes a row."""

from __future__ import annotations

import io
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.hardware import Hardware, Measured, Size
from benchmarks.store import Row
from ropelime.errors import first_line

Lengths = Sequence[int]


class Contender(Protocol):
    """Something that scores masked prompts."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        ...

    def run(self) -> object:
        """Score everything once."""
        ...

    def lengths(self, measured: Measured) -> Lengths:
        """Tokens of each masked prompt with the answer, of the run that was measured."""
        ...

    def facts(self) -> Row:
        """What else its row should say."""
        ...


@dataclass(frozen=True)
class Absent:
    """A contender that does not take part.

    Attributes:
        name: What the tables call it.
        kind: ``"absent"`` where it is not installed, ``"failed"`` where it broke before its first run,
            ``"skipped"`` where the task is not one of its.
        reason: Why, or what would change that.
    """

    name: str
    kind: str
    reason: str


@dataclass
class Run:
    """Some work for the model by itself, such as one scoring of ours.

    Attributes:
        name: What the tables call it.
        work: Does it, and gives back the length of each masked prompt.
        more: What else its row should say.
    """

    name: str
    work: Callable[[], Lengths]
    more: Row = field(default_factory=dict)
    _lengths: Lengths = ()

    def run(self) -> object:
        """Score everything once."""
        self._lengths = self.work()
        return None

    def lengths(self, measured: Measured) -> Lengths:
        """Tokens of each masked prompt with the answer."""
        return self._lengths

    def facts(self) -> Row:
        """What else its row should say."""
        return self.more


def alternate(
    contenders: Sequence[Contender | Absent],
    hardware: Hardware,
    size: Size,
    *,
    outputs: int,
    rounds: int,
    warm_up: bool = False,
) -> list[Row]:
    """Let all contenders score in turn, several times over.

    The matrix rate is measured before every round and after the last one, and its median is taken.
    Operations are those of a loop that shares nothing, or, of a contender whose facts say which
    ``pairs`` of tokens and keys it looks at, those of what it ran.

    Args:
        contenders: Who takes part, and who does not.
        hardware: What they run on.
        size: The size of the model.
        outputs: Tokens of the answer.
        rounds: How often each of them runs.
        warm_up: Whether one round more goes before, uncounted; it always does on a GPU.

    Returns:
        A row for each.
    """
    # Kernels of a GPU are loaded and tuned when they are first used.
    before = 1 if warm_up or hardware.kind == "cuda" else 0
    rates: list[float] = []
    seen: dict[str, list[Measured]] = {c.name: [] for c in contenders}
    failed: dict[str, str] = {}
    for number in range(before + rounds):
        rates.append(hardware.rate())
        for contender in contenders:
            if isinstance(contender, Absent) or contender.name in failed:
                continue
            try:
                with quiet():
                    measured = hardware.measure(contender.run)
                if number >= before:
                    seen[contender.name].append(measured)
            except Exception as error:  # a peer may fail in any way, and its row says how
                failed[contender.name] = reason(error)
    rates.append(hardware.rate())
    rate = statistics.median(rates)
    rows: list[Row] = []
    for contender in contenders:
        row: Row = {"method": contender.name}
        if isinstance(contender, Absent):
            row[contender.kind] = contender.reason
        elif contender.name in failed:
            row["failed"] = failed[contender.name]
        else:
            row |= _row(contender, seen[contender.name], size, outputs, rate)
        rows.append(row)
    return rows


def _row(contender: Contender, runs: Sequence[Measured], size: Size, outputs: int, rate: float) -> Row:
    lengths = contender.lengths(runs[-1])
    seconds = statistics.median(run.seconds for run in runs)
    facts = contender.facts()
    operations = size.operations(lengths, outputs)
    if "pairs" in facts:
        operations = size.work(runs[-1].tokens, facts["pairs"], outputs * len(lengths))
    return {
        "prompts": len(lengths),
        "tokens": int(sum(lengths)),
        "run": runs[-1].tokens,
        "seconds": round(seconds, 5),
        "rounds": [round(run.seconds, 5) for run in runs],
        "processor": round(statistics.median(run.processor for run in runs), 5),
        "memory": int(statistics.median(run.memory for run in runs)),
        "operations": operations,
        "rate": rate,
        "floor": round(operations / rate, 5),
        "ratio": round(operations / rate / seconds, 4),
        **facts,
    }


def reason(error: BaseException) -> str:
    """What went wrong, on one line and without paths."""
    first = first_line(error)
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the peers' bars, prints and warnings off the terminal."""
    sink: Any = io.StringIO()
    with warnings.catch_warnings(), redirect_stderr(sink), redirect_stdout(sink):
        warnings.simplefilter("ignore")
        yield
