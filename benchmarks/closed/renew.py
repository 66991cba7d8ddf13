"""The present presets in the rows of an older run, without asking the answering model again.

A run of all peers takes an hour of a GPU. Where the presets have changed since, their rankings are made
anew by the surrogate, and the older ones stay beside them under another name. What a new ranking leads
to is known where no further answer is needed: without its first part, under the held-out masks, and
against labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from benchmarks.closed.cases import Case
from benchmarks.closed.measures import lost_without, ranked
from benchmarks.closed.rankings import by_surrogate
from benchmarks.evaluation import agreement, held_out, spearman
from benchmarks.names import EVIDENCE, INSTANT
from benchmarks.store import Row
from ropelime.errors import InputError
from ropelime.method import learnt
from ropelime.surrogate import Surrogate
from ropelime.typing import Floats

PRESETS = (EVIDENCE, INSTANT)
_ABLATED = f"{EVIDENCE} without "


def renew(row: Row, case: Case, surrogate: Surrogate, name: str, header: Row) -> Row:
    """A row whose presets are the present ones; those of the same weights of signals are replaced.

    Presets that counted otherwise stay under another name, for every surrogate of the row.

    Args:
        row: A row of the arena.
        case: Its prompt.
        surrogate: The model that explains.
        name: The name of that model in the row.
        header: The header of the run: its seed, and how much each signal of each preset counted.
    """
    if "rankings" not in row:
        return row
    now = {EVIDENCE: dict(learnt.EVIDENCE), INSTANT: dict(learnt.INSTANT)}
    changed = [preset for preset in PRESETS if header["signals"].get(preset) != now[preset]]
    ours = [ranking.removeprefix(f"{name}: ") for ranking in row["rankings"]]
    ablated = [each for each in ours if each.startswith(_ABLATED) and EVIDENCE not in changed]
    made = [*PRESETS, *ablated]
    kept: Row = {}
    for ranking, figures in row["rankings"].items():
        other = renamed(ranking, header["signals"], changed)
        if other in kept or (other != ranking and other in row["rankings"]):
            raise InputError(
                f"{row['example']} has a row {other!r} already, and {ranking!r} would get its name. "
                "Rename one of them in the file first."
            )
        kept[other] = figures
    for each in made:  # at the end, after what stays
        kept.pop(f"{name}: {each}", None)
    output, draws = str(row.get("output", case.output)), (header["seed"], row["number"])
    weights, tokens = by_surrogate(case, output, surrogate, (*draws, 2), only=made)
    for each in made:
        figures = {**known(row, weights[each], draws), "tokens": tokens[each]}
        kept[f"{name}: {each}"] = {**figures, "weights": np.round(weights[each], 5).tolist()}
    return {**row, "rankings": kept}


def renamed(
    ranking: str, signals: Mapping[str, Mapping[str, float]], changed: Collection[str] = PRESETS
) -> str:
    """The name of a ranking, which says that a preset made it before it was changed.

    Args:
        ranking: Its name, with the surrogate's before it.
        signals: How much each signal of each preset counted then.
        changed: The presets that count otherwise now.
    """
    surrogate, _, made = ranking.rpartition(": ")
    for preset in changed:
        if made == preset or made.startswith(f"{preset} without "):
            counts = "/".join(f"{count:g}" for count in signals[preset].values())
            return f"{surrogate}: earlier {made}, {counts}"
    return ranking


def known(row: Row, weights: Floats, draws: tuple[int, int]) -> Row:
    """The figures of a ranking that need no further answer; ``draws`` seeds the held-out masks."""
    n = row["features"]
    first = ranked(weights, np.random.default_rng([*draws, 3]))[0]
    figures: Row = {}
    if "held_out" in row:
        figures["necessity1"] = float(lost_without(row)[first])
        figures["kept1"] = row["kept"][1 + first]
        unseen = held_out(n, np.random.default_rng([*draws, 1]))
        figures["lds"] = spearman(unseen @ weights, np.array(row["held_out"]))
    if row["gold"]:
        gold = np.isin(np.arange(n), row["gold"])
        agrees = agreement(weights, gold)
        figures |= {"first": float(gold[first]), "f1": agrees.f1, "auroc": agrees.auroc}
    return {name: None if value is None else round(value, 5) for name, value in figures.items()}
