"""How much each signal counts, and which attention heads: learnt from what ablations did.

For each prompt, an answering model has shown what is lost without each part (``closed --labels-only``):
the drop of its answer's log-probability, relative to that without any part; and how far its answer
changes. For other prompts, people have said which parts they would cite. Signals give shares to the
parts. Their weights are those of a mixture under which all of this is most likely, found by expectation
maximisation: a convex problem without settings. Heads are learnt from what is lost alone, and those
below half a per cent are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.closed import attention
from benchmarks.closed.cases import Case
from benchmarks.closed.measures import SIGNALS, lost_without
from benchmarks.store import Row
from ropelime.errors import InputError
from ropelime.explain import explain_many
from ropelime.method.attribution import sharpened
from ropelime.options import Options
from ropelime.results.explanation import ExplanationData
from ropelime.steps import Task
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split
from ropelime.typing import Floats

_ITERATIONS = 300
_LEAST_LOST = 0.05  # of the prompt's effect: prompts in which ablations do less teach nothing
_LEAST_HEAD = 0.005


@dataclass(frozen=True)
class Lesson:
    """One prompt.

    Attributes:
        lost: (n,) the part of the prompt's effect that was lost without each part, 0 to 1.
        changed: (n,) how far the answer changed, 0 to 1.
        signals: (signals, n) the shares that each signal gives.
        heads: (layers, heads, n) the shares that each head gives, sharpened.
    """

    lost: Floats
    changed: Floats
    signals: Floats
    heads: Floats


Effects = tuple[Floats, Floats]  # (signals, n) shares, and (n,) what a part did or was


def shares_of(case: Case, output: str, surrogate: LocalSurrogate) -> Floats:
    """(signals, n) the shares that each signal gives to the parts of a prompt."""
    task = Task(case.prompt, output, Options(features=case.spans))
    (e,) = explain_many([task], [surrogate])
    assert isinstance(e, ExplanationData)
    nothing = np.zeros(len(case.spans))
    return np.stack([e.signals.get(name, nothing) for name in SIGNALS])


def lesson(case: Case, row: Row, surrogate: LocalSurrogate) -> Lesson:
    """What a row teaches about a surrogate."""
    lost = np.clip(lost_without(row), 0, 1)
    features = split(case.prompt, case.spans, token_spans=surrogate.token_spans)
    scorer = surrogate.prepare(case.prompt, features, row["output"], ablation=Ablation())
    mass = attention.of_parts(surrogate, scorer.tokenized)
    shares = sharpened(mass.reshape(-1, mass.shape[-1]).T).T.reshape(mass.shape)
    changed = np.clip(1 - np.array(row["kept"][1:]), 0, 1)
    return Lesson(lost, changed, shares_of(case, row["output"], surrogate), shares)


def cited(
    cases: Sequence[Case],
    surrogate: LocalSurrogate,
    progress: Callable[[int, int], None] | None = None,
) -> list[Effects]:
    """The shares of the signals, and the parts that people would cite; each case has an answer."""
    found = []
    for number, case in enumerate(cases):
        if progress:
            progress(number, len(cases))
        found.append((shares_of(case, case.output or "", surrogate), case.gold.astype(float)))
    return found


def lessons(
    cases: Mapping[str, Case],
    rows: Sequence[Row],
    surrogate: LocalSurrogate,
    progress: Callable[[int, int], None] | None = None,
) -> list[Lesson]:
    """What all rows teach, without those in which the prompt hardly mattered."""
    found = []
    for number, row in enumerate(rows):
        if progress:
            progress(number, len(rows))
        if row["example"] not in cases:
            raise InputError(f"The data has no prompt {row['example']!r}: name that of the rows.")
        if "output" in row and row["full"] - row["none"] > 1e-6:
            found.append(lesson(cases[row["example"]], row, surrogate))
    if progress:
        progress(len(rows), len(rows))
    return [each for each in found if each.lost.sum() > _LEAST_LOST]


def mixture(*kinds: Sequence[Effects]) -> Floats:
    """(K,) weights of K signals under which what parts did is most likely.

    Every kind of effect counts the same. In it, a prompt counts for as much as the most that one part
    did.

    Args:
        *kinds: For each kind of effect and each prompt (K, n) the shares that the signals give to its n
            parts, and (n,) what each part did: what removing it changed, or whether it was cited.
    """
    signals = len(kinds[0][0][0])
    weights = np.full(signals, 1 / signals)
    effects = [
        (share, effect / effect.sum(), float(effect.max()) / sum(float(e.max()) for _, e in kind))
        for kind in kinds
        for share, effect in kind
        if effect.sum() > _LEAST_LOST
    ]
    for _ in range(_ITERATIONS):
        gains = np.zeros(len(weights))
        for share, part, count in effects:
            mixed = weights @ share + 1e-3 / len(part)
            gains += count * (share @ (part / mixed))
        weights = weights * gains
        weights /= weights.sum()
    return weights


def learn(
    found: Sequence[Lesson], labelled: Sequence[Effects], surrogate: LocalSurrogate, words: float
) -> dict[str, Any]:
    """The contents of ``learnt.json`` out of lessons.

    Args:
        found: The lessons.
        labelled: What people would cite.
        surrogate: The model that they are about.
        words: How much the words count beside attention in ``preset="instant"``.
    """
    kinds = [
        [(each.signals, each.lost) for each in found],
        [(each.signals, each.changed) for each in found],
    ]
    evidence = mixture(*kinds, *([labelled] if labelled else []))
    layers, count, _ = found[0].heads.shape
    weights = mixture([(each.heads.reshape(layers * count, -1), each.lost) for each in found])
    kept = np.flatnonzero(weights >= _LEAST_HEAD)
    weights = weights[kept] / weights[kept].sum()
    heads = [
        [int(head // count), int(head % count), round(float(weight), 4)]
        for head, weight in zip(kept, weights, strict=True)
    ]
    return {
        "evidence": dict(zip(SIGNALS, np.round(evidence, 3).tolist(), strict=True)),
        "instant": {"attention": round(1 - words, 3), "words": words},
        "heads": {surrogate.shape: heads},
        "prompts": len(found) + len(labelled),
    }
