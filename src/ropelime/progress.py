"""Progress reports for anything that takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from ropelime.errors import InputError
from ropelime.text.display import plain

Callback = Callable[[int, int], None]
Option = Literal["auto"] | bool | Callback

_PATIENCE = 1.0  # seconds before a bar appears
_BETWEEN_LINES = 30.0  # seconds


def note(line: str) -> None:
    """Print a line to standard error, with the control characters of untrusted text in it escaped."""
    print(plain(line), file=sys.stderr)


def lines(what: str) -> Callback:
    """A callback that prints progress and the remaining time now and then, for logs."""
    start = shown = 0.0
    first: int | None = None

    def report(done: int, total: int) -> None:
        nonlocal start, shown, first
        now = time.monotonic()
        if first is None:  # work before the first call says nothing about the pace
            first, start, shown = done, now, now
        if now - shown < _BETWEEN_LINES or done <= first:
            return
        shown = now
        left = (now - start) / (done - first) * (total - done)
        note(f"{what}: {done} of {total}, about {left / 60:.0f} min left")

    return report


@contextmanager
def reporting(option: Option, what: str) -> Iterator[Callback | None]:
    """A callback that shows progress, or None where it is not wanted.

    ``"auto"`` shows a bar on a terminal, True anywhere, False never; a function is used as it is.
    """
    if callable(option):
        yield option
        return
    if option not in ("auto", True, False):
        raise InputError(f"progress must be 'auto', True, False or a function, not {option!r}.")
    if option is False or (option == "auto" and not sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    start, shown = time.monotonic(), False

    def report(done: int, total: int) -> None:
        nonlocal shown
        if not shown and time.monotonic() - start > _PATIENCE and done < total:
            bar.start()
            shown = True
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if shown:
            bar.stop()
