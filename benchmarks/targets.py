"""What the experiments were meant to reach, and whether they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks import paper
from benchmarks.data import BUCKETS
from benchmarks.experiments import GSMILE
from benchmarks.runner import CHANCE
from benchmarks.summary import METRICS, Results, Section, Spread, spread

SPARSE_K, EQUAL_TOKENS, LEAVE_ONE_OUT = "sparse-k", "sparse-k, LOO's tokens", "leave-one-out"
CONTEXTCITE, ROPE_LIME = "contextcite", "rope-lime"
GOLD_IOU = {"2-3": 0.85, "4-5": 0.66, "6-8": 0.51, "9-11": 0.45, "12+": 0.36}
LARGEST = [name for name, _, _ in BUCKETS][-3:]
ALL_F1, ALL_LDS, ALL_COST = 0.47, 0.70, 0.5
PERTURBATIONS = 60
_CANDIDATES = 3


@dataclass(frozen=True)
class Target:
    """One thing that was to be reached.

    Attributes:
        what: What is measured.
        required: What it has to be.
        ours: What it is.
        interval: 90 % bootstrap interval of what is measured; empty where there is none.
        reached: Whether it is; None where it was not run.
        open: Whether the interval holds the required value: other examples might decide otherwise.
    """

    what: str
    required: str
    ours: str
    interval: str
    reached: bool | None
    open: bool = False

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.reached is None:
            return "not run"
        return ("reached" if self.reached else "missed") + (
            " (within the interval)" if self.open else ""
        )


def targets(loaded: Mapping[Section, Results]) -> list[Target]:
    """Every target whose results are there."""
    found: list[Target] = []
    if gold := loaded.get(("hotpotqa", "gold")):
        found += _gold(gold)
    if everything := loaded.get(("hotpotqa", "all")):
        found += _all(everything)
    if words := loaded.get(("mmlu", None)):
        found += _mmlu(words)
    return found


def _gold(results: Results) -> list[Target]:
    found = [
        at_least(f"gold, {group}: IoU of {SPARSE_K}", results.spread(SPARSE_K, "iou", group), least)
        for group, least in GOLD_IOU.items()
    ]
    for group in LARGEST:
        ahead = spread(results.difference(EQUAL_TOKENS, LEAVE_ONE_OUT, "iou", group))
        pairs = [
            (a, b)
            for a, b in zip(
                results.rows.get(EQUAL_TOKENS, []), results.rows.get(LEAVE_ONE_OUT, []), strict=False
            )
            if a["group"] == group
        ]
        same = sum(
            {**a, "method": 0, "seconds": 0} == {**b, "method": 0, "seconds": 0} for a, b in pairs
        )
        note = f"; every figure and cost the same in {same} of {len(pairs)}" if same else ""
        what = f"gold, {group}: IoU of {SPARSE_K} less that of {LEAVE_ONE_OUT}, equal tokens"
        found.append(_above(what, ahead, note=note))
    return found


def _all(results: Results) -> list[Target]:
    what = (
        f"all ten: one method with this F1 and LDS for at most {ALL_COST:g} of {CONTEXTCITE}'s tokens"
    )
    required = f"F1 ≥ {ALL_F1:.2f}, LDS ≥ {ALL_LDS:.2f}"
    full = results.mean(CONTEXTCITE, "tokens")
    if full is None:
        return [Target(what, required, "", "", None)]
    ranked = []
    for method in results.rows:
        f1, lds = results.spread(method, "f1"), results.spread(method, "lds")
        tokens = results.mean(method, "tokens")
        if method == CHANCE or f1 is None or lds is None or tokens is None or tokens > ALL_COST * full:
            continue
        ranked.append((min(f1.mean - ALL_F1, lds.mean - ALL_LDS), method, f1, lds, tokens / full))
    ranked.sort(key=lambda candidate: -candidate[0])
    if not ranked:
        return [Target(what, required, "no method is as cheap", "", False)]
    found: list[Target] = []
    for margin, method, f1, lds, share in ranked[:_CANDIDATES]:
        ours = f"{method}: F1 {f1.mean:.3f}, LDS {lds.mean:.3f} at {share:.2f} of the tokens"
        between = f"F1 {interval(f1)}, LDS {interval(lds)}"
        sure = (f1.low >= ALL_F1 and lds.low >= ALL_LDS) or f1.high < ALL_F1 or lds.high < ALL_LDS
        name = what if not found else f"the same, candidate {len(found) + 1}"
        found.append(Target(name, required, ours, between, margin >= 0, not sure))
    return found


def _mmlu(results: Results) -> list[Target]:
    found = []
    for metric, name in METRICS.items():
        value = results.spread(ROPE_LIME, metric)
        found.append(
            _above(f"MMLU: {name} of {ROPE_LIME}", value, paper.MMLU_OPEN[metric].mean, sign="")
        )
        ahead = spread(results.difference(ROPE_LIME, GSMILE, metric))
        found.append(_above(f"MMLU: {name} of {ROPE_LIME} less that of {GSMILE}", ahead))
    what = f"MMLU: generations of {ROPE_LIME} for a question, the explained answer counted"
    theirs = results.mean(GSMILE, "generations")
    if theirs is None or ROPE_LIME not in results.rows:
        return [*found, Target(what, f"1/{PERTURBATIONS} of {GSMILE}'s", "", "", None)]
    ours = 1 + (results.mean(ROPE_LIME, "generations") or 0)
    most = theirs / PERTURBATIONS
    required = f"≤ {most:.2f} (1/{PERTURBATIONS} of {theirs:g})"
    return [*found, Target(what, required, f"{ours:g}", "", ours <= most)]


def at_least(what: str, value: Spread | None, least: float, digits: int = 2) -> Target:
    """A mean that has to be so large, and whether it is."""
    required = f"≥ {least:.{digits}f}"
    if value is None:
        return Target(what, required, "", "", None)
    unsure = value.low < least <= value.high
    reached = value.mean >= least
    return Target(what, required, f"{value.mean:.3f}", interval(value), reached, unsure)


def _above(
    what: str, value: Spread | None, bound: float = 0.0, *, sign: str = "+", note: str = ""
) -> Target:
    required = f"> {bound:g}"
    if value is None:
        return Target(what, required, "", "", None)
    unsure = value.low <= bound < value.high
    ours = f"{value.mean:{sign}.3f}{note}"
    return Target(what, required, ours, interval(value), value.mean > bound, unsure)


def interval(value: Spread) -> str:
    """The 90 % interval of a mean, as it is written."""
    return f"[{value.low:.3f}, {value.high:.3f}]"
