"""Runs methods over examples: every mask that any of them needs is read once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ropelime.attribution import Attribution, attribute
from ropelime.bench.data import Example
from ropelime.bench.methods import Method
from ropelime.bench.store import Row, Store
from ropelime.evaluation import agreement, chance, follow, held_out, plan, spearman
from ropelime.passes import Floats, Masks, Passes, join
from ropelime.prompt import from_text
from ropelime.study import READINGS
from ropelime.surrogate import Removal, Scorer, Surrogate

CHANCE = "chance"
_UNLABELLED: Row = {"iou": None, "f1": None, "auroc": None}  # an example without gold
# Anything that ranks features without the surrogate's readings: rows for one example.
Extra = Callable[[Example, np.random.Generator], Row]


def run(
    examples: Sequence[Example],
    methods: Sequence[Method],
    surrogate: Surrogate,
    store: Store,
    *,
    seed: int,
    curves: bool = True,
    extras: dict[str, Extra] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run every example that the store does not hold yet.

    Args:
        examples: The examples.
        methods: The methods.
        surrogate: The model that reads.
        store: Where the rows go.
        seed: Seed of all masks; example i draws from (seed, i), whatever was run before.
        curves: Whether to read the top-k drops and the insertion and deletion curves too.
        extras: Methods of another kind, by name.
        progress: Called with the examples done and in all.
    """
    done = sum(example.id in store.done for example in examples)
    for number, example in enumerate(examples):
        if example.id in store.done:
            continue
        if progress:
            progress(done, len(examples))
        rows = list(_example(example, methods, surrogate, seed, number, curves))
        for name, extra in (extras or {}).items():
            rows.append({"method": name, **extra(example, np.random.default_rng([seed, number]))})
        known = {
            "example": example.id,
            "group": example.group,
            "features": len(example.spans),
            "gold": int(example.gold.sum()),
        }
        store.add(example.id, [{**known, **row} for row in rows])
        done += 1
    if progress:
        progress(len(examples), len(examples))


class Reader:
    """Readings of one example and one kind, each mask read at most once."""

    def __init__(self, scorer: Scorer, methods: Sequence[Method], *, cheap: bool) -> None:
        """Read nothing yet.

        Args:
            scorer: The example, made ready.
            methods: Who will want the readings, and so what of them.
            cheap: Whether they are cheap.
        """
        self._scorer, self._cheap = scorer, cheap
        self._kl = any(m.recipe.target.needs_kl for m in methods)
        self._asked = scorer.has_question and any(m.recipe.target.reads_question for m in methods)
        spaces = {m.recipe.kernel.space for m in methods if m.recipe.kernel.space is not None}
        self._spaces = tuple(sorted(spaces, key=repr))
        self._place: dict[bytes, int] = {}
        self._passes: Passes | None = None

    def read(self, masks: Masks) -> None:
        """Read those of the masks that have not been read."""
        fresh = {m.tobytes(): m for m in masks if m.tobytes() not in self._place}
        if not fresh:
            return
        ones = np.ones((1, masks.shape[1]), dtype=bool)
        rows = np.concatenate([ones, np.array(list(fresh.values()))])
        first = self._passes is None
        # Divergences and distances are wanted of the masks that are fitted, which come first.
        new = self._scorer.score(
            rows,
            kl=self._kl and first,
            spaces=self._spaces if first else (),
            cheap=self._cheap,
            asked=self._asked and first,
        )
        start = 0 if self._passes is None else len(self._passes.masks)
        self._passes = new if self._passes is None else join(self._passes, new)
        for offset, mask in enumerate(rows):
            self._place.setdefault(mask.tobytes(), start + offset)

    def passes(self, masks: Masks) -> Passes:
        """The readings of some masks, the unmasked prompt first."""
        assert self._passes is not None
        ones = np.ones((1, masks.shape[1]), dtype=bool)
        rows = [self._place[m.tobytes()] for m in np.concatenate([ones, masks])]
        return self._passes.select(rows)

    def logprob(self, masks: Masks) -> Floats:
        """(N,) log-probability of the whole output under each mask."""
        return np.asarray(self.passes(masks).logprob.sum(1)[1:])

    @property
    def seconds_per_token(self) -> float:
        """What a token cost, all readings together."""
        assert self._passes is not None
        return self._passes.seconds / max(1, int(self._passes.tokens.sum()))


def _example(
    example: Example,
    methods: Sequence[Method],
    surrogate: Surrogate,
    seed: int,
    number: int,
    curves: bool,
) -> list[Row]:
    n, gold = len(example.spans), example.gold
    scorer = surrogate.prepare(
        from_text(example.prompt), example.spans, example.answer, removal=Removal()
    )
    kinds = {kind: [m for m in methods if m.readings == kind] for kind in READINGS}
    readers = {kind: Reader(scorer, some, cheap=kind == "cheap") for kind, some in kinds.items()}
    reader = readers["exact"]
    # Every method draws from the same generator, so settings that differ in size only share masks.
    drawn = {
        m.name: m.sampler.sample(n, budget=None, rng=np.random.default_rng([seed, number])).masks
        for m in methods
    }
    unseen = held_out(n, np.random.default_rng([seed, number, 1]))
    reader.read(np.concatenate([*(drawn[m.name] for m in kinds["exact"]), unseen]))
    if kinds["cheap"]:
        readers["cheap"].read(np.concatenate([drawn[m.name] for m in kinds["cheap"]]))
    read = {m.name: readers[m.readings].passes(drawn[m.name]) for m in methods}

    fits: dict[str, tuple[Attribution, Passes, float]] = {}
    for m in methods:
        passes = read[m.name]
        if m.tokens_of:
            most = read[m.tokens_of].tokens.sum()
            affordable = int((np.cumsum(passes.tokens) <= most).sum())
            passes = passes.select(list(range(max(2, affordable))))
        start = time.perf_counter()
        fits[m.name] = (attribute(passes, m.recipe, tokens=False), passes, time.perf_counter() - start)
    plans = {name: plan(fitted.scores) for name, (fitted, _, _) in fits.items()} if curves else {}
    if plans:
        reader.read(np.concatenate([curve.masks for curve in plans.values()]))

    rows: list[Row] = []
    full = float(reader.passes(unseen).logprob[0].sum())
    true = reader.logprob(unseen)
    for m in methods:
        fitted, passes, seconds = fits[m.name]
        tokens = int(passes.tokens.sum())
        row = asdict(agreement(fitted.scores, gold)) if gold.any() else dict(_UNLABELLED)
        row["lds"] = spearman(unseen @ fitted.weights, true)
        if m.name in plans:
            curve = plans[m.name]
            row |= follow(curve, reader.logprob(curve.masks), full, passes.logprob.shape[1])
        rows.append(
            {
                "method": m.name,
                **_rounded(row),
                "masks": len(passes.masks),
                "tokens": tokens,
                "seconds": round(tokens * readers[m.readings].seconds_per_token + seconds, 4),
            }
        )
    expected = asdict(chance(n, int(gold.sum()))) if gold.any() else dict(_UNLABELLED)
    rows.append({"method": CHANCE, **_rounded(expected)})
    return rows


def _rounded(figures: dict[str, float | None]) -> dict[str, Any]:
    return {k: None if v is None else round(v, 6) for k, v in figures.items()}
