"""JSON lines of users, results as files, and files that survive a killed process."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ropelime.errors import InputError
from ropelime.registry import unknown

Row = dict[str, Any]

_BINARY = getattr(os, "O_BINARY", 0)  # without it Windows changes line ends
_ROOM = bytes(1 << 16)  # what must fit onto a disk before work begins whose result is written there


def parse(line: str | bytes, known: Collection[str]) -> Row:
    """Parse a line that holds a JSON object with known keys."""
    try:
        data = json.loads(line)
    except UnicodeDecodeError as error:
        raise InputError(f"This is not UTF-8 text ({error.reason} at byte {error.start}).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"This is not JSON ({error}).") from None
    if not isinstance(data, dict):
        raise InputError(f"A JSON object is needed, not {type(data).__name__}.")
    if strange := [key for key in data if key not in known]:
        raise unknown("key", strange[0], known)
    return data


def dump(row: Mapping[str, Any]) -> bytes:
    """Encode a row as a line."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape and UTF-8 cannot encode
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def significant(value: float) -> float:
    """A number to six significant digits, for files that people read."""
    return float(f"{value:.6g}")


class Savable:
    """A result that can be written to a file, as JSON and as a page."""

    def to_dict(self) -> Row:
        """The result as plain data."""
        raise NotImplementedError

    def _page(self) -> str:
        raise NotImplementedError

    def to_json(self) -> str:
        """The result as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; an existing file is replaced in one step or not at all."""
        write_text(Path(path), self.to_json())

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The result as one self-contained page.

        Args:
            path: Where to write it too; an existing file is replaced in one step or not at all.
        """
        page = self._page()
        if path is not None:
            write_text(Path(path), page)
        return page


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    if is_device(path):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}.") from None
        return
    path = path.resolve()  # follow links
    check_place(path)
    with replacing(path) as file:
        file.write(text.encode())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)  # the permissions of any new file


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that replaces another atomically when the context ends without an error.

    Until then it is a private file in the same folder. An OSError becomes an InputError.
    """
    name, hidden = None, f".{path.name[:40]}."  # file systems allow 255 bytes of a name
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=hidden, delete=False) as file:
            name = file.name
            yield file
        os.replace(name, path)
    except BaseException as error:
        if name is not None:
            os.unlink(name)
        if isinstance(error, OSError):
            raise InputError(f"{path} cannot be written: {error.strerror}.") from None
        raise


def check_place(path: Path) -> None:
    """Refuse a path where no file can be written that can be read back."""
    mode = _mode(path)
    if mode is None:
        if not path.parent.is_dir():
            raise InputError(f"There is no folder {path.parent} to write {path.name} into.")
    elif stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder. Name a file to write into.")
    elif not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a regular file, so it cannot be resumed. Name another.")


def check_writable(path: Path) -> None:
    """Refuse a path that nothing can be written to, before the work whose result is written there.

    Pipes and devices may be written to. A folder must have room for a small file.
    """
    try:
        if is_device(path):
            if not os.access(path, os.W_OK):
                raise InputError(f"{path} cannot be written: Permission denied.")
            return
        path = path.resolve()  # follow links
        check_place(path)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(_ROOM)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None


def is_device(path: Path) -> bool:
    """Whether a path is a pipe or a device: written to, and never replaced by a file."""
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    """What lies at a path, links followed; None if there is nothing, an error if nothing can be."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    except ValueError as error:  # a NUL character
        raise InputError(f"{str(path)!r} cannot be written: {error}.") from None


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


class Journal:
    """An append-only file: a header line with the settings, then rows.

    Rows that are appended together are written by one call and are on disk when it returns. A partial
    line at the end, left by a killed process or a full disk, is cut off when the file is opened again.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], *, what: str, aside: Collection[str] = ()
    ) -> None:
        """Open or create it; ``what`` is its name in errors, such as "results file".

        The rows depend on the header, whose first key is the kind of file. A file with another header
        is refused, unless it differs in the keys ``aside`` only.
        """
        check_place(path)
        self.path, self.what = path, what
        self._kind = next(iter(header))
        start = b'{"%s"' % self._kind.encode()
        try:
            with path.open("rb") as file:
                first = file.readline()
        except FileNotFoundError:
            first = b""
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None
        if not first.endswith(b"\n"):  # new, or killed within its first line
            if first[: len(start)] != start[: len(first)]:
                raise _foreign(path, what)
            self._write(dump(header), os.O_CREAT | os.O_TRUNC)
            return
        if not os.access(path, os.W_OK):
            raise InputError(f"{path} cannot be written: Permission denied.")
        existing, expected = _header(path, first, self._kind, what), json.loads(dump(header))
        keys = {*existing, *expected} - {*aside}
        if other := sorted(key for key in keys if existing.get(key) != expected.get(key)):
            raise InputError(
                f"{path} was written with other settings ({', '.join(other)}). Results are not mixed: "
                "name another file, or delete this one."
            )

    def scan(self) -> Iterator[tuple[Row, int]]:
        """The header and every complete row, each with the size of the file up to it."""
        return scan(self.path, self._kind, self.what)

    def cut(self, size: int) -> None:
        """Truncate the file."""
        if size < self.path.stat().st_size:
            os.truncate(self.path, size)

    def append(self, lines: bytes) -> None:
        """Write encoded rows, all of them or none."""
        if lines:
            self._write(lines, os.O_APPEND)

    def _write(self, data: bytes, flags: int) -> None:
        size = None
        try:
            handle = os.open(self.path, os.O_WRONLY | _BINARY | flags, 0o666)
            with open(handle, "wb", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(handle)
        except OSError as error:
            if size is not None:
                with suppress(OSError):  # otherwise the next start truncates it
                    os.truncate(self.path, size)
            raise InputError(
                f"{self.path} cannot be written: {error.strerror}. Earlier rows are complete; repair "
                "the cause, and the same command continues."
            ) from None


def scan(path: Path, kind: str, what: str) -> Iterator[tuple[Row, int]]:
    """The header of a journal and its rows, each with the size of the file up to it.

    A partial line at the end is ignored. A damaged line with rows after it is refused: only the user
    can tell what happened to it.
    """
    size = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                row = _row(line) if size else _header(path, line, kind, what)
                if row is None:
                    if any(_row(later) is not None for later in file):
                        raise InputError(
                            f"Line {number} of {path} is damaged, and rows follow it. Repair the line, "
                            "or remove it; its work is then done again."
                        )
                    return
                size += len(line)
                yield row, size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    if not size:
        raise _foreign(path, what)


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _header(path: Path, line: bytes, kind: str, what: str) -> Row:
    row = _row(line)
    if row is None or row.get(kind) != 1:
        raise _foreign(path, what)
    return row


def _foreign(path: Path, what: str) -> InputError:
    return InputError(f"{path} is not a ropelime {what}. Name another file.")
