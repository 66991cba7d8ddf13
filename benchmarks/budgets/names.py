"""The methods of ``python -m benchmarks budget``, as lines of a figure."""

from __future__ import annotations

EVIDENCE, FAITHFUL, SINGLES = "evidence", "faithful", "singles"
CONTEXTCITE, LEAVE_ONE_OUT = "contextcite", "leave-one-out"
# Methods that differ in their budget only, from the smallest to the largest.
FAMILIES: dict[str, list[str]] = {
    "ContextCite": [*(f"contextcite, {k}" for k in (8, 16, 32)), CONTEXTCITE],
    "exact halves": [f"exact, {k}" for k in (16, 32, 64, 76, 96)],
    "cheap halves": [f"cheap, {k}" for k in (32, 64, 128, 256)],
    "cheap, then exact": ["cheap, 128", *(f"cheap, 128 + {k} exact" for k in (8, 16, 32, 64))],
    "leave-one-out": [LEAVE_ONE_OUT],
    "singles, cheap": [SINGLES],
    "preset evidence": [EVIDENCE],
    "preset faithful": [FAITHFUL],
}
# Methods whose intervals are held against many more masks.
SETTLED = (EVIDENCE, FAITHFUL, "exact, 64", "exact, 96", "cheap, 128 + 16 exact")
