"""The history of explanations and runs, in one SQLite file that survives a killed process."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ropelime.errors import InputError
from ropelime.explain import Explanation
from ropelime.results.serialization import from_dict

Row = dict[str, Any]
Kept = Literal["explanations", "runs"]

_APPLICATION = 0x526F4C69  # "RoLi": marks the file as ours
_VERSION = 2
_SEARCHED = ("prompt", "context", "question", "messages", "output")  # fields of a request
_TABLE = """
CREATE TABLE explanations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    summary TEXT NOT NULL,
    request TEXT NOT NULL,
    explanation BLOB NOT NULL
)
"""
# They are added to files of earlier releases, which do not mind them.
_RUNS = (
    """
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    summary TEXT NOT NULL,
    run BLOB NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS steps (
    run TEXT NOT NULL,
    step INTEGER NOT NULL,
    explanation TEXT NOT NULL,
    PRIMARY KEY (run, step)
)
""",
)


class HistoryRow(NamedTuple):
    """A line of the history."""

    number: int
    id: str
    summary: Row | None  # None if it is damaged


class History:
    """Stored explanations, the newest first.

    Folder and file are created if needed, readable by their owner only. Each call opens the file anew,
    so any thread may call it, and memory does not grow with the history. A write is on disk when the
    call returns.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.sqlite3"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600)
            with self._open() as file:
                self._prepare(file)
        except OSError as error:
            raise InputError(f"No history can be kept in {folder}: {error.strerror}.") from None
        except sqlite3.Error as error:
            raise InputError(
                f"{self.path} cannot be used as a history: {error}. Name another folder with "
                "--history, or move that file away."
            ) from None

    def _prepare(self, file: sqlite3.Connection) -> None:
        file.execute("BEGIN IMMEDIATE")  # two servers may start at once
        version, owner = (
            file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        if (version, owner) == (0, 0) and not file.execute("SELECT * FROM sqlite_master").fetchall():
            file.execute(_TABLE)
            file.execute(f"PRAGMA application_id = {_APPLICATION}")
            file.execute(f"PRAGMA user_version = {_VERSION}")
        elif (version, owner) != (_VERSION, _APPLICATION):
            raise sqlite3.DatabaseError("it belongs to another program, or to another release")
        for table in _RUNS:
            file.execute(table)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30.0)) as file, file:
            yield file

    def add(
        self,
        name: str,
        summary: Row,
        request: Row,
        explanation: Explanation,
        *,
        step: tuple[str, int] | None = None,
    ) -> None:
        """Store an explanation under a name; ``step`` is the run and the step that it is of."""
        data = zlib.compress(explanation.to_json().encode(), 6)
        with self._open() as file:
            file.execute(
                "INSERT INTO explanations (id, summary, request, explanation) VALUES (?, ?, ?, ?)",
                (name, _text(summary), _text(request), data),
            )
            if step is not None:
                file.execute("INSERT OR REPLACE INTO steps VALUES (?, ?, ?)", (*step, name))

    def page(
        self, limit: int, before: int | None = None, words: str = "", *, of: Kept = "explanations"
    ) -> list[HistoryRow]:
        """At most ``limit`` entries older than ``before``, the newest first.

        Args:
            limit: How many.
            before: The number of an entry.
            words: What explanations must have in their prompt, answer or sources, in any case.
            of: Explanations or runs.
        """
        with self._open() as file:
            # What is damaged may not be UTF-8; the others are to be read all the same.
            file.text_factory = lambda raw: raw.decode("utf-8", "replace")
            file.create_function("has_words", 1, _finder(words), deterministic=True)
            having = "AND has_words(request)" if words.strip() else ""
            rows = file.execute(
                f"SELECT number, id, summary FROM {of} WHERE (? IS NULL OR number < ?) {having} "
                "ORDER BY number DESC LIMIT ?",
                (before, before, limit),
            ).fetchall()
        return [HistoryRow(number, str(name), _object(text)) for number, name, text in rows]

    def entry(self, name: str) -> tuple[Row, Row] | None:
        """The summary and the request of an explanation; None if there is none of that name."""
        with self._open() as file:
            found = file.execute("SELECT summary, request FROM explanations WHERE id = ?", (name,))
            row = found.fetchone()
        return None if row is None else (json.loads(row[0]), json.loads(row[1]))

    def explanation(self, name: str) -> Explanation | None:
        """An explanation; None if there is none of that name."""
        with self._open() as file:
            row = file.execute("SELECT explanation FROM explanations WHERE id = ?", (name,)).fetchone()
        if row is None:
            return None
        try:
            data = json.loads(zlib.decompress(row[0]))
        except (zlib.error, ValueError) as error:
            raise InputError(f"Explanation {name} in the history is damaged: {error}.") from None
        return Explanation.of(from_dict(data, source=f"Explanation {name} in the history"))

    def remove(self, name: str) -> bool:
        """Delete an explanation; returns whether there was one."""
        with self._open() as file:
            file.execute("PRAGMA secure_delete = ON")  # overwrites the deleted prompt
            file.execute("DELETE FROM steps WHERE explanation = ?", (name,))
            return file.execute("DELETE FROM explanations WHERE id = ?", (name,)).rowcount > 0

    def add_run(self, name: str, summary: Row, text: str) -> None:
        """Store a run of an agent as it was sent."""
        data = zlib.compress(text.encode(), 6)
        with self._open() as file:
            values = (name, _text(summary), data)
            file.execute("INSERT INTO runs (id, summary, run) VALUES (?, ?, ?)", values)

    def run(self, name: str) -> tuple[Row, str] | None:
        """The summary of a run and what was sent; None if there is none of that name."""
        with self._open() as file:
            row = file.execute("SELECT summary, run FROM runs WHERE id = ?", (name,)).fetchone()
        try:
            return None if row is None else (json.loads(row[0]), zlib.decompress(row[1]).decode())
        except (zlib.error, ValueError) as error:
            raise InputError(f"Run {name} in the history is damaged: {error}.") from None

    def steps(self, name: str) -> dict[int, str]:
        """The names of the explanations of a run's steps, by the number of the step."""
        with self._open() as file:
            rows = file.execute(
                "SELECT step, steps.explanation FROM steps "
                "JOIN explanations ON steps.explanation = id WHERE run = ?",
                (name,),
            )
            return dict(rows.fetchall())

    def remove_run(self, name: str) -> bool:
        """Delete a run with the explanations of its steps; returns whether there was one."""
        with self._open() as file:
            file.execute("PRAGMA secure_delete = ON")
            of_steps = "SELECT explanation FROM steps WHERE run = ?"
            file.execute(f"DELETE FROM explanations WHERE id IN ({of_steps})", (name,))
            file.execute("DELETE FROM steps WHERE run = ?", (name,))
            return file.execute("DELETE FROM runs WHERE id = ?", (name,)).rowcount > 0


def _finder(words: str) -> Callable[[str], bool]:
    """Whether a stored request has all words, as one phrase, in what was sent to be explained."""
    wanted = " ".join(words.casefold().split())

    def has_words(request: str) -> bool:
        sent = _object(request) or {}
        left, texts = [sent.get(key) for key in _SEARCHED], []
        while left:
            each = left.pop()
            if isinstance(each, str):
                texts.append(each)
            elif isinstance(each, (dict, list)):
                left += each.values() if isinstance(each, dict) else each
        return any(wanted in " ".join(text.casefold().split()) for text in texts)

    return has_words


def _object(text: Any) -> Row | None:
    """A JSON object; None if it is not one."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False)
