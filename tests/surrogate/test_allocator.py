"""Freed memory is kept while a model runs, unless the user or the C library says otherwise."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from ropelime.surrogate.allocator import freed_memory_kept


class Library:
    """Stands in for GNU's C library."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def mallopt(self, *values: int) -> int:
        self.calls.append(("mallopt", *values))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.calls.append(("malloc_trim", pad))
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_kept_inside_and_given_back_after(library: Library) -> None:
    with freed_memory_kept():
        assert library.calls == [("mallopt", -3, 1 << 25), ("mallopt", -1, 1 << 26)]
    assert library.calls[2:] == [("malloc_trim", 0)]


def test_what_the_user_has_set_stands(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    with freed_memory_kept():
        pass
    assert library.calls == [("malloc_trim", 0)]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with freed_memory_kept():
        pass
