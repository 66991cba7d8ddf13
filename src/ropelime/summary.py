"""Sum up many explanations, from files or from this process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropelime.errors import FORGIVEN, InputError, worded
from ropelime.explain import Explanation, load
from ropelime.files import Savable
from ropelime.results import serialization
from ropelime.results.digest import digest
from ropelime.results.explanation import ExplanationData
from ropelime.results.summary import SummaryData, Summing
from ropelime.views import pages

_HEADER = "ropelime-batch"
Given = str | os.PathLike[str] | ExplanationData


class Summary(SummaryData, Savable):
    """Many explanations summed up; see :class:`SummaryData` for its fields."""

    def __repr__(self) -> str:
        return (
            f"<Summary of {self.answers} answers; {len(self.never)} of {len(self.parts)} parts never "
            f"mattered, {self.ungrounded} of {self.sentences} sentences have no source>"
        )

    def _page(self) -> str:
        return pages.summary_page(self)


def summary(given: Given | Iterable[Given]) -> Summary:
    """Sum up what many answers rest on.

    Files are read line by line. A line that is damaged is named in ``problems`` and skipped.

    Args:
        given: Outputs of ``ropelime batch``, with or without ``--full``, files of
            :meth:`Explanation.save`, and explanations; one, or any number of them.
    """
    sums = Summing()
    single = isinstance(given, (str, os.PathLike, ExplanationData))
    for number, each in enumerate([given] if single else given, 1):  # type: ignore[arg-type]
        if isinstance(each, ExplanationData):
            _add(sums, each, f"explanation {number}")
        elif isinstance(each, (str, os.PathLike)):
            _add_file(sums, Path(each))
        else:
            raise InputError(f"summary() takes paths and explanations, not {type(each).__name__}.")
    if not sums.answers and not sums.errors:
        found = f" {sums.problems[0]}" if sums.problems else ""
        raise InputError(f"There are no explanations to sum up.{found}")
    data = sums.done()
    return Summary(**{field.name: getattr(data, field.name) for field in fields(data)})


def _add(sums: Summing, e: ExplanationData, name: Any) -> None:
    cost = {"masks": e.cost.masks, "tokens": e.cost.tokens}
    row = {"id": name, "output": e.output, "cost": cost, "answer": e.config.get("answer"), **digest(e)}
    sums.add(row, seconds=e.cost.seconds)


def _add_file(sums: Summing, path: Path) -> None:
    """Add a batch's rows, or the one explanation that a file holds."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1 and line.strip() == b"{":  # an explanation over many lines
                    _add(sums, load(path), path.name)
                    return
                if line.strip():
                    _add_line(sums, line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def _add_line(sums: Summing, line: bytes, where: str) -> None:
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise InputError("a JSON object is needed")
        if _HEADER in row:
            return
        if row.get("error") is not None:
            sums.errors += 1
        elif "format" in row:
            _add(
                sums,
                Explanation.of(serialization.from_dict(row, source="the row")),
                row.get("id", where),
            )
        elif "parts" not in row:
            raise InputError("this is not a row of `ropelime batch`, or one of an older release")
        else:
            sums.add({"id": where, **row})
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        sums.skip(f"{where}: not complete JSON ({error})")
    except (*FORGIVEN, AttributeError) as error:
        sums.skip(f"{where}: {worded(error)}")
