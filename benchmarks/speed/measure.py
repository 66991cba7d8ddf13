"""Contenders run in turn; what each run took becomes a row."""

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
        """More columns of its row."""
        ...


@dataclass(frozen=True)
class Absent:
    """A contender that does not take part.

    Attributes:
        name: What the tables call it.
        kind: ``"absent"`` if it is not installed, ``"failed"`` if it raised before its first run,
            ``"skipped"`` if it does not do this task.
        reason: Why, or how to change that.
    """

    name: str
    kind: str
    reason: str


@dataclass
class Run:
    """A contender that knows the lengths of its masked prompts, such as our engine.

    Attributes:
        name: What the tables call it.
        work: Scores everything once, and returns the length of each masked prompt.
        more: More columns of its row.
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
        """More columns of its row."""
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
    Operations are those of a loop without prefix sharing. For a contender whose facts count the
    ``pairs`` of query and key tokens, they are the operations of what it ran.

    Args:
        contenders: Who takes part, and who does not.
        hardware: What they run on.
        size: The size of the model.
        outputs: Tokens of the answer.
        rounds: How often each of them runs.
        warm_up: Whether to run one more round first, which is not counted; always done on a GPU.

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
            except Exception as error:  # a peer may fail in any way; its row says how
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
        "roofline": round(operations / rate, 5),
        "ratio": round(operations / rate / seconds, 4),
        **facts,
    }


def reason(error: BaseException) -> str:
    """What went wrong, on one line and without paths."""
    first = first_line(error)
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the progress bars, prints and warnings of peers off the terminal."""
    sink: Any = io.StringIO()
    with warnings.catch_warnings(), redirect_stderr(sink), redirect_stdout(sink):
        warnings.simplefilter("ignore")
        yield
