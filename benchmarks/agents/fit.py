"""The chance that a tool's output caused an action: a logistic regression, fitted to rows.

Only rows that are for learning are fitted to. Forms of a file count the same, and in each the calls
that followed an injected instruction count as much as all others. What a step said counts as an action
where it made no call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.agents.items import HIJACKED, LEARN
from benchmarks.agents.rankings import GUARD
from benchmarks.store import Row
from ropelime.errors import InputError
from ropelime.typing import Floats

INPUTS = (
    "call", "asked_user", "asked_plain", "values_data", "together", "related", "any_order",
    "codes_order", "delegated",
)  # fmt: skip
_SHARE = "share of tools, "  # by another ranking, if the rows have it
# What was tried, beside the inputs that are used.
TRIED: Mapping[str, tuple[str, ...]] = {
    "a value that only orders give": ("any_order",),
    "… and codes in orders": ("any_order", "codes_order"),
    "… and what the user has of the action, and of the order": (
        "any_order", "codes_order", "related", "asked_user",
    ),
    "… and name and values in one order, and a user who delegates": (
        "any_order", "codes_order", "related", "asked_user", "together", "delegated",
    ),
    "… and what no order has: as it is used": INPUTS,
    "used, with the share of such values": tuple(
        "only_order" if name == "any_order" else name for name in INPUTS
    ),
    "used, with values that are against the user's": (*INPUTS, "against"),
    "used, with the share of tools by `instant`": (*INPUTS, f"{_SHARE}instant"),
    "used, with the share of tools by `evidence`": (*INPUTS, f"{_SHARE}evidence"),
    "what user, orders and other outputs have": (
        "call", "asked_user", "asked_order", "asked_near", "asked_plain",
    ),
    "words of name and values": (
        "call", "name_user", "name_order", "values_user", "values_order", "values_around",
        "values_data", "together",
    ),
    "all but shares": (
        *INPUTS, "asked_order", "asked_near", "name_user", "name_order", "values_user",
        "values_order", "values_around", "given_user", "only_order", "against",
    ),
}  # fmt: skip
_STRENGTH = 1.0  # of the penalty, inverse
_FOLDS = 6


@dataclass(frozen=True)
class Example:
    """An action: the row that it is of, what was measured, and whether it followed an instruction."""

    row: Row
    output: Mapping[str, Any]
    followed: bool

    def inputs(self, names: Sequence[str]) -> list[float] | None:
        """What the chance is estimated from; None where some of it was not measured."""
        known = {**self.output["rankings"][GUARD]["measures"]}
        for name in names:
            if name.startswith(_SHARE):
                other = self.output["rankings"].get(name.removeprefix(_SHARE))
                known |= {} if other is None else {name: other["tools"]}
        return [known[name] for name in names] if known.keys() >= set(names) else None


def examples(rows: Sequence[Row], split: str, names: Sequence[str] = INPUTS) -> Iterator[Example]:
    """The actions of rows: calls, and texts of steps without one."""
    for row in rows:
        if row["split"] != split or row.get("skipped"):
            continue
        outputs = [each for each in row["outputs"] if GUARD in each["rankings"]]
        calls = [each for each in outputs if "call" in each["of"]]
        for each in calls or outputs:
            example = Example(row, each, row["kind"] == HIJACKED)
            if example.inputs(names) is not None:
                yield example


def fit(found: Sequence[Example], names: Sequence[str]) -> dict[str, float]:
    """The coefficients, rounded; ``bias`` first."""
    from sklearn.linear_model import LogisticRegression

    if len({each.followed for each in found}) < 2:
        raise InputError("The rows do not have actions of both kinds: there is nothing to learn.")
    groups = [(each.row["form"], each.row["variant"] == "none", each.followed) for each in found]
    counts = Counter(groups)
    weights = np.array([1 / counts[group] for group in groups])
    model = LogisticRegression(C=_STRENGTH, max_iter=10_000)
    model.fit(
        [each.inputs(names) for each in found],
        [each.followed for each in found],
        sample_weight=weights * len(found) / weights.sum(),
    )
    values = (model.intercept_[0], *model.coef_[0])
    return {n: round(float(v), 1) for n, v in zip(("bias", *names), values, strict=True)}


def learn(rows: Sequence[Row]) -> dict[str, float]:
    """The coefficients that are used."""
    return fit(list(examples(rows, LEARN)), INPUTS)


def scores(found: Sequence[Example], coefficients: Mapping[str, float]) -> Floats:
    """(examples,) the log-odds that each followed an instruction."""
    bias, names = coefficients["bias"], [name for name in coefficients if name != "bias"]
    inputs = np.array([each.inputs(names) for each in found]).reshape(len(found), len(names))
    return np.asarray(bias + inputs @ [coefficients[name] for name in names])


def held_out(found: Sequence[Example], names: Sequence[str]) -> Floats:
    """(examples,) the log-odds of each by coefficients that were fitted to other tasks of users."""
    tasks = ["/".join(each.row["case"].split("/")[:2]) for each in found]
    order = np.random.default_rng(0).permutation(len(set(tasks)))
    fold = {task: number % _FOLDS for task, number in zip(sorted(set(tasks)), order, strict=True)}
    made = np.zeros(len(found))
    for one in range(_FOLDS):
        out = np.array([fold[task] == one for task in tasks])
        rest = [each for each, left in zip(found, out, strict=True) if not left]
        if out.any():
            some = [each for each, left in zip(found, out, strict=True) if left]
            made[out] = scores(some, fit(rest, names))
    return made


def scored(found: Sequence[Example], values: Floats) -> list[Row]:
    """Rows with these scores, to be judged like a ranking."""
    by_row: dict[int, Row] = {}
    for each, value in zip(found, values, strict=True):
        if "call" not in each.output["of"]:
            continue
        row = by_row.setdefault(id(each.row), {**each.row, "outputs": []})
        row["outputs"].append({"of": ["call"], "rankings": {GUARD: {"score": float(value)}}})
    return list(by_row.values())
