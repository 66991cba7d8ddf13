"""What the server has freed goes back to the system, where the C library is glibc."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARENAS = -8  # M_ARENA_MAX of malloc.h


def share() -> None:
    """Let threads allocate from two heaps: what one has freed, another can use."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_ARENAS, 2)


def release() -> None:
    """Give freed memory back."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
