"""What the C library does with memory that is freed: kept while a model runs, given back after.

A layer frees what it has computed, and the next one asks for the same again. GNU's allocator hands
large pieces back to the system at once and has to fetch them anew, page by page, every one of them
cleared: about a tenth of the time of scoring on a CPU.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h has them
_LARGEST = 1 << 25  # bytes of a piece that is kept at all, and
_USUAL = (
    1 << 26
)  # bytes that may lie free: what the allocator comes to by itself in a process like this
_KEPT = 1 << 30  # bytes that may lie free while a model runs
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next that asks; nothing happens where the C library is another."""
    _allow(_KEPT)
    try:
        yield
    finally:
        _allow(_USUAL)
        give_back()


def _allow(free: int) -> None:
    if any(name in os.environ for name in _SET_BY_USER):
        return
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, free)


def give_back() -> None:
    """Give freed memory back to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
