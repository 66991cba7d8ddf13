"""The input: a JSON object on each line, read in groups so that the file may be of any size."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from ropelime.errors import InputError
from ropelime.files import parse
from ropelime.options import Options

LONGEST = 8 << 20  # bytes of a line: longer ones fit no surrogate and are never held in memory
TOGETHER = 64  # lines of a group,
_BYTES = 1 << 16  # or fewer, if they have more bytes than this
FORMS = ("prompt", "context", "question", "messages")
OPTIONS = tuple(field.name for field in fields(Options))
_KEYS = ("id", *FORMS, "output", *OPTIONS)
_NUMBERED = re.compile(r"line [1-9]\d*")
_SKIP, _TODO, _DUPLICATE, _TOO_LONG = range(4)  # states of a line


@dataclass(frozen=True)
class Line:
    """One line of the input."""

    id: str | int  # its own, or "line 7"
    data: Mapping[str, Any]
    error: str = ""  # why it is refused; then it has no data


@dataclass(frozen=True)
class LineGroup:
    """Consecutive lines that are explained together."""

    start: int  # offset of the first line in the file, in bytes
    stop: int  # offset of the end of the last one
    first: int  # number of the first one, counted from 1
    states: bytes  # one for each line: whether it is skipped, explained or refused

    def read(self, path: Path) -> list[Line]:
        """The lines that have no row yet."""
        lines = []
        with path.open("rb") as file:
            file.seek(self.start)
            for number, state in enumerate(self.states, self.first):
                if state == _TOO_LONG:
                    size = self.stop - self.start
                    why = f"The line has {size:,} bytes; at most {LONGEST - 1:,} are accepted."
                    lines.append(Line(f"line {number}", {}, why))
                    break
                raw = file.readline()
                if state == _TODO:
                    lines.append(_line(number, raw))
                elif state == _DUPLICATE:
                    why = f"An earlier line has the id {_line(number, raw).id!r} too."
                    lines.append(Line(f"line {number}", {}, why))
        return lines


@dataclass(frozen=True)
class BatchPlan:
    """The work of a batch."""

    path: Path
    groups: tuple[LineGroup, ...]  # those with at least one line that has no row
    total: int  # lines of the input, without blank ones
    done: int  # lines that have a row


def digest(name: str | int) -> int:
    """A hash of an id in eight bytes, so that all ids of a large file fit into memory."""
    text = json.dumps(name).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def fingerprint(path: Path) -> str:
    """A hash of the first line, which identifies an input that may grow."""
    with _opened(path) as file:
        for _, raw in _raw_lines(file):
            if raw is None or raw.strip():
                first = (raw or b"").rstrip(b"\r\n")  # a last line may have no end yet
                return hashlib.blake2b(first, digest_size=8).hexdigest()
    raise InputError(f"{path} has no lines: there is nothing to explain.")


def plan(path: Path, done: set[int], *, together: int = TOGETHER) -> BatchPlan:
    """Scan the input for lines whose ids have no row: their digests are not in ``done``."""
    groups: list[LineGroup] = []
    seen: set[int] = set()
    states = bytearray()
    start = stop = skipped = total = 0
    first = 1

    def close(following: int) -> None:
        nonlocal start, first
        if any(states):
            groups.append(LineGroup(start, stop, first, bytes(states)))
        states.clear()
        start, first = stop, following

    with _opened(path) as file:
        for number, (end, raw) in enumerate(_raw_lines(file), 1):
            if raw is None:
                close(number)
            stop = end
            blank = raw is not None and not raw.strip()
            state = _SKIP if blank else _state(number, raw, seen, done)
            states.append(state)
            total += not blank
            skipped += state == _SKIP and not blank
            if raw is None or len(states) >= together or end - start >= _BYTES:
                close(number + 1)
        close(0)
    return BatchPlan(path, tuple(groups), total, skipped)


def _state(number: int, raw: bytes | None, seen: set[int], done: set[int]) -> int:
    """The state of a line; adds its id to ``seen``."""
    state, name = _TOO_LONG, f"line {number}"
    if raw is not None:
        own = digest(_line(number, raw).id)
        if own not in seen:
            seen.add(own)
            return _SKIP if own in done else _TODO
        state = _DUPLICATE
    seen.add(digest(name))
    return _SKIP if digest(name) in done else state


def _line(number: int, raw: bytes) -> Line:
    """A parsed line, named by its own id or by its number."""
    try:
        data = parse(raw.rstrip(b"\r\n"), _KEYS)
        return Line(_name(data.pop("id", None), number), data)
    except InputError as error:
        name = _name(None, number)
        with suppress(ValueError, RecursionError, TypeError, LookupError):  # its id may be valid
            name = _name(json.loads(raw)["id"], number)
        return Line(name, {}, str(error))


def _name(given: Any, number: int) -> str | int:
    """The id of a line, or its number in words if it has none."""
    if given is None:
        return f"line {number}"
    if isinstance(given, bool) or not isinstance(given, (str, int)) or given == "":
        raise InputError(f"id must be a text or a whole number, not {given!r}.")
    if isinstance(given, str) and _NUMBERED.fullmatch(given) and given != f"line {number}":
        raise InputError(f"The id {given!r} is reserved for the line of that number. Choose another.")
    return given


def _opened(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Name a file of JSON lines.") from None
    except (OSError, ValueError) as error:  # or a NUL character
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{str(path)!r} cannot be read: {why}.") from None
    if not file.seekable():
        file.close()
        raise InputError(f"{path} is a stream, and a batch reads its input twice. Save it to a file.")
    return file


def _raw_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The end of each line and its bytes; None for one that is too long to hold in memory."""
    stop = 0
    try:
        while raw := file.readline(LONGEST):
            stop += len(raw)
            if len(raw) < LONGEST:
                yield stop, raw
                continue
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(1 << 16)
                stop += len(raw)
            yield stop, None
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}.") from None
