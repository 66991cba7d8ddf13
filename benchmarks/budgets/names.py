"""The methods of ``python -m benchmarks budget``, as lines of a figure."""

from __future__ import annotations

from benchmarks.names import (
    CONTEXTCITE,
    EVIDENCE,
    FAITHFUL,
    INSTANT,
    LEAVE_ONE_OUT,
    LEAVE_ONE_OUT_CACHED,
    cached,
    exact,
)

# Methods that differ in their budget only, from the smallest to the largest.
FAMILIES: dict[str, list[str]] = {
    "ContextCite": [*(f"{CONTEXTCITE}, {k}" for k in (8, 16, 32)), CONTEXTCITE],
    "exact masks": [exact(k) for k in (16, 32, 64, 76, 96)],
    "cached masks": [cached(k) for k in (32, 64, 128, 256)],
    "cached + exact masks": [cached(128, k) for k in (0, 8, 16, 32, 64)],
    "leave-one-out": [LEAVE_ONE_OUT],
    "leave-one-out, cached": [LEAVE_ONE_OUT_CACHED],
    "preset evidence": [EVIDENCE],
    "preset instant": [INSTANT],
    "preset faithful": [FAITHFUL],
}
# Methods whose intervals are compared with the weights from many more masks.
INTERVALS = (FAITHFUL, exact(64), exact(96), cached(128, 16))
