"""How often 90 % intervals hold what they are about, by the number of parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.believe import masks
from benchmarks.pages import NONE, number
from benchmarks.store import Row
from ropelime.typing import Floats, Masks

File = tuple[Path, Row, list[Row]]  # its path, header and rows
Held = tuple[Masks, Floats]  # (n,) whether each interval of a prompt holds it, and its width
_PARTS = ((2, 19), (20, 39), (40, 59), (60, 300))  # of prompts that an answering model was asked
_FITTED_PARTS = ((2, 3), (4, 10), (11, 40), (41, 200))
_DRAWS = 2000
_HEAD = ("preset", "parts of the prompt", "widths were set", "prompts", "parts", "covered", "width")


def shares(files: Sequence[File]) -> str:
    """How often what was lost without a part lies in the interval of its share."""
    lines = []
    for preset in ("evidence", "instant"):  # others weigh in nats
        rows = [row for _, header, some in files if header["preset"] == preset for row in some]
        rows = [row for row in rows if row.get("lost") and sum(row["lost"]) > 0]
        for least, most in _PARTS:
            within = [row for row in rows if least <= row["features"] <= most]
            lines += _lines(preset, f"{least} to {most}", [(r["fit"], _lost(r)) for r in within])
    return pages.table(list(_HEAD), lines) if lines else NONE


def _lost(row: Row) -> Held:
    lost, (low, high) = np.array(row["lost"]), np.array(row["intervals"]).T
    return (lost >= low - 1e-4) & (lost <= high + 1e-4), high - low


def fitted(files: Sequence[File]) -> str:
    """How often the weight that many more masks give lies in the interval of a fitted weight."""
    rows = [row for _, header, rows in files if header["kind"] == "masks" for row in rows]
    lines = []
    for preset in masks.FITTED:
        for least, most in _FITTED_PARTS:
            within = [r for r in rows if r["method"] == preset and least <= r["features"] <= most]
            lines += _lines(preset, f"{least} to {most}", [(r["fit"], held(r)) for r in within])
    return pages.table(list(_HEAD), lines) if lines else NONE


def held(row: Row) -> Held:
    """Whether the interval of each weight holds that of many masks.

    Widths are relative to the largest weight. Where not all masks were scored, the weight of many is
    uncertain too, and the interval is that of the difference.
    """
    found, aim = masks.unpacked(row), np.array(row["aim"])
    reach = np.hypot(found.half_width, masks.reference_half(row)) + 1e-5  # rows are rounded
    largest = max(float(np.abs(found.weights).max()), 1e-12)
    return np.abs(found.weights - aim) <= reach, 2 * found.half_width / largest


def _lines(preset: str, parts: str, known: Sequence[tuple[bool, Held]]) -> list[list[str]]:
    """A line for the prompts that widths were set by, and one for those that judge them."""
    lines = []
    for fit, which in ((True, "by these"), (False, "by others")):
        own = [each for by, each in known if by is fit]
        if own:
            inside, widths = (np.concatenate(each) for each in zip(*own, strict=True))
            low, high = np.quantile(_resampled([each for each, _ in own]), [0.05, 0.95])
            covered = f"{inside.mean():.1%} [{low:.0%}, {high:.0%}]"
            counts = [str(len(own)), str(len(inside))]
            width = number(float(np.median(widths)), ".3f")
            lines.append([preset, parts, which, *counts, covered, width])
    return lines


def _resampled(inside: Sequence[Masks]) -> Floats:
    """(draws,) the part that is covered, of prompts that are drawn with replacement."""
    hits, sizes = (np.array([f(each) for each in inside], dtype=float) for f in (np.sum, np.size))
    drawn = np.random.default_rng(17).integers(len(inside), size=(_DRAWS, len(inside)))
    return np.asarray(hits[drawn].sum(1) / sizes[drawn].sum(1))
