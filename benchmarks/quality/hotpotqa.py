"""HotpotQA: Sparse-K, leave-one-out and the peers' estimators on sentences."""

from __future__ import annotations

from pathlib import Path

from benchmarks import paper
from benchmarks.names import CHANCE, CONTEXTCITE, LEAVE_ONE_OUT, SPARSE_K, SPARSE_K_EQUAL
from benchmarks.pages import NONE, table
from benchmarks.plots import NOTHING, Panel, Series, bars, ours
from benchmarks.quality import cells
from benchmarks.summary import METRICS, Results

_BEST, _LOO = (f"paper, {name}, {paper.HOTPOTQA_MODEL}" for name in ("best Sparse-K", "LOO"))


def tables(results: Results) -> list[str]:
    """One table for all ten paragraphs; for gold ones a summary, a figure and a table per bucket."""
    return _gold(results) if results.header["context"] == "gold" else _all(results)


def draw(results: Results, figures: Path) -> list[Path]:
    """Redraw the paper's second figure: Sparse-K against leave-one-out by number of sentences."""
    groups = results.buckets()
    compared = (
        ("Sparse-K", "method", SPARSE_K, paper.SPARSE_K),
        ("LOO", "baseline", LEAVE_ONE_OUT, paper.LEAVE_ONE_OUT),
    )
    panels = []
    for metric, title in METRICS.items():
        series = []
        for name, role, method, printed in compared:
            theirs = [getattr(printed[group], metric).mean for group in groups]
            series.append(Series(f"{name}, paper ({paper.HOTPOTQA_MODEL})", role, True, theirs))
            spreads = [results.spread(method, metric, group) for group in groups]
            series.append(ours(f"{name}, ours", role, spreads))
        chance = [(results.spread(CHANCE, metric, group) or NOTHING).mean for group in groups]
        panels.append(Panel(title, groups, series, chance, "sentences in the gold paragraphs"))
    return bars(panels, figures / "hotpotqa", width=4.6)


def _gold(results: Results) -> list[str]:
    groups = results.buckets()
    rows = [[m, *(cells.triple(results, m, group) for group in groups)] for m in results.rows]
    for name, printed in ((_BEST, paper.SPARSE_K), (_LOO, paper.LEAVE_ONE_OUT)):
        scores = [(printed[group].iou, printed[group].f1, printed[group].auroc) for group in groups]
        rows.append([name, *(" / ".join(f"{one.mean:.3f}" for one in three) for three in scores)])
    blocks = [
        "IoU / F1 / AUROC by number of sentences:",
        table(["method", *groups], rows),
        "![IoU, F1 and AUROC by number of sentences](figures/hotpotqa.svg)",
    ]
    for group in groups:
        setting = paper.label(paper.SPARSE_K[group].setting)
        theirs = [
            cells.padded([f"{_BEST} {setting}", *cells.published(paper.SPARSE_K[group])]),
            cells.padded([_LOO, *cells.published(paper.LEAVE_ONE_OUT[group])]),
        ]
        blocks += [
            f"### Gold, {group} sentences",
            f"{cells.counted(results, group)} {_same(results, group)}".strip(),
            table(cells.HEAD, cells.full_rows(results, group) + theirs),
        ]
    return blocks


def _same(results: Results, group: str) -> str:
    """In how many examples Sparse-K with leave-one-out's tokens is leave-one-out."""
    pairs = [
        (a, b)
        for a, b in zip(
            results.rows.get(SPARSE_K_EQUAL, []), results.rows.get(LEAVE_ONE_OUT, []), strict=False
        )
        if a["group"] == group
    ]
    varying = {"method": None, "seconds": None}
    same = sum({**a, **varying} == {**b, **varying} for a, b in pairs)
    if not same:
        return ""
    return (
        f"`{SPARSE_K_EQUAL}` equals `{LEAVE_ONE_OUT}` in every metric and in its tokens in {same} of "
        f"{len(pairs)} examples."
    )


def _all(results: Results) -> list[str]:
    full = results.mean(CONTEXTCITE, "tokens")
    rows = cells.full_rows(results, None)
    for row in rows:
        tokens = results.mean(row[0], "tokens")
        row.append(NONE if not full or tokens is None else f"{tokens / full:.2f}")
    return [table([*cells.HEAD, f"tokens / {CONTEXTCITE}"], rows)]
