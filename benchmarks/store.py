"""Results files: appended to crash-safely while a run lasts, compressed once it has ended."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ropelime.errors import InputError
from ropelime.files import Journal, Row, dump, replacing, scan

__all__ = ["Named", "Row", "Store", "compress", "decompress", "read", "rewrite", "rows"]

_KIND, _WHAT = "ropelime-results", "results file"
_ASIDE = {"command", "versions", "date"}  # in the header for the report; the rows do not depend on them
_XZ = ".xz"
_PRESET = 9 | lzma.PRESET_EXTREME


class Named(Protocol):
    """What rows are about."""

    @property
    def id(self) -> str:
        """Its name."""


_Item = TypeVar("_Item", bound=Named)


class Store:
    """A results file: one header line, then one line for each example and method.

    All lines of one example are written at once. A file that was cut in the middle of a line, or of an
    example, is cut back to its last whole example when it is opened again.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], methods: Sequence[str]) -> None:
        """Open or create a results file.

        Args:
            path: The file.
            settings: What the rows depend on; a file with other settings is refused, except for
                ``command``, ``versions`` and ``date``.
            methods: The methods that every example has a line for.
        """
        _check_plain(path)
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
        self._journal.append(b"".join(map(dump, rows)))
        self.done.add(example)

    def left(
        self, examples: Sequence[_Item], progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[int, _Item]]:
        """The number and the example of all that the file does not hold yet.

        Args:
            examples: All examples.
            progress: Called with the examples done and in all.
        """
        done = sum(example.id in self.done for example in examples)
        for number, example in enumerate(examples):
            if example.id in self.done:
                continue
            if progress:
                progress(done, len(examples))
            yield number, example
            done += 1
        if progress:
            progress(len(examples), len(examples))


def read(path: Path) -> tuple[Row, list[Row]]:
    """The header and the rows of a results file, compressed or not.

    The last line of an uncompressed file is left out if it was cut off.
    """
    if path.suffix != _XZ:
        header, *found = (row for row, _ in scan(path, _KIND, _WHAT))
        return header, found
    header, *found = rows(path) or [{}]
    if header.get(_KIND) != 1:
        raise InputError(f"{path} is not a {_WHAT} of ropelime. Name another file.")
    return header, found


def rows(path: Path) -> list[Row]:
    """All lines of a finished file, compressed or not, whatever its header is."""
    try:
        data = lzma.decompress(path.read_bytes()) if path.suffix == _XZ else path.read_bytes()
        found = [json.loads(line) for line in data.splitlines()]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (lzma.LZMAError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Make the file again.") from None
    if not all(isinstance(row, dict) for row in found):
        raise InputError(f"{path} is not a {_WHAT} of ropelime. Name another file.")
    return found


def rewrite(path: Path, lines: Sequence[Row]) -> None:
    """Replace all lines of a finished file, compressed or not; the header is the first of them."""
    data, mode = b"".join(map(dump, lines)), path.stat().st_mode if path.exists() else None
    with replacing(path) as file:
        file.write(_packed(data) if path.suffix == _XZ else data)
    if mode is not None:
        path.chmod(mode)


def renewed_by(header: Mapping[str, Any]) -> list[str]:
    """The commands that made rows of a file anew; older files have one, as a text."""
    found = header.get("renewed_by") or []
    return [found] if isinstance(found, str) else list(found)


def renewals(header: Mapping[str, Any], command: str, facts: Mapping[str, Any]) -> Row:
    """What changes in the header of a file of which rows are made anew.

    Args:
        header: The header.
        command: The command that makes them.
        facts: What they are made with.
    """
    commands = list(dict.fromkeys([*renewed_by(header), command]))
    return {"renewed_by": commands, "renewed_with": {**header.get("renewed_with", {}), **facts}}


def compress(path: Path) -> Path:
    """Replace a finished results file by its compressed form, ``FILE.xz``."""
    if path.suffix == _XZ:
        raise InputError(f"{path} is compressed already.")
    rows(path)  # or a damaged file would be hidden
    return _replace(path, Path(f"{path}{_XZ}"), _packed(path.read_bytes()))


def decompress(path: Path) -> Path:
    """Undo :func:`compress`, so that a run can be resumed."""
    if path.suffix != _XZ:
        raise InputError(f"{path} is not compressed.")
    rows(path)
    return _replace(path, path.with_suffix(""), lzma.decompress(path.read_bytes()))


def _packed(data: bytes) -> bytes:
    return lzma.compress(data, preset=_PRESET)


def _replace(old: Path, new: Path, data: bytes) -> Path:
    if new.exists():
        raise InputError(f"{new} exists already. Remove {old} or {new} first.")
    with replacing(new) as file:
        file.write(data)
    shutil.copymode(old, new)
    old.unlink()
    return new


def _check_plain(path: Path) -> None:
    """Refuse what is compressed: a run appends lines."""
    packed = path if path.suffix == _XZ else Path(f"{path}{_XZ}")
    if path == packed or (packed.exists() and not path.exists()):
        raise InputError(
            f"A run cannot append to {packed}, which is compressed. Decompress it first (`python -m "
            f"benchmarks compress --undo {packed}`), or name another file with --results."
        )
