"""Rows of some methods in a results file of labelled examples, made anew without running the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.data import Example
from benchmarks.runner import known
from benchmarks.store import Row, read, rewrite
from ropelime.errors import InputError

BENCHES = ("hotpotqa", "budget", "mmlu")  # the experiments whose files can be changed so


def replace(
    path: Path,
    source: Path | None,
    methods: Sequence[str],
    make: Callable[[int, Example], Sequence[Row]],
    *,
    order: Sequence[str] = (),
    changed: Row | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Replace the rows of some methods in a finished results file, or add them.

    Args:
        path: The results file, compressed or not, of one of ``BENCHES``.
        source: The data that it was made from; the copy on the hub if None.
        methods: The methods whose rows are made.
        make: Gives these rows for an example and its number, without what every row begins with.
        order: All methods in the order of a new run; new ones come last if it is empty.
        changed: What to change in the header.
        progress: Called with the examples done and in all.

    Returns:
        How many rows were made.
    """
    header, rows = read(path)
    check(path, header)
    examples = _examples(header, source)
    if header.get("data", data.digest(examples)) != data.digest(examples):  # old files have none
        raise _other_data(path, source)
    given = {example.id: (number, example) for number, example in enumerate(examples)}
    kept = [name for name in header["methods"] if name not in methods]
    known_order = [*order, *kept, *methods]
    names = sorted({*kept, *methods}, key=known_order.index)
    lines: list[Row] = []
    groups = [(name, list(group)) for name, group in groupby(rows, key=lambda row: row["example"])]
    for id, old in groups:
        if missing := set(kept) - {row["method"] for row in old}:
            raise InputError(
                f"{path} has no row of {sorted(missing)[0]} for {id}: finish the run first, by the "
                "command that began it."
            )
    for done, (id, old) in enumerate(groups):
        if progress:
            progress(done, len(groups))
        number, example = given.get(id, (0, None))
        if example is None or any(old[0][k] != v for k, v in known(example).items()):
            raise _other_data(path, source)
        by_name: dict[str, Any] = {row["method"]: row for row in old}
        by_name |= {row["method"]: {**known(example), **row} for row in make(number, example)}
        lines += [by_name[name] for name in names]
    if progress:
        progress(len(groups), len(groups))
    rewrite(path, [{**header, **(changed or {}), "methods": names}, *lines])
    return len(groups) * len(methods)


def check(path: Path, header: Row) -> None:
    """Refuse files whose rows cannot be made one method at a time."""
    if header.get("bench") not in BENCHES:
        raise InputError(
            f"{path} holds results of {header.get('bench')!r}; rows are made anew in those of "
            f"{', '.join(BENCHES)}."
        )


def _examples(header: Row, source: Path | None) -> Sequence[Example]:
    if header["bench"] == "mmlu":
        return data.mmlu(source, limit=header["limit"])
    return data.hotpotqa(source, context=header["context"], limit=header["limit"])


def _other_data(path: Path, source: Path | None) -> InputError:
    return InputError(
        f"{path} was made from other data than {source or 'the copy on the hub'}. Name its file with "
        "--data FILE."
    )
