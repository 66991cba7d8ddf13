"""What scoring was meant to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.speed.names import (
    CAPTUM_LOO,
    COMPILED,
    CONTEXTCITE,
    DEFAULT,
    HALVES,
    LEAVE_ONE_OUT,
    LOOP,
    OURS,
    SCALED,
)
from benchmarks.speed.summary import Speed, Sum, total
from benchmarks.targets import Target

GROWTH = (200, 2000)  # features between which time must not grow faster than what is computed


def targets(loaded: Sequence[Speed]) -> list[Target]:
    """Every target whose results are there."""
    found: list[Target] = []
    for one in loaded:
        if not one.rows:
            continue
        if one.section == "contest":
            found += _contest(one)
        elif one.section == "shape" and one.on_gpu:
            found += _shape(one)
        elif one.section == "scaling":
            found.append(_scaling(one))
        elif one.section == "start" and not one.on_gpu:
            row = one.rows[0]
            found.append(_most(f"{one.processor}: first explanation, since start", 5.0, row["since"]))
            found.append(_most(f"{one.processor}: second explanation", 1.5, row["second"]))
    return found


def _contest(one: Speed) -> list[Target]:
    methods = one.header["methods"]
    halves = {method: total(one.of(method, task=HALVES)) for method in methods}
    if one.on_gpu:
        return [_times("GPU: seconds of the loop over ours", 10, halves, LOOP)]
    single = {method: total(one.of(method, task=LEAVE_ONE_OUT)) for method in methods}
    cpu = f"{one.processor}, {one.header['date']}"  # noisy machines are measured more than once
    over = f"{cpu}: seconds of {CONTEXTCITE} over those of a default explanation of ours"
    found = [_times(over, 10, halves | {OURS: halves[DEFAULT]}, CONTEXTCITE)]
    for name, how in ((OURS, ""), (COMPILED, ", compiled")):
        if name in methods:
            mine, alone = halves | {OURS: halves[name]}, single | {OURS: single[name]}
            found += [
                _times(f"{cpu}{how}: seconds of {CONTEXTCITE} over ours", 2.2, mine, CONTEXTCITE),
                _share(f"{cpu}{how}: floor / seconds, {HALVES}", 0.75, mine[OURS]),
                _times(f"{cpu}{how}: seconds of {CAPTUM_LOO} over ours", 3, alone, CAPTUM_LOO),
            ]
    return found


def _shape(one: Speed) -> list[Target]:
    name = str(one.header["surrogate"]["name"])
    sums = {method: total(one.of(method)) for method in one.header["methods"]}
    if "qwen3-8b" in name:
        return [_share("GPU: floor / seconds, shape of Qwen3-8B", 0.5, sums[OURS])]
    if "smollm2-135m" in name:
        what = "GPU: seconds of the loop over ours, shape of the embedded model"
        return [_times(what, 10, sums, LOOP)]
    return []


def _scaling(one: Speed) -> Target:
    """Whether time grows no faster than what is computed, with the masks that are worst at it."""
    few, many = GROWTH
    device = "GPU" if one.on_gpu else "CPU"
    what = f"{device}: seconds an operation at {many:,} features over those at {few:,}, the worst masks"
    grown: dict[str, float] = {}
    for method in SCALED:
        each = []
        for features in GROWTH:
            rows = one.of(method, example=f"{features} features")
            if rows and "seconds" in rows[0] and "pairs" in rows[0]:
                each.append(rows[0]["seconds"] / rows[0]["operations"])
        if len(each) == len(GROWTH):
            grown[method] = each[1] / each[0]
    if len(grown) < len(SCALED):
        return Target(what, "≤ 1 ×", "", "", None)
    worst = max(grown, key=lambda method: grown[method])
    return Target(what, "≤ 1 ×", f"{grown[worst]:.2f} × ({worst})", "", grown[worst] <= 1)


def _times(what: str, least: float, sums: Mapping[str, Sum | None], other: str) -> Target:
    ours, theirs = sums.get(OURS), sums.get(other)
    required = f"≥ {least:g} ×"
    if ours is None or theirs is None:
        return Target(what, required, "", "", None)
    times = theirs.seconds / ours.seconds
    return Target(what, required, f"{times:.2f} ×", "", times >= least)


def _share(what: str, least: float, ours: Sum | None) -> Target:
    required = f"≥ {least:.0%}"
    if ours is None:
        return Target(what, required, "", "", None)
    return Target(what, required, f"{ours.ratio:.1%}", "", ours.ratio >= least)


def _most(what: str, most: float, seconds: float) -> Target:
    return Target(what, f"≤ {most:g} s", f"{seconds:.2f} s", "", seconds <= most)
