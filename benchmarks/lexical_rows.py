"""Rows of rankings by words alone, in new runs and in results files that were made without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.data import Example
from benchmarks.evaluation import agreement
from benchmarks.lexical import RANKINGS
from benchmarks.names import LEXICAL
from benchmarks.runner import UNLABELLED, Extra, known
from benchmarks.store import Row, read, rewrite
from ropelime.errors import InputError

BENCHES = ("hotpotqa", "budget", "mmlu")  # the experiments that have these rows


def extras() -> dict[str, Extra]:
    """The rankings as methods of a run."""
    return {name: partial(row, name) for name in LEXICAL}


def row(name: str, example: Example, rng: np.random.Generator | None = None) -> Row:
    """The agreement with labels of one ranking; it takes no surrogate, so it has no other figures."""
    if not example.gold.any():
        return dict(UNLABELLED)
    weights = RANKINGS[name](example.question, example.answer, example.parts)
    found = asdict(agreement(weights, example.gold))
    return {key: None if value is None else round(value, 6) for key, value in found.items()}


def add(path: Path, source: Path | None) -> int:
    """Add the rows to a results file, compressed or not; gives how many were added.

    Args:
        path: The results file, of one of ``BENCHES``; rows that it has already are left as they are.
        source: The data that it was made from; the copy on the hub if None.
    """
    header, rows = read(path)
    if header.get("bench") not in BENCHES:
        raise InputError(
            f"{path} holds results of {header.get('bench')!r}; rankings by words are added to those "
            f"of {', '.join(BENCHES)}."
        )
    new = [name for name in LEXICAL if name not in header["methods"]]
    if not new:
        return 0
    examples = _examples(header, source)
    given = {example.id: example for example in examples}
    found: list[Row] = []
    for name, group in groupby(rows, key=lambda row: row["example"]):
        of_example = list(group)
        example = given.get(name)
        if example is None or any(of_example[0][k] != v for k, v in known(example).items()):
            raise _other_data(path, source)
        found += [*of_example, *({**known(example), "method": n, **row(n, example)} for n in new)]
    if header.get("data", data.digest(examples)) != data.digest(examples):  # old files have none
        raise _other_data(path, source)
    header = {**header, "methods": [*header["methods"], *new]}
    rewrite(path, [header, *found])
    return len(found) - len(rows)


def _examples(header: Row, source: Path | None) -> Sequence[Example]:
    if header["bench"] == "mmlu":
        return data.mmlu(source, limit=header["limit"])
    return data.hotpotqa(source, context=header["context"], limit=header["limit"])


def _other_data(path: Path, source: Path | None) -> InputError:
    return InputError(
        f"{path} was made from other data than {source or 'the copy on the hub'}. Name its file with "
        "--data FILE."
    )
