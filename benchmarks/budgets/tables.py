"""The tables of the budget page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import pages, paper
from benchmarks.budgets.names import INTERVALS
from benchmarks.names import (
    CHANCE,
    CONTEXTCITE,
    EVIDENCE,
    FAITHFUL,
    INSTANT,
    LEAVE_ONE_OUT,
    LEAVE_ONE_OUT_CACHED,
    LEAVE_ONE_OUT_EXACT,
    LEXICAL,
    PAPER,
    cached,
    exact,
)
from benchmarks.pages import NONE, table
from benchmarks.summary import METRICS, Results

_CONTEXTS = {"all": "all ten paragraphs", "gold": "gold paragraphs", "twice": "gold paragraphs twice"}


def model(one: Results) -> str:
    """The name of the surrogate of a results file."""
    return Path(str(one.header["surrogate"]["name"])).stem


def label(one: Results) -> str:
    """The surrogate and the context of a results file."""
    context = str(one.header["context"])
    return f"{model(one)}, {_CONTEXTS.get(context, f'about {context} sentences')}"


def origin(one: Results) -> str:
    """A heading, the command, and what it ran with."""
    facts = one.header["surrogate"]
    text = f"{len(one.examples())} examples; {facts.get('dtype')} on {facts.get('device')}; seed "
    text += f"{one.header['seed']}."
    renewed = one.header.get("renewed_with") or facts
    if renewed["name"] != facts["name"]:
        text += f" The surrogate of the renewed rows is called {renewed['name']}."
    if one.missing:
        text += f" **Not finished: {one.missing} examples are missing.**"
    return pages.blocks(f"### {label(one)}", pages.made_by(one.header), text)


def tokens_share(one: Results, name: str, key: str) -> float:
    """Tokens of a method over those of ContextCite's estimator with 64 masks."""
    ours, theirs = one.mean(name, key), one.mean(CONTEXTCITE, "tokens")
    return (ours or 0.0) / theirs if theirs else float("nan")


def quality(one: Results, methods: Sequence[str] | None = None) -> str:
    """Metrics and tokens of some methods, or of all, then rankings by words and chance."""
    rows = []
    for name in methods or one.rows:
        tokens = one.mean(name, "tokens")
        if tokens is None:
            continue
        cells = [_wide(one, name, metric) for metric in ("f1", "auroc", "lds")]
        run = one.mean(name, "run")
        counts = [f"{tokens:,.0f}", f"{tokens_share(one, name, 'tokens'):.3f}"]
        if run is None:
            counts += [NONE, NONE]
        else:
            counts += [f"{run:,.0f}", f"{tokens_share(one, name, 'run'):.3f}"]
        rows.append([name, *cells, f"{one.mean(name, 'masks'):.0f}", *counts])
    for name in (m for m in LEXICAL if m in one.rows):
        rows.append([name, _wide(one, name, "f1"), _wide(one, name, "auroc"), *[NONE] * 6])
    chance = [f"{one.mean(CHANCE, 'f1') or 0:.3f}", f"{one.mean(CHANCE, 'auroc') or 0:.3f}"]
    rows.append([CHANCE, *chance, *[NONE] * 6])
    counts = ["tokens", "relative", "tokens run", "relative"]
    return table(["method", "F1", "AUROC", "LDS", "masks", *counts], rows)


def by_bucket(one: Results) -> str:
    """IoU of each bucket beside the paper's 8B model."""
    names = [EVIDENCE, INSTANT, LEAVE_ONE_OUT_CACHED, LEAVE_ONE_OUT, CONTEXTCITE, FAITHFUL, PAPER]
    names = [m for m in (*names, *LEXICAL, CHANCE) if m in one.rows]
    rows = []
    for group in one.buckets():
        cells = [f"{one.mean(name, 'iou', group) or float('nan'):.3f}" for name in names]
        published = f"{paper.SPARSE_K[group].iou.mean:.3f}"
        rows.append([group, str(len(one.examples(group))), *cells, published])
    head = ["sentences", "examples", *names, f"paper, {paper.HOTPOTQA_MODEL}"]
    return pages.blocks(f"{METRICS['iou']} by number of sentences:", table(head, rows))


def by_length(found: Sequence[Results]) -> str:
    """A few methods of one surrogate as contexts grow."""
    rows = []
    for one in found:
        features = np.mean([row["features"] for row in one.examples()])
        for name in (EVIDENCE, INSTANT, FAITHFUL, cached(128), exact(64), CONTEXTCITE):
            if name not in one.rows:
                continue
            cells = [_wide(one, name, metric) for metric in ("f1", "auroc", "lds")]
            counts = [f"{one.mean(name, key) or 0:,.0f}" for key in ("tokens", "run")]
            rows.append([f"{features:.0f}", str(len(one.examples())), name, *cells, *counts])
        for name in (m for m in LEXICAL if m in one.rows):
            cells = [_wide(one, name, metric) for metric in ("f1", "auroc")]
            rows.append([f"{features:.0f}", str(len(one.examples())), name, *cells, *[NONE] * 3])
    head = ["sentences", "examples", "method", "F1", "AUROC", "LDS", "tokens", "tokens run"]
    command = pages.blocks(*(pages.made_by(one.header) for one in found))
    return pages.blocks(f"### {model(found[0])}", command, table(head, rows))


def by_ablation(ten: Results, in_place: Results) -> str:
    """Leave-one-out with cached scores, with exact ones, and with exact ones in place."""
    known = {row["example"] for row in in_place.examples()}
    same = {m: [r for r in rows if r["example"] in known] for m, rows in ten.rows.items()}
    ten = replace(ten, rows=same)
    rows = []
    for how, source, name in (
        ("hidden from question and answer only (cached)", ten, LEAVE_ONE_OUT_CACHED),
        ("hidden from all tokens after it (exact, in place)", in_place, LEAVE_ONE_OUT_EXACT),
        ("deleted, and later tokens move up (exact)", ten, LEAVE_ONE_OUT_EXACT),
    ):
        cells = [_wide(source, name, metric) for metric in ("f1", "auroc")]
        rows.append([how, *cells, f"{source.mean(name, 'run') or 0:,.0f}"])
    head = ["the removed sentence is", "F1", "AUROC", "tokens run"]
    note = "Cached and deleted: the same examples, from the run above."
    return pages.blocks(origin(in_place), note, table(head, rows))


def intervals(one: Results) -> str:
    """How many features the intervals cover, and how wide they are."""
    rows = []
    for name in INTERVALS:
        covered = one.spread(name, "covered")
        if covered is not None:
            width, reach = one.values(name, "halfwidth"), one.values(name, "reach")
            cells = [_wide(one, name, "covered"), f"{np.median(width):.2f}", f"{np.median(reach):.2f}"]
            rows.append([name, str(covered.n), *cells])
    head = ["method", "examples", "coverage", "width (median)", "reach (median)"]
    return pages.blocks(f"**{label(one)}**", table(head, rows))


def _wide(one: Results, name: str, metric: str) -> str:
    value = one.spread(name, metric)
    return NONE if value is None else f"{value.mean:.3f} {value.interval}"
