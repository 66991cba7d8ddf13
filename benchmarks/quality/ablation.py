"""The ablation: what each choice of the method does by itself, and the best combinations."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.pages import NONE, number, table
from benchmarks.quality import cells
from benchmarks.summary import Results, spread

_CHOICES = ("sampler", "target", "kernel", "regressor")
_COLUMNS = ("F1 [interval]", "IoU", "AUROC", "LDS", "tokens")
_BEST = 10


def tables(results: Results) -> list[str]:
    """A table for each choice, and one of the best combinations."""
    parts = {method: tuple(method.split(" | ")) for method in cells.methods(results)}
    parts = {method: p for method, p in parts.items() if len(p) == len(_CHOICES)}
    plain = {method: p for method, p in parts.items() if "," not in p[2]}
    context = results.header["context"]
    blocks = [cells.chance(results, None)]
    for place, choice in enumerate(_CHOICES):
        blocks += [f"### By {choice}, {context}", _marginal(results, plain, place)]
    spaces = {method: p for method, p in parts.items() if p[1] == "kl" and p[3] == "wls"}
    if spaces.keys() - plain.keys():
        note = "Only combinations with `kl` and `wls`, and the samplers that every kernel was run with."
        blocks += [f"### Spaces of the kernel, {context}", note, _marginal(results, spaces, 2)]
    order = ("f1", "iou", "lds")
    ranked = sorted(parts, key=lambda method: [-(results.mean(method, key) or 0) for key in order])
    rows = [[*parts[method], *_averages(results, [method])] for method in ranked[:_BEST]]
    title = f"### The {len(rows)} best by F1, {context}"
    return [*blocks, title, table([*_CHOICES, *_COLUMNS], rows)]


def _marginal(results: Results, parts: dict[str, tuple[str, ...]], place: int) -> str:
    """The effect of one choice, over the settings of the others that have all its alternatives."""
    options = list(dict.fromkeys(p[place] for p in parts.values()))
    others: dict[tuple[str, ...], dict[str, str]] = {}
    for method, p in parts.items():
        others.setdefault(p[:place] + p[place + 1 :], {})[p[place]] = method
    whole = [by_option for by_option in others.values() if len(by_option) == len(options)]
    rows = [
        [option, str(len(whole)), *_averages(results, [by_option[option] for by_option in whole])]
        for option in options
    ]
    return table([_CHOICES[place], "combinations", *_COLUMNS], rows)


def _averages(results: Results, methods: Sequence[str]) -> list[str]:
    """The columns for several methods together."""
    f1 = spread(results.averaged(methods, "f1"))
    row = [NONE if f1 is None else f"{f1.mean:.3f} {f1.interval}"]
    for key, style in (("iou", ".3f"), ("auroc", ".3f"), ("lds", ".3f"), ("tokens", ",.0f")):
        values = results.averaged(methods, key)
        row.append(number(float(values.mean()) if len(values) else None, style))
    return row
