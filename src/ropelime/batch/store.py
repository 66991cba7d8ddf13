"""The output: one row for each line, which no kill loses and no restart doubles."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ropelime.batch.lines import digest
from ropelime.errors import InputError
from ropelime.files import Journal, Row, dump, replacing, scan

_KIND, _WHAT = "ropelime-batch", "output of a batch"


class Output:
    """A file of rows, open for one run at a time."""

    def __init__(self, path: Path, settings: Mapping[str, Any], *, retry_errors: bool = False) -> None:
        """Open or create it, and cut off what a killed run has left half written.

        Args:
            path: The file.
            settings: What the rows depend on; a file with other settings is refused.
            retry_errors: Take out the rows that hold an error, so that their lines are tried again.
        """
        path = path.resolve() if path.is_symlink() else path  # a link stays one
        self._lock = _locked(path)
        self.done: set[int] = set()  # digests of the ids that have a row
        self.errors = 0  # rows that hold an error
        try:
            self._journal = Journal(path, {_KIND: 1, **settings}, what=_WHAT)
            if retry_errors:
                self._leave_out_errors(path)
            size = 0
            for number, (row, size) in enumerate(self._journal.scan()):  # noqa: B007
                if number:
                    if not {"id", "error"} <= row.keys():
                        raise InputError(f"Line {number + 1} of {path} is no row of a batch. Mend it.")
                    self.done.add(digest(row["id"]))
                    self.errors += row["error"] is not None
            self._journal.cut(size)
        except BaseException:
            self.close()
            raise

    def add(self, lines: bytes, *, errors: int) -> None:
        """Write rows, as lines and all or none, of which so many hold an error."""
        self._journal.append_lines(lines)
        self.errors += errors

    def close(self) -> None:
        """Let others write it."""
        os.close(self._lock)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave_out_errors(self, path: Path) -> None:
        """Put a copy without the rows that hold an error in its place, whole or not at all."""
        with replacing(path) as file:
            for row, _ in self._journal.scan():
                if row.get("error") is None:
                    file.write(dump(row))
            file.flush()
            os.fsync(file.fileno())
            shutil.copymode(path, file.name)
            lock = _locked(Path(file.name))
        os.close(self._lock)
        self._lock = lock


def rows(path: str | os.PathLike[str]) -> Iterator[Row]:
    """The rows of an output, one by one, without its header."""
    found = (row for row, _ in scan(Path(path), _KIND, _WHAT))
    next(found)
    yield from found


def _locked(path: Path) -> int:
    """A file that nobody else opens like this while it is open, also if this process is killed."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        import fcntl
    except ImportError:  # Windows has no such locks: two runs at once are the user's to avoid
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == os.stat(path).st_ino:  # or another run has replaced it
            return handle
    except OSError:
        pass
    os.close(handle)
    raise InputError(f"Another run is writing {path}. Wait for it, or name another file.")
