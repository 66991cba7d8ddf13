"""The sections of the report, each as blocks of Markdown: our figures, the paper's, and chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks import figures, paper
from benchmarks.runner import CHANCE
from benchmarks.summary import METRICS, Results, Spread, spread
from benchmarks.targets import CONTEXTCITE, Target, interval
from ropelime.method.samplers import SPARSE_K_SETTINGS

# Beside the agreement with labels: a row's key, its column and how it is written.
_COLUMNS = {
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
_HEAD = ["method", *METRICS.values(), *(name for name, _ in _COLUMNS.values())]
_CHOICES = ("sampler", "target", "kernel", "regressor")
_COMBINED = ("F1 [interval]", "IoU", "AUROC", "LDS", "tokens")
_BEST = 10
_NONE = "–"


def hotpotqa(results: Results) -> list[str]:
    """One table for all ten paragraphs; for gold ones a summary, a figure and a table per bucket."""
    return _gold(results) if results.header["context"] == "gold" else _all(results)


def sweep(results: Results) -> list[str]:
    """Our three best settings beside the paper's, and the grid, for each bucket."""
    blocks = [
        "The first three settings (k, c) by F1, as in the paper's tables, beside the paper's. Settings "
        "with the same figures and tokens in every example share a rank. Below them IoU for the whole "
        "grid. For 9-11 sentences the paper's table of best settings names the second of its sweep.",
        "![IoU of every setting; each panel has its own scale](figures/sweep.svg)",
    ]
    for group in results.buckets():
        rows = []
        pairs = zip(_ranked(results, group), paper.SWEEP[group], strict=False)
        for rank, (same, published) in enumerate(pairs, start=1):
            names = " = ".join(paper.label(setting) for setting in same)
            ours = [_wide(results.spread(same[0], metric, group)) for metric in METRICS]
            masks = _number(results.mean(same[0], "masks", group), ".1f")
            theirs = [paper.label(published.setting), *_published(published)]
            rows.append([str(rank), names, *ours, masks, *theirs])
        means, sizes, counts = figures.grid(results, group)
        cells = [
            [size, *(_NONE if np.isnan(mean) else f"{mean:.3f}" for mean in line)]
            for size, line in zip(sizes, means, strict=True)
        ]
        blocks += [
            f"### Sweep, {group} sentences",
            f"{_counted(results, group)} {_chance(results, group)}",
            markdown(["rank", "ours", *METRICS.values(), "masks", "paper", *METRICS.values()], rows),
            markdown(["IoU: k \\ c", *counts], cells),
        ]
    return blocks


def mmlu(results: Results) -> list[str]:
    """A table for each metric, and one of what a question costs."""
    blocks = [
        "The labels are ours: one annotator, a language model, read each question with its options and "
        "its answer and chose five words, before any attribution was computed "
        "(`bench/mmlu_labels.json`). They were not made by people, and they are not the paper's, which "
        "are not public: its rows rest on other labels and perhaps on other questions.",
        "![IoU, F1 and AUROC on MMLU](figures/mmlu.svg)",
    ]
    published = {
        "paper, gSMILE, gpt-4o-mini": paper.MMLU_CLOSED,
        "paper, RoPE-LIME, Qwen-8B": paper.MMLU_OPEN,
    }
    for metric, name in METRICS.items():
        rows = [[method, *_quartiles(results, method, metric)] for method in _ours(results)]
        for label, table in published.items():
            p = table[metric]
            middle = f"{p.median:.3f} [{p.iqr:.3f}]"
            rows.append([label, f"{p.mean:.3f} ± {p.std:.3f}", middle, f"{p.min:.3f}", f"{p.max:.3f}"])
        rows.append([CHANCE, _number(results.mean(CHANCE, metric)), _NONE, _NONE, _NONE])
        head = ["method", "mean ± std [interval]", "median [IQR]", "min", "max"]
        blocks += [f"### MMLU, {name}", markdown(head, rows)]
    shown = ("lds", "masks", "tokens", "seconds")
    costs = [
        [method, _number(results.mean(method, "generations") or 0, "g")]
        + [_number(results.mean(method, key), _COLUMNS[key][1]) for key in shown]
        for method in _ours(results)
    ]
    return [
        *blocks,
        "### MMLU, cost of a question",
        "The answer is given here, so only gSMILE generates. In use the others need the one answer "
        "that they explain.",
        markdown(["method", "generations", *(_COLUMNS[key][0] for key in shown)], costs),
    ]


