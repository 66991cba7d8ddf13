"""The output: exactly one row for each line, however often the batch is killed and restarted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ropelime.batch.lines import digest
from ropelime.errors import InputError
from ropelime.files import Journal, Row, check_place, dump, replacing, scan

_KIND, _WHAT = "ropelime-batch", "batch output"


class Output:
    """A file of rows, open for one run at a time."""

    def __init__(self, path: Path, settings: Mapping[str, Any], *, retry_errors: bool = False) -> None:
        """Open or create it, and cut off the partial row of a killed run.

        A file with other settings is refused. To retry lines, rows that hold an error are removed.
        """
        check_place(path)
        path = path.resolve() if path.is_symlink() else path  # so that a link stays one
        self._lock = _locked(path)
        self.done: set[int] = set()  # digests of the ids that have a row
        self.errors = 0  # rows that hold an error
        try:
            self._journal = Journal(path, {_KIND: 1, **settings}, what=_WHAT)
            if retry_errors:
                self._remove_errors(path)
            scanned = self._journal.scan()
            _, size = next(scanned)  # the header
            for number, (row, size) in enumerate(scanned, 2):  # noqa: B007
                if not {"id", "error"} <= row.keys():
                    raise InputError(
                        f"Line {number} of {path} is not a row of a batch. Repair or remove it."
                    )
                self.done.add(digest(row["id"]))
                self.errors += row["error"] is not None
            self._journal.cut(size)
        except BaseException:
            self.close()
            raise

    def add(self, lines: bytes, *, errors: int) -> None:
        """Write encoded rows, all or none; ``errors`` of them hold an error."""
        self._journal.append(lines)
        self.errors += errors

    def close(self) -> None:
        """Release the file to other runs."""
        with suppress(OSError):  # Windows removes it with the release
            os.unlink(self._lock.lock_file)
        self._lock.release()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _remove_errors(self, path: Path) -> None:
        """Replace the file by a copy without the rows that hold an error."""
        with replacing(path) as file:
            for row, _ in self._journal.scan():
                if row.get("error") is None:
                    file.write(dump(row))
            file.flush()
            os.fsync(file.fileno())
            shutil.copymode(path, file.name)


def rows(path: str | os.PathLike[str]) -> Iterator[Row]:
    """The rows of an output, without its header."""
    return (row for row, _ in islice(scan(Path(path), _KIND, _WHAT), 1, None))


def _locked(path: Path) -> FileLock:
    """A lock on writing a file, which the system releases if this process is killed."""
    # It is a file of its own: the output may be replaced, and a lock on it would be lost then.
    lock = FileLock(path.with_name(f".{path.name}.lock"), thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"Another run is writing {path}. Wait for it, or name another file.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    return lock
