"""Results that survive being killed: append-only lines under a header that says what they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropelime.errors import InputError

Row = dict[str, Any]

_START = b'{"ropelime-results"'
_ASIDE = {"command", "versions", "date"}  # in the header for the report; the rows do not depend on them


class Store:
    """A results file: one header line, then one line for each example and method.

    All lines of one example are written at once. A file that was cut in the middle of a line, or of an
    example, is cut back to its last whole example when it is opened again.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], methods: Sequence[str]) -> None:
        """Open or create a results file.

        Args:
            path: The file.
            settings: What the run depends on; a file with other settings is refused, but for
                ``command``, ``versions`` and ``date``.
            methods: The methods that every example has a line for.
        """
        self.path = path
        self.done: set[str] = set()
        header = {"ropelime-results": 1, **settings, "methods": list(methods)}
        if path.is_dir():
            raise InputError(f"{path} is a folder. Name a file to write results into.")
        if not path.parent.is_dir():
            raise InputError(f"There is no folder {path.parent} to write results into.")
        came = path.read_bytes() if path.exists() else b""
        if b"\n" in came:
            self._resume(header)
            return
        if came:  # killed while its very first line was written
            if came[: len(_START)] != _START[: len(came)]:
                raise InputError(f"{path} is no results file of ropelime. Name another file.")
            path.unlink()
        self._append([header])

    def add(self, example: str, rows: Sequence[Row]) -> None:
        """Write the lines of one example."""
        self._append(rows)
        self.done.add(example)

    def _append(self, rows: Sequence[Row]) -> None:
        text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        with self.path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def _resume(self, header: Row) -> None:
        came, rows, ends = _lines(self.path)
        asked = json.loads(json.dumps(header))
        if keys := sorted(k for k in {*came, *asked} - _ASIDE if came.get(k) != asked.get(k)):
            raise InputError(
                f"{self.path} was written with other settings ({', '.join(keys)}). Results are not "
                "mixed: name another file, or delete this one."
            )
        per_example: dict[str, int] = {}
        for row in rows:
            per_example[row["example"]] = per_example.get(row["example"], 0) + 1
        whole = len(rows)
        while whole and per_example[rows[whole - 1]["example"]] < len(header["methods"]):
            whole -= 1
        self.done = {row["example"] for row in rows[:whole]}
        with self.path.open("r+b") as file:
            file.truncate(ends[whole])


def read(path: Path) -> tuple[Row, list[Row]]:
    """The header and the rows of a results file; a line that was cut off is left out."""
    header, rows, _ = _lines(path)
    return header, rows


def _lines(path: Path) -> tuple[Row, list[Row], list[int]]:
    """Header, rows, and where each ends: ``ends[i]`` is the size of the file with i rows."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    entries: list[Row] = []
    ends: list[int] = []
    at = 0
    while (stop := data.find(b"\n", at)) >= 0:
        try:
            entries.append(json.loads(data[at:stop]))
        except ValueError:
            break
        at = stop + 1
        ends.append(at)
    first = entries[0] if entries else None
    if not isinstance(first, dict) or first.get("ropelime-results") != 1:
        raise InputError(f"{path} is no results file of ropelime. Name another file.")
    return first, entries[1:], ends
