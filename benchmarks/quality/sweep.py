"""The grid of Sparse-K settings: our best ones beside the paper's, and IoU of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import paper
from benchmarks.heat_maps import heat_maps
from benchmarks.pages import NONE, number, table
from benchmarks.quality import cells
from benchmarks.summary import METRICS, Results
from ropelime.method.samplers import SPARSE_K_SETTINGS
from ropelime.typing import Floats

_NOTE = "Mean IoU of Sparse-K.\nRows: k. Columns: c.\nEach panel has its own scale:\nyellow is best."


def tables(results: Results) -> list[str]:
    """Our three best settings beside the paper's, and the grid, for each bucket."""
    blocks = ["![IoU of every setting; each panel has its own scale](figures/sweep.svg)"]
    for group in results.buckets():
        rows = []
        pairs = zip(_ranked(results, group), paper.SWEEP[group], strict=False)
        for rank, (same, published) in enumerate(pairs, start=1):
            names = " = ".join(paper.label(setting) for setting in same)
            ours = [cells.wide(results.spread(same[0], metric, group)) for metric in METRICS]
            masks = number(results.mean(same[0], "masks", group), ".1f")
            theirs = [paper.label(published.setting), *cells.published(published)]
            rows.append([str(rank), names, *ours, masks, *theirs])
        means, sizes, counts = _grid(results, group)
        grid = [
            [size, *(NONE if np.isnan(mean) else f"{mean:.3f}" for mean in line)]
            for size, line in zip(sizes, means, strict=True)
        ]
        blocks += [
            f"### Sweep, {group} sentences",
            f"{cells.counted(results, group)} {cells.chance(results, group)}",
            table(["rank", "ours", *METRICS.values(), "masks", "paper", *METRICS.values()], rows),
            table(["IoU: k \\ c", *counts], grid),
        ]
    return blocks


def draw(results: Results, figures: Path) -> list[Path]:
    """Draw IoU over the whole grid of settings, a panel for each bucket."""
    grids = {group: _grid(results, group) for group in results.buckets()}
    _, sizes, counts = next(iter(grids.values()))
    titles = {f"{group} sentences": values for group, (values, _, _) in grids.items()}
    return heat_maps(titles, sizes, counts, _NOTE, figures / "sweep")


def _grid(results: Results, group: str) -> tuple[Floats, list[str], list[str]]:
    """Mean IoU of each (k, c), NaN where it was not run, with the names of each k and c."""
    sizes = list(dict.fromkeys(setting.split(":")[1] for setting in SPARSE_K_SETTINGS))
    counts = list(dict.fromkeys(setting.split(":")[2] for setting in SPARSE_K_SETTINGS))
    means = [[results.mean(f"sparse-k:{k}:{c}", "iou", group) for c in counts] for k in sizes]
    rows = [paper.names(f"sparse-k:{k}:M")[0] for k in sizes]
    columns = [paper.names(f"sparse-k:sqrt:{c}")[1] for c in counts]
    return np.array(means, dtype=float), rows, columns


def _ranked(results: Results, group: str) -> list[list[str]]:
    """Settings by falling F1; those with the same metrics and tokens in every example are together."""
    same: dict[tuple[object, ...], list[str]] = {}
    for method in (m for m in SPARSE_K_SETTINGS if m in results.rows):
        rows = [row for row in results.rows[method] if row["group"] == group]
        key = tuple(row.get(column) for row in rows for column in (*METRICS, "tokens"))
        same.setdefault(key, []).append(method)
    order = ("f1", "auroc", "iou")
    return sorted(
        same.values(), key=lambda m: [-(results.mean(m[0], key, group) or 0) for key in order]
    )
