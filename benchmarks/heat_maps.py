"""Heat maps: the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropelime.typing import Floats
from ropelime.views.plots import STYLE, matplotlib, new_figure, save


def heat_maps(
    grids: Mapping[str, Floats], rows: Sequence[str], columns: Sequence[str], note: str, stem: Path
) -> list[Path]:
    """Draw one heat map for each grid, each on its own scale.

    Args:
        grids: (rows, columns) values by title; NaN is left white.
        rows: Names of the rows.
        columns: Names of the columns.
        note: Text for the place of a panel that is left over.
        stem: The path to write to, without its suffix.

    Returns:
        The SVG and the PNG.
    """
    with matplotlib().rc_context({**STYLE, "axes.spines.left": False, "axes.spines.bottom": False}):
        across = 2 if len(grids) > 1 else 1
        down = -(-len(grids) // across)
        figure = new_figure(5.4 * across, 2.3 * down)
        figure.get_layout_engine().set(hspace=0.06, wspace=0.04)
        every = list(figure.subplots(down, across, squeeze=False).flat)
        for axes in every[len(grids) :]:
            axes.set_axis_off()
            axes.text(0.5, 0.5, note, ha="center", va="center", transform=axes.transAxes)
        for axes, (title, grid) in zip(every, grids.items(), strict=False):
            _draw_heat_map(axes, title, grid, rows, columns)
        return save(figure, stem)


def _draw_heat_map(
    axes: Any, title: str, grid: Floats, rows: Sequence[str], columns: Sequence[str]
) -> None:
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
    axes.imshow(grid, cmap="cividis", aspect="auto", vmin=low, vmax=high)
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            dark = value < (low + high) / 2 and high > low
            ink = "white" if dark else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink)
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=9)
    axes.tick_params(length=0)
    axes.set_title(title)
