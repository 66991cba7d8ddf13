"""Plots for papers and slides, as matplotlib figures; ``figure.savefig(path)`` writes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten, visible
from ropelime.views.findings import alone, has_share

# Okabe and Ito's blue and vermilion: distinct for every common kind of colour blindness.
BLUE, ORANGE = "#0072B2", "#D55E00"
STYLE = {
    "svg.hashsalt": "ropelime",
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
}
_LABEL = 48  # characters of a feature beside its bar
_TOKEN = 16  # of an output token below its column
_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#000000")  # and others of Okabe and Ito
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v")


def ranked(e: ExplanationData, *, top: int = 10) -> Any:
    """Draw the ``top`` largest weights as bars: blue ones support, hatched orange ones oppose.

    A second line below the name says what a verifying call without that feature showed.
    """
    largest = e.top(top)
    if not largest:
        raise InputError(f"ranked() draws at least one feature, not top={top}.")
    at, weights = np.arange(len(largest)), np.array([feature.weight for feature in largest])
    supports, unit = weights >= 0, f"weight, {e.config.get('unit', '')}"
    marks = [alone(e, feature.index) for feature in largest]
    with matplotlib().rc_context(STYLE):
        figure = new_figure(7.2, 0.9 + (0.44 if any(marks) else 0.34) * len(largest))
        axes = figure.subplots()
        axes.barh(
            at, weights, 0.66,
            color=np.where(supports, BLUE, "#F6CDB0"),
            edgecolor=np.where(supports, BLUE, ORANGE),
            hatch=[None if support else "////" for support in supports],
        )  # fmt: skip
        if e.intervals is not None:
            unit += "\n(90% interval)"
            low, high = np.array([e.intervals[feature.index] for feature in largest]).T
            axes.errorbar(
                weights, at, xerr=np.maximum([weights - low, high - weights], 0.0),
                fmt="none", ecolor="black", elinewidth=1.0, capsize=2.5,
            )  # fmt: skip
        axes.axvline(0, color="black", linewidth=0.8)
        shares = [
            f"{feature.normalized_weight:.0%}" if has_share(e, feature.index) else "–"
            for feature in largest
        ]
        names = [
            f"{_name(f.text)}  {share}" + (mark and f"\n{mark}")
            for f, share, mark in zip(largest, shares, marks, strict=True)
        ]
        axes.set_yticks(at, names, parse_math=False)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(
            unit, loc="right"
        )  # it may be wider than the axes, and there is room to the left
        return figure


def heat_map(e: ExplanationData, *, top: int = 12) -> Any:
    """Draw how much the ``top`` features, in the order of the prompt, move each output token."""
    chosen = sorted(feature.index for feature in e.top(top))
    if not chosen:
        raise InputError(f"heat_map() draws at least one feature, not top={top}.")
    grid = e.token_weights[chosen]
    most = float(np.abs(grid).max()) or 1.0
    tokens = [_name(e.output[a:b], _TOKEN) or "␣" for a, b in e.output_spans]
    with matplotlib().rc_context({**STYLE, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = new_figure(max(6.4, 3.8 + 0.32 * len(tokens)), 1.7 + 0.3 * len(chosen))
        axes = figure.subplots()
        colours = matplotlib("colors").LinearSegmentedColormap.from_list("", [ORANGE, "white", BLUE])
        image = axes.imshow(grid, cmap=colours, vmin=-most, vmax=most, aspect="auto")
        for row, column in np.argwhere(grid < -0.15 * most):  # not by colour alone
            axes.text(column, row, "−", ha="center", va="center", fontsize=8)
        names = [_name(e.features[i].text) for i in chosen]
        axes.set_yticks(range(len(names)), names, parse_math=False)
        turned = {"rotation": 60, "ha": "right", "fontsize": 8}
        axes.set_xticks(range(len(tokens)), tokens, parse_math=False, **turned)
        axes.set_xticks(np.arange(len(tokens) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(chosen) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#EEEEEE")
        axes.tick_params(which="both", length=0)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01)
        bar.outline.set_visible(False)
        bar.set_label("weight for the token", fontsize=8)
        return figure


def quality(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    budget: str = "masked prompts scored",
    measure: str = "quality",
) -> Any:
    """Draw quality against budget, a line for each method.

    Args:
        series: (budget, quality) points of each method, by its name.
        budget: The unit of the budget.
        measure: The measure of quality.
    """
    if not any(series.values()):
        raise InputError("quality() needs at least one series with a point in it.")
    with matplotlib().rc_context(STYLE):
        figure = new_figure(6.4, 4.0)
        axes = figure.subplots()
        looks = zip(cycle(_COLOURS), cycle(_LINES), cycle(_MARKERS), strict=False)
        for (name, points), (colour, line, marker) in zip(series.items(), looks, strict=False):
            x, y = zip(*sorted(points), strict=True) if points else ((), ())
            axes.plot(x, y, label=name, color=colour, linestyle=line, marker=marker, markersize=5)
        axes.set_xlabel(budget, parse_math=False)
        axes.set_ylabel(measure, parse_math=False)
        axes.yaxis.grid(True, color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        for text in axes.legend(frameon=False).get_texts():
            text.set_parse_math(False)
        return figure


def matplotlib(module: str | None = None) -> Any:
    """The library or one of its modules, imported only when a figure is drawn."""
    try:
        return import_module(f"matplotlib.{module}" if module else "matplotlib")
    except ImportError:
        raise InputError("Figures need matplotlib: pip install 'ropelime[plot]'") from None


def new_figure(width: float, height: float) -> Any:
    """A figure without a window and without state that is shared with the caller's plots."""
    return matplotlib("figure").Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as SVG and PNG, the same bytes for the same data."""
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    with matplotlib().rc_context(STYLE):  # it sets the salt of the ids inside an SVG
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
        figure.savefig(png, dpi=150, metadata={"Software": None})
    return [svg, png]


def _name(text: str, limit: int = _LABEL) -> str:
    return shorten(visible(text), limit)
