"""Results of ``python -m benchmarks speed`` become ``docs/results/performance.md`` and its figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import pages, plots
from benchmarks.plots import Curve, CurvePanel
from benchmarks.speed import accelerators, tables
from benchmarks.speed.names import SCALED
from benchmarks.speed.summary import COMMANDS, Speed, load

_TABLES: dict[str, Callable[[Speed], str]] = {
    "contest": tables.contest,
    "shape": tables.shape,
    "scaling": tables.scaling,
    "start": tables.start,
}


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page and its figure.

    Args:
        paths: Results files of ``python -m benchmarks speed``, of accelerators and of versions.
        docs: A folder that has a folder ``figures``.

    Returns:
        The files that were written.
    """
    ablated = [path for path in paths if accelerators.holds(path)]
    loaded = [load(path) for path in paths if path not in ablated]
    loaded.sort(key=lambda one: (one.on_gpu, one.path.name))
    holes = {section: _section(loaded, section) for section in COMMANDS}
    holes |= {kind: accelerators.tables(ablated, kind) for kind in accelerators.BASES}
    holes["files"] = pages.files([*(one.path for one in loaded), *ablated])
    drawn: list[Path] = []
    if panels := [p for one in loaded if one.section == "scaling" and one.rows for p in _panels(one)]:
        drawn = plots.curves(panels, docs / "figures" / "scaling")
        picture = "![Seconds and memory against the number of features](figures/scaling.svg)"
        holes["scaling"] = pages.blocks(picture, holes["scaling"])
    return [pages.write(docs, "performance", **holes), *drawn]


def _section(loaded: Sequence[Speed], section: str) -> str:
    mine = [one for one in loaded if one.section == section]
    if not mine:
        return pages.no_results(COMMANDS[section])
    parts = []
    for one in mine:
        parts += [tables.origin(one), _TABLES[section](one) if one.rows else "Nothing is complete yet."]
    return pages.blocks(*parts)


def _panels(one: Speed) -> list[CurvePanel]:
    """Seconds and memory against features."""
    rows = [row for row in one.rows if row["example"].endswith("features") and "seconds" in row]
    title = f"{one.header['surrogate']['name'].split(',')[0]}, {'GPU' if one.on_gpu else 'CPU'}"
    panels = []
    for key, scale, ylabel in (("seconds", 1.0, "seconds"), ("memory", 1e6, "memory, MB")):
        curves = []
        for method in SCALED:
            mine = [row for row in rows if row["method"] == method]
            values = [row[key] / scale for row in mine]
            curves.append(Curve(method, [row["features"] for row in mine], values))
        panels.append(CurvePanel(title, "features", ylabel, curves))
    return panels
