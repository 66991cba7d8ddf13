"""Bars and lines: the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.summary import Spread
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
_SHORT = 24  # letters of a label, if four of them fit in a row
NOTHING = Spread(0, np.nan, np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Series:
    """Bars of one colour.

    Attributes:
        label: Its name in the legend.
        role: ``"method"`` or ``"baseline"``.
        published: Whether these are the paper's numbers, which are drawn light and hatched.
        values: A value for each group; NaN draws no bar.
        low: Lower end of each interval; no intervals are drawn if empty.
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
        groups: Labels of the groups of bars.
        series: The bars.
        chance: The level of chance of each group; NaN draws no line.
        axis: Label of the x axis.
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
        x: Coordinates of its points.
        y: Their values.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class CurvePanel:
    """One set of axes.

    Attributes:
        title: Its title.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis.
        curves: The lines.
        log: Which of ``"x"`` and ``"y"`` are logarithmic.
        names: Tick labels at x = 0, 1, 2, ...; numbers if empty.
    """

    title: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    log: str = "xy"
    names: Sequence[str] = ()


def ours(label: str, role: str, spreads: Sequence[Spread | None]) -> Series:
    """Bars of our own results with their intervals."""
    known = [value or NOTHING for value in spreads]
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
            axes.set_xlabel(panel.xlabel)
            axes.set_ylabel(panel.ylabel)
            axes.set_title(panel.title)
        handles, labels = every[0].get_legend_handles_labels()
        fitting = 4 if max(map(len, labels)) <= _SHORT else across
        columns = min(fitting, max(1, len(labels)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        return save(figure, stem)


def _scales(axes: Any, panel: CurvePanel) -> None:
    """Logarithmic axes where they are wanted, and their ticks."""
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
