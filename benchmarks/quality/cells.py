"""Cells and rows that the tables of several experiments share."""

from __future__ import annotations

from benchmarks import paper
from benchmarks.names import CHANCE
from benchmarks.pages import NONE, number
from benchmarks.summary import METRICS, Results, Spread

# Beside the agreement with labels: a row's key, its column and its format.
COLUMNS = {
    "lds": ("LDS", ".3f"),
    "drop1": ("drop@1", ".2f"),
    "drop3": ("drop@3", ".2f"),
    "drop5": ("drop@5", ".2f"),
    "insertion": ("insertion", ".2f"),
    "deletion": ("deletion", ".2f"),
    "masks": ("masks", ".1f"),
    "tokens": ("tokens", ",.0f"),
    "seconds": ("seconds", ".3f"),
}
HEAD = ["method", *METRICS.values(), *(name for name, _ in COLUMNS.values())]


def full_rows(results: Results, group: str | None) -> list[list[str]]:
    """A row for each method with every column of ``HEAD``, then chance."""
    rows = [
        [
            method,
            *(wide(results.spread(method, metric, group)) for metric in METRICS),
            *(number(results.mean(method, key, group), style) for key, (_, style) in COLUMNS.items()),
        ]
        for method in methods(results)
    ]
    return [*rows, padded([CHANCE, *(number(results.mean(CHANCE, m, group)) for m in METRICS)])]


def methods(results: Results) -> list[str]:
    """Every method but chance."""
    return [method for method in results.rows if method != CHANCE]


def padded(row: list[str]) -> list[str]:
    """A row of ``HEAD`` of which only the first cells are known."""
    return row + [NONE] * (len(HEAD) - len(row))


def published(row: paper.Scores) -> list[str]:
    """The paper's IoU, F1 and AUROC."""
    return [f"{score.mean:.3f} ± {score.std:.3f}" for score in (row.iou, row.f1, row.auroc)]


def triple(results: Results, method: str, group: str | None) -> str:
    """IoU / F1 / AUROC."""
    return " / ".join(number(results.mean(method, metric, group)) for metric in METRICS)


def counted(results: Results, group: str) -> str:
    """How many examples a group has, and where metrics are undefined."""
    count = f"{len(results.examples(group))} examples; AUROC leaves out {results.all_gold(group)}"
    without = results.without_gold(group)
    return count + (f", IoU, F1 and AUROC leave out {without} without gold." if without else ".")


def chance(results: Results, group: str | None) -> str:
    """What a random ranking reaches."""
    return f"Chance: {triple(results, CHANCE, group)} (IoU / F1 / AUROC)."


def wide(value: Spread | None) -> str:
    """Mean ± std [interval]."""
    return NONE if value is None else f"{value.mean:.3f} ± {value.std:.3f} {value.interval}"
