"""Results of ``python -m benchmarks believe`` become ``docs/results/believe.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.believe import fit, intervals, tried
from benchmarks.believe.items import GIVEN
from benchmarks.evaluation.labels import auroc
from benchmarks.pages import NONE, number
from benchmarks.plots import Curve, CurvePanel, curves
from benchmarks.store import Row, read
from ropelime.method.learnt import chance
from ropelime.results.grounding import sentence_chance
from ropelime.typing import Floats

_NAMES = {
    "grounded": "a sentence comes from the prompt",
    "rests": "the answer rests on the prompt",
    "cause": "the first part is a cause",
    "understood": "the surrogate follows the answer",
}
_SOURCES = {
    "asked": "asked again",
    "answers": "with documents, from memory, unrelated",
    "short": "short facts",
    "lfqa": "long answers",
    "agentdyn": "calls of agents",
}
_BINS = 5
_DRAWS = 2000  # of truths, if the chances were perfect
_BASE = "gemma"  # the base model continues its prompt and does not answer it

Found = Sequence[tuple[str, Row]]
Judged = tuple[Floats, Floats]  # chances, and whether it was so


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page.

    Args:
        paths: Results files of ``python -m benchmarks believe``.
        docs: The folder of the page.
    """
    files = [(path, *read(path)) for path in sorted(paths)]
    own = [each for each in files if each[1]["preset"] == "evidence"]
    rows = {header["kind"]: _once(own, header["kind"]) for _, header, _ in own}
    found = [(kind, row) for kind, some in rows.items() for row in some if "inputs" in row]
    figure = docs / "figures" / "reliability"
    drawn = curves([_panel(of, found) for of in _NAMES], figure)
    page = pages.write(
        docs,
        "believe",
        files=pages.files(paths),
        commands=pages.commands(*(header["command"] for _, header, _ in files)),
        calibration=_calibration(found),
        base=_base(found),
        grounding=_grounding(rows),
        trust=_trust(rows.get("short", ())),
        intervals=intervals.shares(files),
        fitted=intervals.fitted(files),
        measures=tried.measures(rows.get("faithbench", ()), _all(files, "faithbench")),
        rankings=tried.rankings(_all(files, "citations")),
        **tried.misses(_all(files, "citations")),
    )
    return [page, *drawn]


def _all(files: Sequence[intervals.File], kind: str) -> list[Row]:
    return [row for _, header, rows in files if header["kind"] == kind for row in rows]


def _once(files: Sequence[intervals.File], kind: str) -> list[Row]:
    """The rows of a kind; of an example that two files have, that of the larger one."""
    smaller_first = sorted(files, key=lambda file: len(file[2]))
    return list({row["example"]: row for row in _all(smaller_first, kind)}.values())


def _judged(found: Found, of: str, *, base: bool = False) -> dict[str, Judged]:
    """Chances and truth of the rows that nothing was fitted to, by source and of all."""
    known = [
        (source, sentence_chance(inputs) if of == "grounded" else chance(of, inputs), true)
        for source, inputs, true in fit.examples(
            [(s, r) for s, r in found if (_BASE in r["kind"]) is base], of, fitted=False
        )
        if source in _SOURCES
    ]
    split: dict[str, Judged] = {}
    for source in (*_SOURCES, "all"):
        some = [(p, true) for s, p, true in known if source in (s, "all")]
        if some:
            chances, truth = np.array(some, dtype=float).T
            split[source] = chances, truth
    return split


def _error(chances: Floats, truth: Floats) -> float:
    """Expected calibration error over bins of equal size."""
    bins = np.array_split(np.argsort(chances, kind="stable"), _BINS)
    return float(
        sum(abs(chances[b].mean() - truth[b].mean()) * len(b) for b in bins if len(b)) / len(truth)
    )


def _by_chance(chances: Floats) -> Floats:
    """(draws,) the calibration errors that perfect chances have, by the luck of so few answers."""
    truths = np.random.default_rng(17).random((_DRAWS, len(chances))) < chances
    return np.array([_error(chances, truth) for truth in truths])


def _line(of: str, source: str, judged: Judged) -> list[str]:
    chances, truth = judged
    luck = _by_chance(chances)
    return [
        _NAMES[of],
        _SOURCES.get(source, source),
        str(len(truth)),
        number(float(truth.mean()), ".2f"),
        number(float(chances.mean()), ".2f"),
        number(auroc(chances, truth > 0.5), ".3f"),
        number(_error(chances, truth), ".3f"),
        number(float(luck.mean()), ".3f"),
        number(float(np.quantile(luck, 0.95)), ".3f"),
    ]


