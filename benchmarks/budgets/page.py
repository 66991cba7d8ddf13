"""Results of ``python -m benchmarks budget`` become ``docs/results/budget.md`` and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import pages, plots
from benchmarks.budgets import tables
from benchmarks.budgets.names import FAMILIES, INTERVALS
from benchmarks.names import CONTEXTCITE, EVIDENCE, LEAVE_ONE_OUT_CACHED, exact
from benchmarks.plots import Curve, CurvePanel
from benchmarks.summary import Results, load
from ropelime.errors import InputError

# Every hole of the page, and the context that makes results for it.
_CONTEXTS = {
    "all": "all",
    "gold": "gold",
    "lengths": "100",
    "twice": "twice",
    "ablations": "all --ablation in-place",
    "intervals": "all",
}
_LENGTHS = ("all", "100", "400")
_IN_PLACE = "all, in-place"
_DUPLICATES = (EVIDENCE, LEAVE_ONE_OUT_CACHED, exact(64), CONTEXTCITE)
_AXES = {"first": "first feature is gold", "lds": "LDS"}

Loaded = dict[tuple[str, str], Results]  # by context and surrogate


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page and its figures.

    Args:
        paths: Results files of ``python -m benchmarks budget``.
        docs: A folder that has a folder ``figures``.

    Returns:
        The files that were written.
    """
    loaded = _load(paths)
    ten, gold, twice = (
        [one for (context, _), one in loaded.items() if context == wanted]
        for wanted in ("all", "gold", "twice")
    )
    covered = [one for one in loaded.values() if any(len(one.values(m, "covered")) for m in INTERVALS)]
    holes = {
        "all": _each(ten, tables.quality),
        "gold": _each(gold, tables.by_bucket),
        "twice": _each(twice, partial(tables.quality, methods=_DUPLICATES)),
        "lengths": _lengths(loaded),
        "ablations": _ablations(loaded),
        "intervals": pages.blocks(*map(tables.intervals, covered)),
    }
    drawn: list[Path] = []
    for hole, name, caption, draw, results in (
        ("all", "budget", "Quality against tokens", _draw_quality, ten),
        ("intervals", "coverage", "Coverage of the intervals", _draw_coverage, covered),
    ):
        if holes[hole]:
            drawn += draw(results, docs / "figures" / name)
            holes[hole] = pages.blocks(f"![{caption}](figures/{name}.svg)", holes[hole])
    for hole, context in _CONTEXTS.items():
        command = f"python -m benchmarks budget --context {context} --data FILE"
        holes[hole] = holes[hole] or pages.no_results(command)
    return [pages.write(docs, "budget", files=pages.files(sorted(paths)), **holes), *drawn]


def _load(paths: Sequence[Path]) -> Loaded:
    loaded: Loaded = {}
    for path in paths:
        one = load(path)
        how = one.header.get("ablation")
        key = (str(one.header["context"]) + (f", {how}" if how else ""), tables.model(one))
        if key in loaded:
            raise InputError(f"{loaded[key].path} and {path} both hold {' by '.join(key)}. Name one.")
        if one.examples():
            loaded[key] = one
    return loaded


def _each(found: Sequence[Results], table: Callable[[Results], str]) -> str:
    """The same table for several results files, each under its command."""
    return pages.blocks(*(pages.blocks(tables.origin(one), table(one)) for one in found))


def _lengths(loaded: Loaded) -> str:
    """A table for each surrogate that was run on contexts of several lengths."""
    blocks = []
    for who in dict.fromkeys(name for _, name in loaded):
        found = [loaded[c, who] for c in _LENGTHS if (c, who) in loaded]
        if len(found) > 1:
            blocks.append(tables.by_length(found))
    return pages.blocks(*blocks)


def _ablations(loaded: Loaded) -> str:
    return pages.blocks(
        *(
            tables.by_ablation(loaded["all", who], one)
            for (context, who), one in loaded.items()
            if context == _IN_PLACE and ("all", who) in loaded
        )
    )


def _draw_quality(ten: Sequence[Results], stem: Path) -> list[Path]:
    """F1 and LDS against tokens, a row of panels for each surrogate."""
    panels = []
    for one in ten:
        for metric, title in (("f1", "F1"), ("lds", "LDS")):
            curves = []
            for family, members in FAMILIES.items():
                points = [(one.mean(m, "tokens"), one.mean(m, metric)) for m in members]
                known = [(x, y) for x, y in points if x is not None and y is not None]
                if known:
                    across, up = zip(*known, strict=True)
                    curves.append(Curve(family, across, up))
            name = f"{tables.model(one)}: {title}"
            panels.append(CurvePanel(name, "tokens", title, curves, log="x"))
    return plots.curves(panels, stem)


def _draw_coverage(covered: Sequence[Results], stem: Path) -> list[Path]:
    """Coverage of each method, a line for each results file, beside the nominal one."""
    names = [m for m in INTERVALS if any(len(one.values(m, "covered")) for one in covered)]
    curves = [Curve("nominal", (0.0, len(names) - 1.0), (0.9, 0.9))]
    for one in covered:
        means = [one.mean(m, "covered") for m in names]
        known = [(float(i), y) for i, y in enumerate(means) if y is not None]
        across, up = zip(*known, strict=True)
        curves.append(Curve(tables.label(one), across, up))
    title, ylabel = "90 % intervals", "features covered"
    return plots.curves([CurvePanel(title, "", ylabel, curves, log="", names=names)], stem)