def ablation(results: Results) -> list[str]:
    """What each choice does by itself, and the best combinations."""
    parts = {method: tuple(method.split(" | ")) for method in _ours(results)}
    parts = {method: p for method, p in parts.items() if len(p) == len(_CHOICES)}
    plain = {method: p for method, p in parts.items() if "," not in p[2]}
    context = results.header["context"]
    blocks = [
        "Each table gives the mean over all combinations of the other choices and over all examples. "
        + _chance(results, None)
    ]
    for place, choice in enumerate(_CHOICES):
        blocks += [f"### By {choice}, {context}", _marginal(results, plain, place)]
    spaces = {method: p for method, p in parts.items() if p[1] == "kl" and p[3] == "wls"}
    if spaces.keys() - plain.keys():
        note = "Only combinations with `kl` and `wls`, and the samplers that every kernel was run with."
        blocks += [f"### Spaces of the kernel, {context}", note, _marginal(results, spaces, 2)]
    order = ("f1", "iou", "lds")
    best = sorted(parts, key=lambda method: [-(results.mean(method, key) or 0) for key in order])[
        :_BEST
    ]
    rows = [[*parts[method], *_combined(results, [method])] for method in best]
    return [
        *blocks,
        f"### The {len(best)} best by F1, {context}",
        markdown([*_CHOICES, *_COMBINED], rows),
    ]


def verdicts(found: Sequence[Target]) -> list[str]:
    """What was to be reached, and whether it was."""
    if not found:
        return ["None of the results that targets were set for was given."]
    rows = [[t.what, t.required, t.ours or _NONE, t.interval or _NONE, t.verdict] for t in found]
    return [
        "A target is reached or missed by the mean. *Within the interval* marks those where the 90 % "
        "bootstrap interval holds the required value. Differences are paired by example.",
        markdown(["target", "required", "ours", "90 % interval", "verdict"], rows),
    ]


def _gold(results: Results) -> list[str]:
    groups = results.buckets()
    best, plain = f"paper, best Sparse-K, {paper.HOTPOTQA_MODEL}", f"paper, LOO, {paper.HOTPOTQA_MODEL}"
    rows = [[m, *(_triple(results, m, group) for group in groups)] for m in results.rows]
    for name, table in ((best, paper.SPARSE_K), (plain, paper.LEAVE_ONE_OUT)):
        scores = [(table[group].iou, table[group].f1, table[group].auroc) for group in groups]
        rows.append(
            [
                name,
                *(" / ".join(f"{score.mean:.3f}" for score in three) for three in scores),
            ]
        )
    blocks = [
        "IoU / F1 / AUROC, examples by their number of sentences:",
        markdown(["method", *groups], rows),
        "![IoU, F1 and AUROC by number of sentences](figures/hotpotqa.svg)",
    ]
    for group in groups:
        setting = paper.label(paper.SPARSE_K[group].setting)
        published = [
            _padded([f"{best} {setting}", *_published(paper.SPARSE_K[group])]),
            _padded([plain, *_published(paper.LEAVE_ONE_OUT[group])]),
        ]
        table_rows = _full_rows(results, group) + published
        blocks += [
            f"### Gold, {group} sentences",
            _counted(results, group),
            markdown(_HEAD, table_rows),
        ]
    return blocks


def _all(results: Results) -> list[str]:
    full = results.mean(CONTEXTCITE, "tokens")
    rows = _full_rows(results, None)
    for row in rows:
        tokens = results.mean(row[0], "tokens")
        row.append(_NONE if not full or tokens is None else f"{tokens / full:.2f}")
    return ["The paper has no such table.", markdown([*_HEAD, f"tokens / {CONTEXTCITE}"], rows)]


