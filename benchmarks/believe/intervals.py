"""How often 90 % intervals hold what they are about, by the number of parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.believe import masks
from benchmarks.pages import NONE, number
from benchmarks.store import Row
from ropelime.typing import Floats, Masks

File = tuple[Path, Row, list[Row]]  # its path, header and rows
_PARTS = ((2, 19), (20, 39), (40, 59), (60, 300))  # of prompts that an answering model was asked
_FITTED_PARTS = ((2, 10), (11, 40), (41, 200))


def shares(files: Sequence[File]) -> str:
    """How often what was lost without a part lies in the interval of its share."""
    lines = []
    for _, header, rows in files:
        if header["preset"] not in ("evidence", "instant"):  # others weigh in nats
            continue
        some = [row for row in rows if row.get("lost") and sum(row["lost"]) > 0 and not row["fit"]]
        for least, most in _PARTS:
            known = [_lost(row) for row in some if least <= row["features"] <= most]
            lines += _line([header["preset"], f"{least} to {most}"], known)
    head = ["preset", "parts of the prompt", "prompts", "parts in all", "covered", "mean width"]
    return pages.table(head, lines) if lines else NONE


def _lost(row: Row) -> tuple[Masks, Floats]:
    """(n,) whether the interval of each part holds what was lost without it, and its width."""
    lost, (low, high) = np.array(row["lost"]), np.array(row["intervals"]).T
    return (lost >= low - 1e-4) & (lost <= high + 1e-4), high - low


def fitted(files: Sequence[File]) -> str:
    """How often the weight that many more masks give lies in the interval of a fitted weight."""
    rows = [row for _, header, rows in files if header["kind"] == "masks" for row in rows]
    lines = []
    for preset in masks.FITTED:
        own = [row for row in rows if row["method"] == preset and not row["fit"]]
        for least, most in _FITTED_PARTS:
            known = [held(row) for row in own if least <= row["features"] <= most]
            lines += _line([preset, f"{least} to {most}"], known)
    head = ["preset", "parts of the prompt", "prompts", "parts in all", "covered", "mean width"]
    return pages.table(head, lines) if lines else NONE


def held(row: Row) -> tuple[Masks, Floats]:
    """(n,) whether the interval of each weight holds that of many masks, and its width.

    Widths are relative to the largest weight. Where not all masks were scored, the weight of many is
    uncertain too, and the interval is that of the difference.
    """
    found, aim = masks.unpacked(row), np.array(row["aim"])
    reach = np.hypot(found.half_width, row["aim_half"]) + 1e-5  # rows are rounded
    largest = max(float(np.abs(found.weights).max()), 1e-12)
    return np.abs(found.weights - aim) <= reach, 2 * found.half_width / largest


def _line(first: list[str], known: Iterable[tuple[Masks, Floats]]) -> list[list[str]]:
    known = list(known)
    if not known:
        return []
    inside, widths = (np.concatenate(each) for each in zip(*known, strict=True))
    covered = f"{inside.mean():.1%}"
    return [[*first, str(len(known)), str(len(inside)), covered, number(float(widths.mean()), ".3f")]]
