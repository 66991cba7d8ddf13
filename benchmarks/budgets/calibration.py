"""Whether trust is calibrated, and whether it separates bad explanations from good ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.evaluation.labels import Labels, auroc
from benchmarks.names import EVIDENCE, FAITHFUL
from benchmarks.store import Row
from benchmarks.summary import Results
from ropelime.results.diagnostics import estimate
from ropelime.typing import Floats

_BINS = 5
_FOLDS = 10
# What each preset's trust is made of, and the metric that it predicts.
INDICATORS = {EVIDENCE: ("share", "drop"), FAITHFUL: ("share", "cv_correlation")}
PREDICTED = {EVIDENCE: "first", FAITHFUL: "lds"}


@dataclass(frozen=True)
class Calibration:
    """Trust against the metric that it predicts.

    Attributes:
        trust: Mean trust of each bin.
        actual: Mean of the predicted metric there.
        counts: Explanations in each bin.
        worst: Area under the ROC curve with which trust separates the worst fifth from the rest.
        by_f1: The same for the worst fifth by F1; None where another metric is predicted.
        fitted: Intercept and coefficients of a fit to these results.
        crossed: The same area as ``worst`` by cross-validation.
    """

    trust: Floats
    actual: Floats
    counts: list[int]
    worst: float
    by_f1: float | None
    fitted: Floats
    crossed: float


def calibration(results: Results, method: str) -> Calibration | None:
    """Compare trust with the rows of a results file; None where it has too few of them."""
    rows = [r for r in results.rows.get(method, []) if r.get(PREDICTED[method]) is not None]
    if len(rows) < 2 * _FOLDS:
        return None
    trust = np.array([_trust(row, method) for row in rows])
    actual = np.array([row[PREDICTED[method]] for row in rows], dtype=float)
    worst = _worst(rows, method)
    bins = np.array_split(np.argsort(trust, kind="stable"), _BINS)
    x = np.array([[row[f"by_{name}"] for name in INDICATORS[method]] for row in rows], dtype=float)
    fold = np.random.default_rng(0).permutation(len(rows)) % _FOLDS
    crossed = np.zeros(len(rows))
    for number in range(_FOLDS):
        inside = fold == number
        crossed[inside] = _apply(_fit(x[~inside], actual[~inside], method), x[inside], method)
    return Calibration(
        np.array([trust[b].mean() for b in bins]),
        np.array([actual[b].mean() for b in bins]),
        [len(b) for b in bins],
        auroc(-trust, worst) or 0.0,
        auroc(-trust, _worst(rows, method, by_f1=True)) if method == EVIDENCE else None,
        _fit(x, actual, method),
        auroc(-crossed, worst) or 0.0,
    )


def _trust(row: Row, method: str) -> float:
    known = {name.removeprefix("by_"): v for name, v in row.items() if name.startswith("by_")}
    leave_one_out = method == EVIDENCE and row["masks"] <= row["features"] + 2
    return estimate(known, leave_one_out=leave_one_out)


def _worst(rows: list[Row], method: str, *, by_f1: bool = False) -> Labels:
    """The worst fifth: by LDS; or those whose first feature is not gold, or by F1, then by AUROC."""
    if method == FAITHFUL:
        quality = np.array([row["lds"] for row in rows], dtype=float)
    else:
        tie = [0.5 if row["auroc"] is None else row["auroc"] for row in rows]
        quality = np.array([row["f1" if by_f1 else "first"] for row in rows]) + 1e-3 * np.array(tie)
    found = np.zeros(len(rows), dtype=bool)
    found[np.argsort(quality, kind="stable")[: len(rows) // 5]] = True
    return found


def _fit(x: Floats, y: Floats, method: str) -> Floats:
    """Intercept and coefficients; of a logistic fit where a probability is predicted."""
    if method == FAITHFUL:
        ones = np.ones(len(x))
        return np.asarray(np.linalg.lstsq(np.column_stack([ones, x]), y, rcond=None)[0])
    if len(set((y > 0.5).tolist())) == 1:  # one class only
        return np.array([np.inf if y[0] > 0.5 else -np.inf, *[0.0] * x.shape[1]])
    from sklearn.linear_model import LogisticRegression

    solver = LogisticRegression(C=1e3, max_iter=1000).fit(x, y > 0.5)
    return np.concatenate([solver.intercept_, solver.coef_[0]])


def _apply(coef: Floats, x: Floats, method: str) -> Floats:
    value = coef[0] + x @ coef[1:]
    return np.asarray(value if method == FAITHFUL else 1 / (1 + np.exp(-value)))
