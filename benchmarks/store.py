"""Results that survive being killed: append-only lines under a header that says what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropelime.files import Journal, Row, scan

__all__ = ["Row", "Store", "read"]

_KIND, _WHAT = "ropelime-results", "results file"
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
        header = {_KIND: 1, **settings, "methods": list(methods)}
        self._journal = Journal(path, header, what=_WHAT, aside=_ASIDE)
        entries = list(self._journal.scan())
        per_example: dict[str, int] = {}
        for row, _ in entries[1:]:
            per_example[row["example"]] = per_example.get(row["example"], 0) + 1
        while len(entries) > 1 and per_example[entries[-1][0]["example"]] < len(methods):
            entries.pop()
        self.done: set[str] = {row["example"] for row, _ in entries[1:]}
        self._journal.cut(entries[-1][1])

    def add(self, example: str, rows: Sequence[Row]) -> None:
        """Write the lines of one example."""
        self._journal.append(rows)
        self.done.add(example)


def read(path: Path) -> tuple[Row, list[Row]]:
    """The header and the rows of a results file; a line that was cut off is left out."""
    header, *rows = (row for row, _ in scan(path, _KIND, _WHAT))
    return header, rows
