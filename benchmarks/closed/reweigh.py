"""Other weights of the signals of ``evidence`` and ``instant``, for runs that are there already.

A run holds ``evidence`` without each of three signals; they are sums of two shares each, so the shares
follow, and with that of words the share of attention in ``instant``. What a new ranking leads to is
known where no answer has to be asked for: without its first part, under the held-out masks, and against
labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.closed.measures import SIGNALS, lost_without, ranked
from benchmarks.evaluation import agreement, held_out, spearman
from benchmarks.names import EVIDENCE, INSTANT
from benchmarks.store import Row
from ropelime.errors import InputError
from ropelime.typing import Floats

Weights = Mapping[str, Mapping[str, float]]  # of the signals of each preset


def shares(rankings: Mapping[str, Row], surrogate: str, counted: Mapping[str, float]) -> Floats:
    """(3, n) the share that each signal gives to each part, out of the rankings without each."""
    without = {}
    for name in SIGNALS:
        row = rankings.get(f"{surrogate}: {EVIDENCE} without {name}")
        if row is None:
            raise InputError(f"These results have no ranking of {surrogate} without {name}.")
        rest = sum(counted[other] for other in SIGNALS if other != name)
        without[name] = np.array(row["weights"]) * rest
    total = sum(without.values()) / 2
    return np.stack([np.clip((total - without[name]) / counted[name], 0.0, 1.0) for name in SIGNALS])


def reweigh(row: Row, surrogate: str, counted: Weights, wanted: Weights, seed: int) -> Row:
    """A row whose presets count the signals as wanted; what was run keeps its figures.

    Args:
        row: A row of the arena.
        surrogate: The surrogate whose ranking it is.
        counted: How much each signal of each preset counted in the run.
        wanted: How much each is to count.
        seed: The seed of the run.
    """
    if "rankings" not in row:
        return row
    given = shares(row["rankings"], surrogate, counted[EVIDENCE])
    words = given[SIGNALS.index("words")]
    ran = np.array(row["rankings"][f"{surrogate}: {INSTANT}"]["weights"])
    # Where no word is shared, attention alone has counted.
    paid = ran if not words.any() else (ran - counted[INSTANT]["words"] * words).clip(0.0)
    by_signal = {
        EVIDENCE: dict(zip(SIGNALS, given, strict=True)),
        INSTANT: {"attention": paid / (paid.sum() or 1.0), "words": words},
    }
    found = {}
    for name, figures in row["rankings"].items():
        preset = name.removeprefix(f"{surrogate}: ")
        if name == preset or preset not in by_signal or counted[preset] == wanted[preset]:
            found[name] = figures
            continue
        mixed = sum(wanted[preset][signal] * share for signal, share in by_signal[preset].items())
        mixed = np.asarray(mixed / (np.sum(mixed) or 1.0))
        found[name] = {**_known(row, mixed, seed), "tokens": figures["tokens"]}
        found[name]["weights"] = np.round(mixed, 5).tolist()
        found[f"{name}, {'/'.join(f'{count:g}' for count in counted[preset].values())}"] = figures
    return {**row, "rankings": found}


def _known(row: Row, weights: Floats, seed: int) -> Row:
    """The figures of a ranking that need no further answer."""
    n, draws = row["features"], (seed, row["number"])
    first = ranked(weights, np.random.default_rng([*draws, 3]))[0]
    figures: Row = {}
    if "held_out" in row:
        figures["necessity1"] = round(float(lost_without(row)[first]), 5)
        figures["kept1"] = row["kept"][1 + first]
        unseen = held_out(n, np.random.default_rng([*draws, 1]))
        figures["lds"] = spearman(unseen @ weights, np.array(row["held_out"]))
    if row["gold"]:
        gold = np.isin(np.arange(n), row["gold"])
        agrees = agreement(weights, gold)
        figures |= {"first": float(gold[first]), "f1": agrees.f1, "auroc": agrees.auroc}
    return figures
