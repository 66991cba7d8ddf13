"""The history: what was kept comes back, whole, and foreign files are left alone."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from ropelime.errors import InputError
from ropelime.web.history import History
from toy import toy

FOUND = toy()


def names(history: History, **options: int) -> list[str]:
    return [row.id for row in history.page(options.get("limit", 100), options.get("before"))]


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    History(tmp_path / "new" / "folder").add("a", {"id": "a", "x": "é"}, {"output": "yes"}, FOUND)
    again = History(tmp_path / "new" / "folder")
    assert again.entry("a") == ({"id": "a", "x": "é"}, {"output": "yes"})
    assert again.explanation("a") == FOUND
    assert again.entry("b") is None
    assert again.explanation("b") is None


def test_it_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    history = History(tmp_path / "new")
    assert stat.S_IMODE(history.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.path.parent.stat().st_mode) == 0o700


def test_pages_come_newest_first(tmp_path: Path) -> None:
    history = History(tmp_path)
    for name in "abcde":
        history.add(name, {"id": name}, {}, FOUND)
    assert names(history) == list("edcba")
    last = history.page(2)[-1]
    assert names(history, limit=2, before=last.number) == ["c", "b"]


def test_what_is_removed_is_gone(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add("a", {"id": "a", "text": "a secret"}, {}, FOUND)
    history.add("b", {"id": "b"}, {}, FOUND)
    assert history.remove("a")
    assert not history.remove("a")
    assert names(history) == ["b"]
    assert b"a secret" not in history.path.read_bytes()
    history.add("c", {"id": "c"}, {}, FOUND)
    assert names(history) == ["c", "b"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add("a", {"id": "a"}, {}, FOUND)
    with pytest.raises(sqlite3.IntegrityError):
        history.add("a", {"id": "again"}, {}, FOUND)
    assert names(history) == ["a"]
    assert names(History(tmp_path)) == ["a"]


def test_threads_write_and_read_at_once(tmp_path: Path) -> None:
    history = History(tmp_path)
    errors: list[BaseException] = []

    def work(letter: str) -> None:
        try:
            for number in range(10):
                history.add(f"{letter}{number}", {"id": f"{letter}{number}"}, {}, FOUND)
                history.page(5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(names(history))) == 40


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add("a", {"id": "a"}, {}, FOUND)
    with sqlite3.connect(history.path) as file:
        file.execute("UPDATE explanations SET explanation = x'00'")
    file.close()
    with pytest.raises(InputError, match="Explanation a in the history is damaged"):
        history.explanation("a")


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[1]", b"\xff\xfe\xfd", b'{"id": ' + b"[" * 100_000, None, 7],
    ids=["nothing", "half", "a list", "no text", "deep", "blob", "number"],
)
def test_a_damaged_summary_does_not_spoil_the_list(tmp_path: Path, damage: bytes | int | None) -> None:
    history = History(tmp_path)
    for name in "abc":
        history.add(name, {"id": name}, {}, FOUND)
    with sqlite3.connect(history.path) as file:
        if isinstance(damage, bytes):  # as text, whatever it is
            value = f"CAST(x'{damage.hex()}' AS TEXT)"
        else:
            value = "x'00ff'" if damage is None else str(damage)
        file.execute(f"UPDATE explanations SET summary = {value} WHERE id = 'b'")
    file.close()
    assert [(row.id, row.summary) for row in history.page(10)] == [
        ("c", {"id": "c"}),
        ("b", None),
        ("a", {"id": "a"}),
    ]
    assert history.remove("b")
    assert names(history) == ["c", "a"]


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite3").write_bytes(b"no database at all, but something of mine" * 20)
    before = (tmp_path / "history.sqlite3").read_bytes()
    with pytest.raises(InputError, match="cannot be used as a history"):
        History(tmp_path)
    assert (tmp_path / "history.sqlite3").read_bytes() == before
    (tmp_path / "history.sqlite3").unlink()
    with sqlite3.connect(tmp_path / "history.sqlite3") as file:
        file.execute("CREATE TABLE mine (x)")
    file.close()
    with pytest.raises(InputError, match="belongs to another program"):
        History(tmp_path)
    with pytest.raises(InputError, match="No history can be kept in"):
        History(tmp_path / "history.sqlite3")
