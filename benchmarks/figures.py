"""The figures of the report: bars, heat maps and lines, the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import paper
from benchmarks.experiments import GSMILE
from benchmarks.runner import CHANCE
from benchmarks.summary import METRICS, Results, Spread
from benchmarks.targets import LEAVE_ONE_OUT, ROPE_LIME, SPARSE_K
from ropelime.method.samplers import SPARSE_K_SETTINGS
from ropelime.typing import Floats
from ropelime.views.plots import BLUE, ORANGE, STYLE, matplotlib, new_figure, save

_COLOURS = {"method": (BLUE, "#B5D6EA"), "baseline": (ORANGE, "#F6CDB0")}  # each with a light tint
_BAR = 0.2
_LINES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "v"),
    ("#999999", "D"),
    ("#56B4E9", "P"),
    ("#000000", "*"),
    ("#E69F00", "X"),
)
_SHORT = 24  # letters of a name of which four stand beside each other
_NOTHING = Spread(0, np.nan, np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Series:
    """Bars of one colour.

    Attributes:
        label: Its name in the legend.
        role: ``"method"`` or ``"baseline"``.
        published: Whether these are the paper's figures: drawn light and hatched.
        values: A value for each group; NaN draws none.
        low: Lower end of each interval; none drawn if empty.
        high: Upper end of each interval.
    """

    label: str
    role: str
    published: bool
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        title: Its title.
        groups: What the groups of bars are.
        series: The bars.
        chance: The level of chance of each group; NaN draws none.
        axis: What the groups are, in words.
    """

    title: str
    groups: Sequence[str]
    series: Sequence[Series]
    chance: Sequence[float]
    axis: str = ""


@dataclass(frozen=True)
class Curve:
    """One line.

    Attributes:
        label: Its name in the legend.
        x: Where its points are,
        y: and how high.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class CurvePanel:
    """One set of axes.

    Attributes:
        title: Its title.
        across: What x is.
        up: What y is.
        curves: The lines.
        log: Which of ``"x"`` and ``"y"`` are logarithmic.
        names: What stands at 0, 1, 2, ... across; numbers if empty.
    """

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    log: str = "xy"
    names: Sequence[str] = ()


def hotpotqa(results: Results, folder: Path) -> list[Path]:
    """Redraw the paper's second figure: Sparse-K against leave-one-out by number of sentences."""
    groups = results.buckets()
    compared = (
        ("Sparse-K", "method", SPARSE_K, paper.SPARSE_K),
        ("LOO", "baseline", LEAVE_ONE_OUT, paper.LEAVE_ONE_OUT),
    )
    panels = []
    for metric, title in METRICS.items():
        series = []
        for name, role, method, table in compared:
            published = [getattr(table[group], metric).mean for group in groups]
            ours = [results.spread(method, metric, group) for group in groups]
            series.append(Series(f"{name}, paper ({paper.HOTPOTQA_MODEL})", role, True, published))
            series.append(_ours(f"{name}, ours", role, ours))
        chance = [(results.spread(CHANCE, metric, group) or _NOTHING).mean for group in groups]
        panels.append(Panel(title, groups, series, chance, "sentences in the gold paragraphs"))
    return bars(panels, folder / "hotpotqa", width=4.6)


def mmlu(results: Results, folder: Path) -> list[Path]:
    """Redraw the paper's first figure: gSMILE against RoPE-LIME on words."""
    compared = (
        ("gSMILE", "gpt-4o-mini", "baseline", GSMILE, paper.MMLU_CLOSED),
        ("RoPE-LIME", "Qwen-8B", "method", ROPE_LIME, paper.MMLU_OPEN),
    )
    series = []
    for name, model, role, method, table in compared:
        published = [table[metric].mean for metric in METRICS]
        series.append(Series(f"{name}, paper ({model})", role, True, published))
        series.append(_ours(f"{name}, ours", role, [results.spread(method, m) for m in METRICS]))
    chance = [(results.spread(CHANCE, metric) or _NOTHING).mean for metric in METRICS]
    title = f"MMLU miscellaneous, {len(results.examples())} questions"
    return bars([Panel(title, list(METRICS.values()), series, chance)], folder / "mmlu", width=7.4)


def sweep(results: Results, folder: Path) -> list[Path]:
    """Draw IoU over the whole grid of settings, a panel for each bucket."""
    grids = {group: grid(results, group) for group in results.buckets()}
    _, sizes, counts = next(iter(grids.values()))
    titles = {f"{group} sentences": values for group, (values, _, _) in grids.items()}
    note = "Mean IoU of Sparse-K.\nRows: k. Columns: c.\nEach panel has its own scale:\nyellow is best."
    return heat_maps(titles, sizes, counts, note, folder / "sweep")


def grid(results: Results, group: str) -> tuple[Floats, list[str], list[str]]:
    """Mean IoU of each (k, c), NaN where it was not run, with the names of each k and c."""
    sizes = list(dict.fromkeys(setting.split(":")[1] for setting in SPARSE_K_SETTINGS))
    counts = list(dict.fromkeys(setting.split(":")[2] for setting in SPARSE_K_SETTINGS))
    means = [[results.mean(f"sparse-k:{k}:{c}", "iou", group) for c in counts] for k in sizes]
    rows = [paper.names(f"sparse-k:{k}:M")[0] for k in sizes]
    columns = [paper.names(f"sparse-k:sqrt:{c}")[1] for c in counts]
    return np.array(means, dtype=float), rows, columns


