"""Tables of what was tried for FaithBench and for citations, out of stored rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks import pages
from benchmarks.evaluation.labels import auroc
from benchmarks.pages import NONE, number
from benchmarks.store import Row
from ropelime.method.learnt import chance
from ropelime.typing import Floats, Masks

_OURS = "ours"
_SUMMARIES = 10  # of each document, numbered in a row
_FEW = ("words that no part has", "pairs of words that no part has", "surprise, sum", "explained")


def measures(rows: Sequence[Row]) -> str:
    """How well each measure of a sentence tells unwanted ones, by halves of the documents."""
    known = [(row, s) for row in rows for s in row.get("sentences", ()) if "tried" in s]
    if not known:
        return NONE
    unwanted = np.array([sentence["label"] == "unwanted" for _, sentence in known])
    half = np.array([_document(row) % 2 == 0 for row, _ in known])
    values = {"ours, 1 − the chance that it comes from the prompt": _numbers(known, _unlikely)}
    for name in known[0][1]["tried"]:
        values[name] = _numbers(known, lambda sentence: float(sentence["tried"][name]))  # noqa: B023
    explained = _numbers(known, lambda sentence: sentence["inputs"]["explained"])
    own = {**values, "explained": explained}
    four = [own[name] for name in _FEW]
    values["logistic regression of four of these"] = _fitted(four, unwanted, half)
    values["logistic regression of all of these"] = _fitted(list(own.values()), unwanted, half)
    parts = (half, ~half, half | ~half)
    lines = [
        [name, *(number(auroc(each[part], unwanted[part]), ".3f") for part in parts)]
        for name, each in values.items()
    ]
    head = ["measure of a sentence", "every second document", "the others", "all"]
    return pages.table(head, lines)


def _document(row: Row) -> int:
    """The number of the document that a row of FaithBench summarises; batches follow each other."""
    _, batch, at = row["example"].split("/")
    return int(batch) + int(at) // _SUMMARIES


def _numbers(known: Sequence[tuple[Row, Row]], of: Callable[[Row], float]) -> Floats:
    return np.array([of(sentence) for _, sentence in known], dtype=float)


def _unlikely(sentence: Row) -> float:
    return 1 - chance("grounded", sentence["inputs"])


def _fitted(columns: Sequence[Floats], truth: Masks, half: Masks) -> Floats:
    """What a regression says of each half that was fitted to the other one."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, said = np.log1p(np.column_stack(columns).clip(0)), np.zeros(len(truth))
    for which in (half, ~half):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=10_000))
        said[which] = model.fit(x[~which], truth[~which]).decision_function(x[which])
    return said


def rankings(rows: Sequence[Row]) -> str:
    """How often the right passage is first by each ranking, for statements and for spans."""
    found: dict[str, dict[tuple[str, int], list[bool]]] = {}
    for kind, which, source in _sources(rows):
        for name, right in {_OURS: source[_OURS], **source["tried"]}.items():
            found.setdefault(name, {}).setdefault((kind, which), []).append(right)
    if not found:
        return NONE
    columns = sorted({column for each in found.values() for column in each}, key=lambda c: (c[1], c[0]))
    names = {0: "the statement", 1: "the span"}
    head = ["ranking", *(f"{names[which]}, {kind}" for kind, which in columns), *names.values()]
    lines = []
    for name, each in found.items():
        means = [float(np.mean(each[column])) for column in columns]
        means += [_all(each, which) for which in names]
        lines.append([name, *(number(mean, ".3f") for mean in means)])
    return pages.table(head, lines)


def _sources(rows: Sequence[Row]) -> list[tuple[str, int, Row]]:
    """The part of the data, 0 for a statement or 1 for a span, and what was found."""
    return [
        (row["kind"], int(2 * i >= len(row["sources"])), source)
        for row in rows
        for i, source in enumerate(row.get("sources", ()))
        if "tried" in source
    ]


def _all(each: Mapping[tuple[str, int], list[bool]], which: int) -> float:
    return float(np.mean([right for (_, w), some in each.items() if w == which for right in some]))


def misses(rows: Sequence[Row]) -> str:
    """How many statements with another passage first have more of their words in a row there."""
    missed = [s for _, which, s in _sources(rows) if which == 0 and not s[_OURS]]
    same = sum(s["literal"][0] >= s["literal"][1] for s in missed)
    return f"{same} of {len(missed)}" if missed else NONE
