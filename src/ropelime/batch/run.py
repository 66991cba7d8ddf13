"""A batch from input to output, by either engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ropelime.batch.lines import TOGETHER, BatchPlan, fingerprint, plan
from ropelime.batch.store import Output
from ropelime.batch.work import Done, Settings
from ropelime.errors import InputError, ModelError
from ropelime.files import check_place
from ropelime.progress import Callback

Engine = Callable[[BatchPlan, Settings, Callable[[Done], None]], None]


@dataclass(frozen=True)
class BatchSummary:
    """Counts of a finished batch."""

    total: int  # lines of the input, without blank ones
    before: int  # lines that had a row when it began
    errors: int  # rows of the output that hold an error


def run(
    source: Path,
    target: Path,
    settings: Settings,
    engine: Engine,
    *,
    together: int = TOGETHER,
    retry_errors: bool = False,
    progress: Callback | None = None,
) -> BatchSummary:
    """Explain every line that has no row yet.

    Args:
        source: The input, a JSON object on each line. It may have grown since the last run.
        target: The output: a header, then a row for each line.
        settings: How to explain; an output with other settings is refused.
        engine: :func:`ropelime.batch.local.run` or :func:`ropelime.batch.ray.run`.
        together: The most lines that are explained together.
        retry_errors: Try lines again whose rows hold an error.
        progress: Called with (lines that have a row, lines in all).
    """
    header = {**settings.describe(), "input": fingerprint(source)}
    check_place(target)
    if target.exists() and target.samefile(source):
        raise InputError(f"{target} is the input itself. Name another file for the output.")
    with Output(target, header, retry_errors=retry_errors) as output:
        todo = plan(source, output.done, together=together)
        output.done.clear()
        done = todo.done

        def write(rows: Done) -> None:
            nonlocal done
            output.add(rows.lines, errors=rows.errors)
            done += rows.rows
            if progress:
                progress(done, todo.total)
            if rows.gone:
                raise ModelError(rows.gone)

        if progress:
            progress(done, todo.total)
        if todo.groups:
            engine(todo, settings, write)
        return BatchSummary(todo.total, todo.done, output.errors)