def _ours(label: str, role: str, spreads: Sequence[Spread | None]) -> Series:
    known = [value or _NOTHING for value in spreads]
    low, high = [value.low for value in known], [value.high for value in known]
    return Series(label, role, False, [value.mean for value in known], low, high)


def bars(panels: Sequence[Panel], stem: Path, *, width: float) -> list[Path]:
    """Draw panels of grouped bars side by side.

    Args:
        panels: The panels; they share one legend.
        stem: The path to write to, without its suffix.
        width: Width of a panel in inches.

    Returns:
        The SVG and the PNG.
    """
    with matplotlib().rc_context(STYLE):
        figure = new_figure(width * len(panels), 4.0)
        every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(every, panels, strict=True):
            _draw_bars(axes, panel)
        every[0].set_ylabel("mean over examples")
        chance, *others = zip(*every[0].get_legend_handles_labels(), strict=True)
        handles, labels = zip(*others, chance, strict=True)
        columns = len(labels) if len(panels) > 1 else (len(labels) + 1) // 2
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        return save(figure, stem)


def curves(panels: Sequence[CurvePanel], stem: Path) -> list[Path]:
    """Draw panels of lines, two side by side.

    Args:
        panels: The panels; they share one legend.
        stem: The path to write to, without its suffix.

    Returns:
        The SVG and the PNG.
    """
    with matplotlib().rc_context(STYLE):
        across = min(2, len(panels))
        down = -(-len(panels) // across)
        figure = new_figure(4.6 * across, 3.4 * down)
        every = list(figure.subplots(down, across, squeeze=False).flat)
        for axes in every[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(every, panels, strict=False):
            for curve, (colour, marker) in zip(panel.curves, _LINES, strict=False):
                axes.plot(curve.x, curve.y, color=colour, marker=marker, label=curve.label)
            _scales(axes, panel)
            axes.grid(True, color="#DDDDDD", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_xlabel(panel.across)
            axes.set_ylabel(panel.up)
            axes.set_title(panel.title)
        handles, labels = every[0].get_legend_handles_labels()
        fitting = 4 if max(map(len, labels)) <= _SHORT else 2
        columns = min(fitting, max(1, len(labels)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        return save(figure, stem)


def _scales(axes: Any, panel: CurvePanel) -> None:
    """Logarithms where they are wanted, and ticks that can be read."""
    if "x" in panel.log:
        axes.set_xscale("log")
        axes.tick_params(axis="x", which="minor", length=0, labelbottom=False)
    if "y" in panel.log:
        axes.set_yscale("log")
        axes.tick_params(axis="y", which="minor", labelleft=False)
        axes.yaxis.set_major_formatter("{x:g}")
    ticks = sorted({x for curve in panel.curves for x in curve.x})
    if panel.names:
        axes.set_xticks(range(len(panel.names)), panel.names, rotation=20, ha="right")
    elif panel.log == "xy":
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    elif "x" in panel.log:
        axes.set_xticks([1000, 3000, 10_000, 30_000], ["1,000", "3,000", "10,000", "30,000"])
        axes.set_xlim(0.8 * ticks[0], 1.25 * ticks[-1])


def heat_maps(
    grids: Mapping[str, Floats], rows: Sequence[str], columns: Sequence[str], note: str, stem: Path
) -> list[Path]:
    """Draw one heat map for each grid, each on its own scale.

    Args:
        grids: (rows, columns) values by title; NaN is left white.
        rows: Names of the rows.
        columns: Names of the columns.
        note: What is written where a panel is left over.
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


def _draw_bars(axes: Any, panel: Panel) -> None:
    centres = np.arange(len(panel.groups))
    start = -_BAR * (len(panel.series) - 1) / 2
    for number, series in enumerate(panel.series):
        dark, light = _COLOURS[series.role]
        values = np.asarray(series.values, dtype=float)
        at = centres + start + _BAR * number
        axes.bar(
            at,
            values,
            0.92 * _BAR,
            label=series.label,
            color=light if series.published else dark,
            edgecolor=dark,
            linewidth=0.8,
            hatch="////" if series.published else None,
        )
        if len(series.low):
            ends = np.array([values - np.asarray(series.low), np.asarray(series.high) - values])
            axes.errorbar(at, values, ends, fmt="none", ecolor="black", elinewidth=1.0, capsize=2.5)
    half = _BAR * len(panel.series) / 2 + 0.04
    outline = [matplotlib("patheffects").withStroke(linewidth=3.2, foreground="white")]
    for number, (centre, level) in enumerate(zip(centres, panel.chance, strict=True)):
        line = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.4, "path_effects": outline}
        label = "chance" if number == 0 else None
        axes.plot([centre - half, centre + half], [level, level], label=label, **line)
    axes.set_xticks(centres, panel.groups)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1)
    axes.yaxis.grid(True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(panel.axis)
    axes.set_title(panel.title)


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
