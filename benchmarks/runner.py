"""Runs methods over examples: every mask that any of them needs is read once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.data import Example
from benchmarks.evaluation import agreement, chance, follow, held_out, plan, spearman
from benchmarks.evaluation.labels import Labels
from benchmarks.methods import Method
from benchmarks.store import Row, Store
from ropelime.method.attribution import Attribution, Recipe, attribute
from ropelime.method.samplers import SparseK, resolve_sampler
from ropelime.method.scores import Floats, Masks, Scores, join
from ropelime.results.trust import indicators
from ropelime.study import SCORING
from ropelime.surrogate import Ablation, Scorer, Surrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_text

CHANCE = "chance"
_EVERY = 3  # of the examples one is read under many masks
_MANY = 450
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
    detail: bool = False,
    settle: bool = False,
    ablation: Ablation = Ablation(),  # noqa: B008 - it is frozen
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
        detail: Whether to say how sure each method is.
        settle: Whether to read every third example under many more masks, and to say whether the
            intervals hold what those say.
        ablation: What happens where a feature is removed.
        extras: Methods of another kind, by name.
        progress: Called with the examples done and in all.
    """
    done = sum(example.id in store.done for example in examples)
    for number, example in enumerate(examples):
        if example.id in store.done:
            continue
        if progress:
            progress(done, len(examples))
        rows = _example(example, methods, surrogate, (seed, number), ablation, curves, detail, settle)
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

    def __init__(self, scorer: Scorer, methods: Sequence[Method], *, cached: bool) -> None:
        """Read nothing yet.

        Args:
            scorer: The example, made ready.
            methods: Who will want the readings, and so what of them.
            cached: Whether they are cheap.
        """
        self._scorer, self._cheap = scorer, cached
        self._kl = any(m.recipe.target.needs_kl for m in methods)
        self._question = scorer.has_question and any(m.recipe.target.reads_question for m in methods)
        spaces = {m.recipe.kernel.space for m in methods if m.recipe.kernel.space is not None}
        self._spaces = tuple(sorted(spaces, key=repr))
        self._place: dict[bytes, int] = {}
        self._passes: Scores | None = None

    def read(self, masks: Masks, *, fitted: bool = True) -> None:
        """Read those of the masks that have not been read.

        Args:
            masks: The masks.
            fitted: Whether divergences, distances and the question are wanted too, as fits do.
        """
        fresh = {m.tobytes(): m for m in masks if m.tobytes() not in self._place}
        if not fresh:
            return
        ones = np.ones((1, masks.shape[1]), dtype=bool)
        rows = np.concatenate([ones, np.array(list(fresh.values()))])
        new = self._scorer.score(
            rows,
            kl=self._kl and fitted,
            spaces=self._spaces if fitted else (),
            cached=self._cheap,
            question=self._question and fitted,
        )
        start = 0 if self._passes is None else len(self._passes.masks)
        self._passes = new if self._passes is None else join(self._passes, new)
        for offset, mask in enumerate(rows):
            self._place.setdefault(mask.tobytes(), start + offset)

    def scores(self, masks: Masks) -> Scores:
        """The readings of some masks, the unmasked prompt first."""
        assert self._passes is not None
        ones = np.ones((1, masks.shape[1]), dtype=bool)
        rows = [self._place[m.tobytes()] for m in np.concatenate([ones, masks])]
        return self._passes.select(rows)

    def logprob(self, masks: Masks) -> Floats:
        """(N,) log-probability of the whole output under each mask."""
        return np.asarray(self.scores(masks).logprob.sum(1)[1:])

    @property
    def seconds_per_token(self) -> float:
        """What a token cost, all readings together."""
        assert self._passes is not None
        return self._passes.seconds / max(1, int(self._passes.tokens.sum()))


def _example(
    example: Example,
    methods: Sequence[Method],
    surrogate: Surrogate,
    seed: tuple[int, int],
    ablation: Ablation,
    curves: bool,
    detail: bool,
    settle: bool,
) -> list[Row]:
    n, gold = len(example.spans), example.gold
    prompt = from_text(example.prompt)
    features = split(prompt, example.spans, token_spans=surrogate.token_spans)
    scorer = surrogate.prepare(prompt, features, example.answer, ablation=ablation)
    readers = {kind: Reader(scorer, methods, cached=kind == "cached") for kind in SCORING}
    reader = readers["exact"]
    unseen = held_out(n, np.random.default_rng([*seed, 1]))
    read = _read_all(methods, n, seed, readers)
    reader.read(unseen, fitted=False)

    fits: dict[str, tuple[Attribution, Scores, float]] = {}
    for m in methods:
        scores = read[m.name]
        if m.tokens_of:
            most = read[m.tokens_of].tokens.sum()
            affordable = int((np.cumsum(scores.tokens) <= most).sum())
            scores = scores.select(list(range(max(2, affordable))))
        start = time.perf_counter()
        fitted = attribute(scores.fitted() if m.preset else scores, m.recipe, tokens=False)
        fits[m.name] = (fitted, scores, time.perf_counter() - start)
    plans = (
        {name: plan(fitted.normalized_weights) for name, (fitted, _, _) in fits.items()}
        if curves
        else {}
    )
    if plans:
        reader.read(np.concatenate([curve.masks for curve in plans.values()]), fitted=False)
    known = _settled(n, seed, readers) if settle and seed[1] % _EVERY == 0 else {}

    rows: list[Row] = []
    full = float(reader.scores(unseen).logprob[0].sum())
    true = reader.logprob(unseen)
    for m in methods:
        fitted, scores, seconds = fits[m.name]
        tokens = int(scores.tokens.sum())
        row = asdict(agreement(fitted.normalized_weights, gold)) if gold.any() else dict(_UNLABELLED)
        row["lds"] = spearman(unseen @ fitted.weights, true)
        if m.name in plans:
            curve = plans[m.name]
            row |= follow(curve, reader.logprob(curve.masks), full, scores.logprob.shape[1])
        if detail:
            row |= _details(m, fitted, scores, gold, scorer, known)
        each = readers[m.scoring].seconds_per_token
        rows.append(
            {
                "method": m.name,
                **_rounded(row),
                "masks": len(scores.masks),
                "tokens": tokens,
                "seconds": round(tokens * each + seconds, 4),
            }
        )
    expected = asdict(chance(n, int(gold.sum()))) if gold.any() else dict(_UNLABELLED)
    rows.append({"method": CHANCE, **_rounded(expected)})
    return rows


