"""What the budgets were meant to reach, and whether they did."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import paper
from benchmarks.budgets.names import CONTEXTCITE, EVIDENCE, FAITHFUL
from benchmarks.budgets.trusting import calibration
from benchmarks.summary import Results, Spread, spread
from benchmarks.targets import Target, at_least, interval

SMALL = "smollm2"
F1_LARGE, AUROC_LARGE, COST_LARGE = 0.62, 0.90, 0.25
AHEAD_SMALL, COST_SMALL = 0.03, 0.1
QUARTER, LDS_FULL = 0.25, 0.80
COVERED, WORST = 0.85, 0.75
_FIRST_BUCKET, _WITHIN = "2-3", 0.02


def share(one: Results, name: str, key: str) -> float:
    """Tokens of a method over those of ContextCite's 64 masks, which shares nothing."""
    ours, theirs = one.mean(name, key), one.mean(CONTEXTCITE, "tokens")
    return (ours or 0.0) / theirs if theirs else float("nan")


def targets(loaded: Mapping[tuple[str, str], Results]) -> list[Target]:
    """Every target whose results are there."""
    found: list[Target] = []
    for (context, who), one in loaded.items():
        small = who == SMALL
        if context == "all":
            found += _small(one) if small else _large(one, who)
        if context == "gold" and not small:
            found += _gold(one, who)
    for (context, who), one in loaded.items():
        if context == "all":
            found += _sure(one, who)
    return found


def _large(one: Results, who: str) -> list[Target]:
    cost = share(one, EVIDENCE, "tokens")
    return [
        at_least(f"{who}: F1 of evidence", one.spread(EVIDENCE, "f1"), F1_LARGE, 3),
        at_least(f"{who}: AUROC of evidence", one.spread(EVIDENCE, "auroc"), AUROC_LARGE, 3),
        _most(f"{who}: tokens of evidence over ContextCite's", cost, COST_LARGE),
    ]


def _small(one: Results) -> list[Target]:
    ahead = spread(one.difference(EVIDENCE, CONTEXTCITE, "f1"))
    cost = share(one, EVIDENCE, "tokens")
    found = [
        at_least(f"{SMALL}: F1 of evidence less ContextCite's", ahead, AHEAD_SMALL, 3),
        _most(f"{SMALL}: tokens of evidence over ContextCite's", cost, COST_SMALL),
    ]
    theirs = one.mean(CONTEXTCITE, "lds") or 0.0
    for key in ("tokens", "run"):
        for most, least in ((QUARTER, theirs), (1.0, LDS_FULL)):
            what = f"{SMALL}: best LDS for at most {most:g} of ContextCite's tokens ({key})"
            best = _best(one, key, most)
            if best is None:
                found.append(Target(what, f"≥ {least:.3f}", "", "", None))
                continue
            name, value = best
            reached = value.mean >= least
            unsure = value.low < least <= value.high
            ours = f"{name}: {value.mean:.3f} at {share(one, name, key):.2f}"
            found.append(Target(what, f"≥ {least:.3f}", ours, interval(value), reached, unsure))
    return found


def _best(one: Results, key: str, most: float) -> tuple[str, Spread] | None:
    ranked = [
        (name, value)
        for name in one.rows
        if (value := one.spread(name, "lds")) is not None
        and one.mean(name, key) is not None
        and share(one, name, key) <= most
        and not name.startswith("contextcite")
    ]
    return max(ranked, key=lambda pair: pair[1].mean, default=None)


def _gold(one: Results, who: str) -> list[Target]:
    found = []
    for group in one.buckets():
        bound = paper.SPARSE_K[group].iou.mean - (_WITHIN if group == _FIRST_BUCKET else 0.0)
        what = f"{who}, gold, {group}: IoU of evidence against the paper's {paper.HOTPOTQA_MODEL}"
        found.append(at_least(what, one.spread(EVIDENCE, "iou", group), bound, 3))
    return found


def _sure(one: Results, who: str) -> list[Target]:
    found = []
    for name in (EVIDENCE, FAITHFUL):
        covered = one.spread(name, "covered")
        if covered is not None:
            found.append(at_least(f"{who}: features whose interval holds, {name}", covered, COVERED, 3))
        judged = calibration(one, name)
        if judged is not None:
            what = f"{who}: trust tells the worst fifth, {name}"
            reached = judged.worst >= WORST
            found.append(Target(what, f"≥ {WORST:.2f}", f"{judged.worst:.3f}", "", reached))
    return found


def _most(what: str, value: float, most: float) -> Target:
    return Target(what, f"≤ {most:g}", f"{value:.3f}", "", value <= most)
