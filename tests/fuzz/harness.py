"""What all fuzzers share: cases by number, a limit on the time of each, and how to repeat one."""

from __future__ import annotations

import re
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from random import Random

SLOWEST = 30  # seconds of computing of one case: more is a hang
_STUCK = 20  # times as long, by the clock, may a case take on a busy machine

Step = Callable[[Random], str]  # runs one case and says what came of it, in a word


@dataclass(frozen=True)
class Fuzzer:
    """A source of cases; ``start`` prepares what they share and ends it after the last one."""

    name: str
    start: Callable[[], AbstractContextManager[Step]]


@dataclass(frozen=True)
class Finding:
    """A case that broke a promise."""

    fuzzer: str
    seed: int
    case: int
    trace: str

    @property
    def kind(self) -> str:
        """What one finding has in common with others: the error and where it was raised."""
        lines = [line.strip() for line in self.trace.strip().splitlines()]
        places = [line for line in lines if line.startswith("File") and "ropelime" in line]
        error = re.sub(r"[0-9]+|.ud[0-9a-f]{3}", "", lines[-1][:100])
        return f"{error} at {places[-1] if places else 'the fuzzer'}"

    def __str__(self) -> str:
        repeat = f"python -m fuzz {self.fuzzer} --seed {self.seed} --case {self.case}"
        return f"{repeat}\n{self.trace}"


class Hang(BaseException):
    """A case that takes too long; no error handler of the program catches it."""


def run(
    fuzzer: Fuzzer,
    *,
    seed: int = 0,
    cases: Iterator[int],
    seconds: float = float("inf"),
    most: int = 20,
    tell: Callable[[Finding], None] = lambda finding: None,
) -> tuple[list[Finding], dict[str, int]]:
    """Run cases until the time is over; returns one finding of each kind, and counts by outcome.

    ``tell`` hears of the first finding of a kind at once. Ctrl-C ends the run with what it has.
    """
    found: dict[str, Finding] = {}
    counts: dict[str, int] = {}
    end = time.monotonic() + seconds
    with fuzzer.start() as step:
        for case in cases:
            if time.monotonic() > end or len(found) >= most:
                break
            try:
                with _limited(SLOWEST), warnings.catch_warnings():
                    warnings.simplefilter("error", RuntimeWarning)  # numpy's, of overflows
                    outcome = step(Random(f"{fuzzer.name} {seed} {case}"))
            except KeyboardInterrupt:
                counts["interrupted"] = 1
                break
            except BaseException:
                finding = Finding(fuzzer.name, seed, case, traceback.format_exc())
                if finding.kind not in found:
                    found[finding.kind] = finding
                    tell(finding)
                outcome = "FOUND"
            counts[outcome] = counts.get(outcome, 0) + 1
    return list(found.values()), counts


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise :class:`Hang` when the time is over; only the main thread of a Unix system can.

    That is the time that this process computes: a busy machine is not a hang.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def over(*_: object) -> None:
        raise Hang(f"more than {seconds} s")

    before = {kind: signal.signal(kind, over) for kind in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(_STUCK * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for kind, handler in before.items():
            signal.signal(kind, handler)
