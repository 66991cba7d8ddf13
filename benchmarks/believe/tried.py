"""Tables of what was tried for FaithBench and for citations, out of stored rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks import pages
from benchmarks.evaluation.labels import auroc
from benchmarks.pages import NONE, number
from benchmarks.store import Row
from ropelime.results.grounding import sentence_chance
from ropelime.typing import Floats, Masks

_SUMMARIES = 10  # of each document, numbered in a row
_OURS, _STEMS = "ours", "stems covered"
_FEW = ("pairs of words that no part has", "words that the best part lacks", "explained", "covered")
_WHICH = ("statement", "span")


def measures(own: Sequence[Row], more: Sequence[Row]) -> str:
    """How well each measure of a sentence tells unwanted ones, in two parts of the documents.

    Args:
        own: Rows of FaithBench with our chances.
        more: Rows of the same, each with some measures that were tried.
    """
    known = list(_sentences(own, more))
    if not known:
        return NONE
    unwanted = np.array([bad for *_, bad in known])
    half = np.array([document % 2 == 0 for document, *_ in known])
    names = dict.fromkeys(name for _, measured, _ in known for name in measured)
    values = {n: np.array([measured.get(n, np.nan) for _, measured, _ in known]) for n in names}
    lines = [_line(name, each, unwanted, half) for name, each in values.items()]
    few = {name: values[name] for name in _FEW if name in values}
    for name, some in ((f"logistic regression of {len(few)}", few), ("of all of them", values)):
        lines.append(_line(name, _fitted(list(some.values()), unwanted, half), unwanted, half))
    head = ["measure of a sentence", "sentences", "every second document", "the others", "all"]
    return pages.table(head, lines)


def _sentences(own: Sequence[Row], more: Sequence[Row]) -> Iterator[tuple[int, dict[str, float], bool]]:
    """The document, the measures and whether it is unwanted, of every sentence that has a chance."""
    for row in own:
        others = [r for r in more if r["example"] == row["example"] and "sentences" in r]
        _, batch, number = row["example"].split("/")
        for i, sentence in enumerate(row.get("sentences", ())):
            known = sentence["inputs"]
            found = {_OURS: 1 - sentence_chance(known)}
            found |= {name: 1 - known[name] for name in ("explained", "covered")}
            for other in others:
                found |= other["sentences"][i].get("tried", {})
            yield int(batch) + int(number) // _SUMMARIES, found, sentence["label"] == "unwanted"


def _line(name: str, values: Floats, unwanted: Masks, half: Masks) -> list[str]:
    there = np.isfinite(values)
    parts = (there & half, there & ~half, there)
    areas = [number(auroc(values[part], unwanted[part]), ".3f") for part in parts]
    return [name, str(int(there.sum())), *areas]


def _fitted(columns: Sequence[Floats], truth: Masks, half: Masks) -> Floats:
    """What a regression says of each half that was fitted to the other one."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.log1p(np.column_stack(columns).clip(0))
    there, said = np.isfinite(x).all(1), np.full(len(truth), np.nan)
    for which in (half, ~half):
        fitted, judged = there & ~which, there & which
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=10_000))
        said[judged] = model.fit(x[fitted], truth[fitted]).decision_function(x[judged])
    return said


def rankings(rows: Sequence[Row]) -> str:
    """How often the right passage is first by each ranking, for statements and for spans.

    Args:
        rows: Rows of citations; several may be about the same statement.
    """
    found: dict[str, dict[tuple[str, int], Row]] = {}
    for row in rows:
        for i, source in enumerate(row.get("sources", ())):
            own = {_OURS: source[_OURS]} if _OURS in source else {}
            for name, right in {**own, **source.get("tried", {})}.items():
                place = {"which": _WHICH[2 * i >= len(row["sources"])], "right": right}
                found.setdefault(name, {})[row["example"], i] = {**place, "part": _part(row)}
    columns = [(which, part) for which in _WHICH for part in ("dev", "test", "")]
    lines = []
    for name, each in found.items():
        some = list(each.values())
        means = [
            _mean([s["right"] for s in some if s["which"] == which and part in ("", s["part"])])
            for which, part in columns
        ]
        lines.append([name, str(len(some) // 2), *means])
    head = ["ranking", "spans", *(", ".join(filter(None, column)) for column in columns)]
    return pages.table(head, lines) if lines else NONE


def _part(row: Row) -> str:
    """The part of the data that a statement is in."""
    return str(row["example"].split("/")[1])


def _mean(right: Sequence[bool]) -> str:
    return number(float(np.mean(right)), ".3f") if right else NONE


def misses(rows: Sequence[Row]) -> Mapping[str, str]:
    """How often the passage with most of a statement's words is not the right one.

    Besides, how often it then has a run of these words that is at least as long as in the right one.
    """
    elsewhere = [
        source["literal"]
        for row in rows
        for source in row.get("sources", ())[: len(row.get("sources", ())) // 2]
        if _OURS not in source and not source["tried"][_STEMS]
    ]
    longer = sum(first >= right for first, right in elsewhere)
    return {"elsewhere": str(len(elsewhere)), "longer": str(longer)}
