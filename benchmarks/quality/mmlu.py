"""MMLU: RoPE-LIME against gSMILE on the words of a question."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import paper
from benchmarks.names import CHANCE, GSMILE, ROPE_LIME
from benchmarks.pages import NONE, number, table
from benchmarks.plots import NOTHING, Panel, Series, bars, ours
from benchmarks.quality import cells
from benchmarks.summary import METRICS, Results, spread

_PAPER = {
    "paper, gSMILE, gpt-4o-mini": paper.MMLU_CLOSED,
    "paper, RoPE-LIME, Qwen-8B": paper.MMLU_OPEN,
}
_COSTS = ("lds", "masks", "tokens", "seconds")


def tables(results: Results) -> list[str]:
    """A table for each metric, and one of what a question costs."""
    blocks = ["![IoU, F1 and AUROC on MMLU](figures/mmlu.svg)"]
    for metric, name in METRICS.items():
        rows = [[method, *_quartiles(results, method, metric)] for method in cells.methods(results)]
        for label, printed in _PAPER.items():
            p = printed[metric]
            middle = f"{p.median:.3f} [{p.iqr:.3f}]"
            rows.append([label, f"{p.mean:.3f} ± {p.std:.3f}", middle, f"{p.min:.3f}", f"{p.max:.3f}"])
        rows.append([CHANCE, number(results.mean(CHANCE, metric)), NONE, NONE, NONE])
        head = ["method", "mean ± std [interval]", "median [IQR]", "min", "max"]
        blocks += [f"### MMLU, {name}", table(head, rows), _paired(results, metric)]
    costs = [
        [method, number(results.mean(method, "generations") or 0, "g")]
        + [number(results.mean(method, key), cells.COLUMNS[key][1]) for key in _COSTS]
        for method in cells.methods(results)
    ]
    head = ["method", "generations", *(cells.COLUMNS[key][0] for key in _COSTS)]
    return [*blocks, "### MMLU, cost of a question", table(head, costs)]


def draw(results: Results, figures: Path) -> list[Path]:
    """Redraw the paper's first figure: gSMILE against RoPE-LIME on words."""
    compared = (
        ("gSMILE", "gpt-4o-mini", "baseline", GSMILE, paper.MMLU_CLOSED),
        ("RoPE-LIME", "Qwen-8B", "method", ROPE_LIME, paper.MMLU_OPEN),
    )
    series = []
    for name, model, role, method, printed in compared:
        theirs = [printed[metric].mean for metric in METRICS]
        series.append(Series(f"{name}, paper ({model})", role, True, theirs))
        series.append(ours(f"{name}, ours", role, [results.spread(method, m) for m in METRICS]))
    chance = [(results.spread(CHANCE, metric) or NOTHING).mean for metric in METRICS]
    title = f"MMLU miscellaneous, {len(results.examples())} questions"
    return bars([Panel(title, list(METRICS.values()), series, chance)], figures / "mmlu", width=7.4)


def _paired(results: Results, metric: str) -> str:
    """The difference between the two methods, over the same questions."""
    found = spread(results.difference(ROPE_LIME, GSMILE, metric))
    if found is None:
        return ""
    return f"Paired difference, {ROPE_LIME} minus {GSMILE}: {found.mean:+.3f} {found.interval}."


def _quartiles(results: Results, method: str, metric: str) -> list[str]:
    values = results.values(method, metric)
    if not len(values):
        return [NONE] * 4
    least, low, middle, high, most = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    ends = [f"{least:.3f}", f"{most:.3f}"]
    return [cells.wide(spread(values)), f"{middle:.3f} [{high - low:.3f}]", *ends]