_HEAD = (
    "it is said that", "answers", "count", "true", "mean chance", "AUROC", "calibration error",
    "of perfect chances", "at most",
)  # fmt: skip


def _calibration(found: Found) -> str:
    lines = [
        _line(of, source, judged) for of in _NAMES for source, judged in _judged(found, of).items()
    ]
    return pages.table(list(_HEAD), lines)


def _base(found: Found) -> str:
    lines = [
        _line(of, "asked", judged["asked"])
        for of in _NAMES
        if "asked" in (judged := _judged(found, of, base=True))
    ]
    return pages.table(list(_HEAD), lines) if lines else NONE


def _panel(of: str, found: Found) -> CurvePanel:
    lines = [Curve("perfect calibration", (0.0, 1.0), (0.0, 1.0))]
    judged = _judged(found, of).get("all")
    if judged is not None:
        chances, truth = judged
        bins = np.array_split(np.argsort(chances, kind="stable"), min(2 * _BINS, len(truth)))
        means = [(chances[b].mean(), truth[b].mean()) for b in bins]
        x, y = np.array(means).T
        lines.append(Curve("judged", x.tolist(), y.tolist()))
    return CurvePanel(_NAMES[of], "chance", "how often true", lines, log="")


def _grounding(rows: Mapping[str, Sequence[Row]]) -> str:
    """How well sentences with a source are separated from others, beside what words alone tell."""
    lines = []
    given = [
        (row, sentence)
        for row in rows.get("lfqa", ())
        if not row["fit"]
        for sentence in row.get("sentences", ())
    ]
    supported = [
        (sentence, sentence["label"] == "supported")
        for row, sentence in given
        if row["kind"] in GIVEN and sentence["label"] != "disagreed"
    ]
    memory = [
        (s, row["kind"] == "gpt3_wdoc") for row, s in given if row["kind"] in ("gpt3", "gpt3_wdoc")
    ]
    unwanted = [
        (sentence, sentence["label"] == "fine")
        for row in rows.get("faithbench", ())
        for sentence in row.get("sentences", ())
    ]
    for name, target, some in (
        ("long answers with documents: supported or not", "0.91", supported),
        ("long answers of one model: documents or memory", "0.94", memory),
        ("FaithBench: unwanted or not", "0.75", unwanted),
    ):
        if some:
            truth = np.array([true for _, true in some])
            ours = np.array([sentence_chance(s["inputs"]) for s, _ in some])
            baselines = [np.array([s[key] for s, _ in some]) for key in ("covered", "common")]
            areas = [number(auroc(each, truth), ".3f") for each in (ours, *baselines)]
            lines.append([name, str(len(some)), *areas, target])
    sources = [row["sources"] for row in rows.get("citations", ()) if row.get("sources")]
    for name, target, half in (
        ("citations, right passage first: the statement", "0.94", 0),
        ("citations, right passage first: the span", "0.85", 1),
    ):
        first = [s for each in sources for s in each[half * len(each) // 2 :][: len(each) // 2]]
        if first:
            means = [float(np.mean([s[key] for s in first])) for key in ("ours", "bm25")]
            cells = [number(mean, ".3f") for mean in means]
            lines.append([name, str(len(first)), *cells, NONE, target])
    head = ["", "count", "ours", "words covered, or BM25", "longest common run", "target"]
    return pages.table(head, lines) if lines else NONE


def _trust(rows: Sequence[Row]) -> str:
    """Trust of right answers, wrong ones, and right ones beside an unrelated context."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if not row["fit"] and "inputs" in row:
            found.setdefault(row["kind"], []).append(_least(row))
    if "right" not in found:
        return NONE
    lines = []
    for kind, values in found.items():
        truth = np.array([True] * len(found["right"]) + [False] * len(values))
        area = None if kind == "right" else auroc(np.array([*found["right"], *values]), truth)
        lines.append(
            [kind, str(len(values)), number(float(np.mean(values)), ".2f"), number(area, ".3f")]
        )
    return pages.table(["answer", "count", "mean trust", "AUROC against right ones"], lines)


def _least(row: Row) -> float:
    """Trust, of a row with one sentence."""
    grounded = max(sentence_chance(sentence["inputs"]) for sentence in row["sentences"])
    known = row["inputs"]
    cause = grounded * chance("cause", known)
    return min(chance("rests", known), cause, chance("understood", known))
