"""How torch shall use the CPU: its threads, how they wait for each other, and what it remembers."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# Waiting threads of libgomp spin, and where another program wants the core, they keep the thread that
# works from it. A short spin costs nothing on an idle machine.
_SPIN = {"GOMP_SPINCOUNT": "1000"}
# Two caches keep the code made for a matrix product of some size, each for the last 1,024. Rows are
# of many lengths, and together that would be half a gigabyte for sizes that seldom come again.
_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "16"}


def before_torch() -> None:
    """Set what torch reads when it is first imported; nothing where the user has set something."""
    if "torch" in sys.modules:
        return
    for name, value in (_CACHES if "OMP_WAIT_POLICY" in os.environ else _CACHES | _SPIN).items():
        os.environ.setdefault(name, value)


def limit(threads: int, *, quota: Path = _QUOTA) -> int:
    """No more threads than the container may use, unless the user has asked for a number.

    Args:
        threads: What torch would take.
        quota: The file in which a container says how much of the processors it has.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return threads
    try:
        granted, period = quota.read_text(encoding="ascii").split()
        return max(1, min(threads, math.ceil(int(granted) / int(period))))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return threads
