"""The chances that verdicts and grounding are made of: logistic regressions, fitted to rows.

Every source of rows counts the same, however many rows it has, but for answers that are put together
out of two, which count a quarter. Only rows that are to be fitted to are.

Of a sentence: whether it comes from the prompt. Of an answer: whether it would be another one without
the features. Of its first part, where the answer has to do with the prompt at all: whether removing it
changes the answer or costs a quarter of the prompt's effect. Of the weights: whether their rank
correlation with what the answering model does under other ablations is at least 0.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.believe.items import GIVEN
from benchmarks.store import Row
from ropelime.errors import InputError
from ropelime.results.grounding import completed

INPUTS: Mapping[str, tuple[str, ...]] = {
    "grounded": ("explained", "covered", "answer_explained", "answer_covered", "foreign"),
    "rests": ("gain_most", "covered_most", "gain"),
    "cause": ("first",),
    "understood": ("gain_sum", "first"),
}
FOLLOWED = 0.6
_COUNTS = {"spliced": 0.25}  # these are put together and were never given
Example = tuple[str, Mapping[str, float], bool]  # source, inputs, whether it is so


def examples(found: Sequence[tuple[str, Row]], of: str, *, fitted: bool) -> Iterator[Example]:
    """What is known about a chance.

    Args:
        found: Rows, each with the name of its source.
        of: The chance.
        fitted: Whether to take the rows that are fitted to, or the others.
    """
    if of == "grounded" and fitted:
        yield from _spliced([row for source, row in found if source == "answers" and "inputs" in row])
    for source, row in found:
        if row["fit"] is not fitted or "inputs" not in row:
            continue
        if of == "grounded":
            for sentence in row.get("sentences", ()):
                if (true := grounded(row["kind"], sentence["label"])) is not None:
                    yield source, completed(sentence["inputs"]), true
        elif (true := _true(row, of)) is not None:
            yield source, row["inputs"], true


def _spliced(rows: Sequence[Row]) -> Iterator[Example]:
    """Answers with sentences that do not belong to them, put together out of two.

    An unrelated answer was explained beside the documents of the next prompt. Its sentences are put
    beside those of the answer that was given from these documents, as if one answer had both.
    """
    own = [row for row in rows if row["kind"] == "documents"]
    strange = {row["example"]: row for row in rows if row["kind"] == "unrelated"}
    for before, after in pairwise(own):
        other = strange.get(before["example"].replace("/documents", "/unrelated"))
        if other is None:
            continue
        both = [(s["inputs"], row is after) for row in (after, other) for s in row["sentences"]]
        whole = {
            f"answer_{name}": float(np.mean([known[name] for known, _ in both]))
            for name in ("explained", "covered")
        }
        for known, true in both:
            yield "spliced", completed({**known, **whole}), true


def grounded(kind: str, label: object) -> bool | None:
    """Whether a sentence comes from the prompt; None where that is not known."""
    if isinstance(label, bool):
        return label
    if label in ("unwanted", "fine"):
        return label == "fine"
    if kind in GIVEN:
        return {"supported": True, "not_supported": False}.get(str(label))
    return False if label == "not_supported" else None  # it was not given the documents


def _true(row: Row, of: str) -> bool | None:
    if of == "understood":
        return None if row["lds"] is None else row["lds"] >= FOLLOWED
    return None if row[of] is None else bool(row[of])


def learn(found: Sequence[tuple[str, Row]]) -> dict[str, dict[str, float]]:
    """The weights of every chance."""
    from sklearn.linear_model import LogisticRegression

    learnt = {}
    for of, names in INPUTS.items():
        known = list(examples(found, of, fitted=True))
        if len({true for *_, true in known}) < 2:
            raise InputError(f"The rows do not say when {of!r} is true and when it is not.")
        counts = Counter(source for source, *_ in known)
        weights = np.array([_COUNTS.get(source, 1.0) / counts[source] for source, *_ in known])
        x = np.array([[inputs[name] for name in names] for _, inputs, _ in known])
        model = LogisticRegression(C=10, max_iter=10_000)
        model.fit(x, [true for *_, true in known], sample_weight=weights * len(x) / weights.sum())
        values = (model.intercept_[0], *model.coef_[0])
        learnt[of] = {n: round(float(v), 3) for n, v in zip(("bias", *names), values, strict=True)}
    return learnt