def _full_rows(results: Results, group: str | None) -> list[list[str]]:
    rows = [
        [
            method,
            *(_wide(results.spread(method, metric, group)) for metric in METRICS),
            *(_number(results.mean(method, key, group), style) for key, (_, style) in _COLUMNS.items()),
        ]
        for method in _ours(results)
    ]
    return [*rows, _padded([CHANCE, *(_number(results.mean(CHANCE, m, group)) for m in METRICS)])]


def _ranked(results: Results, group: str) -> list[list[str]]:
    """Settings from the best F1 on; those with the same figures and tokens throughout are together."""
    same: dict[tuple[object, ...], list[str]] = {}
    for method in (m for m in SPARSE_K_SETTINGS if m in results.rows):
        rows = [row for row in results.rows[method] if row["group"] == group]
        key = tuple(row.get(column) for row in rows for column in (*METRICS, "tokens"))
        same.setdefault(key, []).append(method)
    order = ("f1", "auroc", "iou")
    return sorted(
        same.values(), key=lambda m: [-(results.mean(m[0], key, group) or 0) for key in order]
    )


def _quartiles(results: Results, method: str, metric: str) -> list[str]:
    values = results.values(method, metric)
    if not len(values):
        return [_NONE] * 4
    least, low, middle, high, most = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    return [_wide(spread(values)), f"{middle:.3f} [{high - low:.3f}]", f"{least:.3f}", f"{most:.3f}"]


def _marginal(results: Results, parts: dict[str, tuple[str, ...]], place: int) -> str:
    """The effect of one choice, over the settings of the others that have all its alternatives."""
    options = list(dict.fromkeys(p[place] for p in parts.values()))
    others: dict[tuple[str, ...], dict[str, str]] = {}
    for method, p in parts.items():
        others.setdefault(p[:place] + p[place + 1 :], {})[p[place]] = method
    whole = [by_option for by_option in others.values() if len(by_option) == len(options)]
    rows = [
        [option, str(len(whole)), *_combined(results, [by_option[option] for by_option in whole])]
        for option in options
    ]
    return markdown([_CHOICES[place], "combinations", *_COMBINED], rows)


def _combined(results: Results, methods: Sequence[str]) -> list[str]:
    """The figures of several methods together."""
    f1 = spread(results.averaged(methods, "f1"))
    cells = [_NONE if f1 is None else f"{f1.mean:.3f} {interval(f1)}"]
    for key, style in (("iou", ".3f"), ("auroc", ".3f"), ("lds", ".3f"), ("tokens", ",.0f")):
        values = results.averaged(methods, key)
        cells.append(_number(float(values.mean()) if len(values) else None, style))
    return cells


def _counted(results: Results, group: str) -> str:
    counted = f"{len(results.examples(group))} examples; AUROC leaves out {results.all_gold(group)}"
    without = results.without_gold(group)
    return counted + (f", IoU, F1 and AUROC leave out {without} without gold." if without else ".")


def _chance(results: Results, group: str | None) -> str:
    return f"Chance: {_triple(results, CHANCE, group)} (IoU / F1 / AUROC)."


def _triple(results: Results, method: str, group: str | None) -> str:
    return " / ".join(_number(results.mean(method, metric, group)) for metric in METRICS)


def _ours(results: Results) -> list[str]:
    return [method for method in results.rows if method != CHANCE]


def _published(row: paper.Scores) -> list[str]:
    return [f"{score.mean:.3f} ± {score.std:.3f}" for score in (row.iou, row.f1, row.auroc)]


def _padded(row: list[str]) -> list[str]:
    return row + [_NONE] * (len(_HEAD) - len(row))


def _wide(value: Spread | None) -> str:
    """Mean ± std [interval]."""
    return _NONE if value is None else f"{value.mean:.3f} ± {value.std:.3f} {interval(value)}"


def _number(value: float | None, style: str = ".3f") -> str:
    return _NONE if value is None else f"{value:{style}}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
