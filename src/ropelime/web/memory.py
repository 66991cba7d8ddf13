"""Memory of the server's process; some of it is for systems whose C library is glibc."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress

_ARENAS = -8  # M_ARENA_MAX of malloc.h
_KERNELS = "64"  # for about ten lengths of input; fewer make scoring slower


def limit() -> None:
    """Set up the process to take little; called before torch is first imported.

    Threads allocate from two heaps, so that what one has freed, another can use. And torch keeps
    compiled kernels for the shapes of input that it has seen, a thousand in each of two caches: with
    prompts of all lengths, those alone would take hundreds of megabytes.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _KERNELS)
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_ARENAS, 2)


def release() -> None:
    """Give freed memory back."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def hold() -> None:
    """Spare the garbage collector what is there now, such as libraries and models, which stays anyway.

    Each time it looks through them, it halts all threads for up to a second, and a request with many
    small parts makes it look.
    """
    gc.collect()
    gc.freeze()