def _read_all(
    methods: Sequence[Method], n: int, seed: tuple[int, int], readers: dict[str, Reader]
) -> dict[str, Scores]:
    """What every method reads: first what all of them ask for at once, then what some go on with.

    Every method draws from the same generator, so settings that differ in size only share masks.
    """
    plans = {m.name: m.orders(n, seed) for m in methods}
    waiting = {name: next(orders) for name, orders in plans.items()}
    found: dict[str, Scores] = {}
    while waiting:
        for kind, reader in readers.items():
            masks = [o.masks for o in waiting.values() if o.cached == (kind == "cached")]
            if masks:
                reader.read(np.concatenate(masks))
        following = {}
        for name, order in waiting.items():
            new = readers["cached" if order.cached else "exact"].scores(order.masks)
            if name in found:
                new = join(found[name], new.select(np.arange(1, len(new.masks))))
            found[name] = new
            try:
                following[name] = plans[name].send(new)
            except StopIteration:
                continue
        waiting = following
    return found


def _settled(n: int, seed: tuple[int, int], readers: dict[str, Reader]) -> dict[str, Attribution]:
    """What many masks say: halves read exactly for log-probabilities, local ones for evidence."""
    rng = np.random.default_rng([*seed, 2])
    halves = resolve_sampler(f"hadamard:{_MANY}").sample(n, budget=None, rng=rng).masks
    readers["exact"].read(halves, fitted=False)
    nll = Recipe.of("nll", "uniform", "wls")
    local = [~np.eye(n, dtype=bool)]
    for size in (2, 4, "sqrt"):
        part = SparseK(size, active="removed", masks=_MANY // 3)
        local.append(part.sample(n, budget=None, rng=rng).masks)
    masks = np.concatenate(local)
    readers["cached"].read(masks)
    evidence = Recipe.of("evidence", "uniform", "wls")
    return {
        "nll": attribute(readers["exact"].scores(halves), nll, tokens=False),
        "evidence": attribute(readers["cached"].scores(masks), evidence, tokens=False),
    }


def _details(
    m: Method,
    fitted: Attribution,
    scores: Scores,
    gold: Labels,
    scorer: Scorer,
    known: dict[str, Attribution],
) -> dict[str, float | None]:
    """How sure a method is, whether its first feature is gold, and whether its intervals hold."""
    row: dict[str, float | None] = {}
    if m.preset:  # those of which anybody asks how far to trust them
        row["first"] = float(gold[int(np.argmax(fitted.normalized_weights))])
        known_too = indicators(scores.fitted(), fitted)
        row |= {f"by_{name}": value for name, value in known_too.items()}
    if count := getattr(scorer, "count", None):
        exact = scores.exact & (np.arange(len(scores.masks)) > 0)
        parts = [count(scores.masks[rows], cached=cached) for rows, cached in _kinds(scores, exact)]
        row["run"] = float(sum(parts))
    target = getattr(m.recipe.target, "name", "")
    if target in known:
        # Shares, because the unit of evidence is the mean shift of the masks that were read.
        total, settled = float(np.abs(fitted.weights).sum()), known[target]
        aim = settled.weights * (total / max(float(np.abs(settled.weights).sum()), 1e-300))
        if target == "nll":
            aim = settled.weights
        off = np.abs(fitted.weights - aim) / np.maximum(fitted.half, 1e-300)
        row["covered"] = float((off <= 1).mean())
        row["reach"] = float(np.quantile(off, 0.9))  # how many half widths would hold nine in ten
        row["halfwidth"] = float(fitted.half.mean() / max(float(np.abs(fitted.weights).max()), 1e-300))
    return row


def _kinds(scores: Scores, exact: Masks) -> list[tuple[Masks, bool]]:
    """The rows that were read in each way, each way with the unmasked prompt."""
    first = np.arange(len(scores.masks)) == 0
    found = [(first | ~exact, True)] if not exact[1:].all() else []
    return [*found, (first | exact, False)] if exact.any() else found


def _rounded(figures: dict[str, float | None]) -> dict[str, Any]:
    return {k: None if v is None else round(v, 6) for k, v in figures.items()}
