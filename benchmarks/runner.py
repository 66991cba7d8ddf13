"""Runs methods over examples: every mask that any of them needs is scored once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks import coverage
from benchmarks.data import Example
from benchmarks.evaluation import agreement, chance, follow, held_out, plan, spearman
from benchmarks.methods import Method
from benchmarks.names import CHANCE
from benchmarks.store import Row, Store
from ropelime.method.attribution import Attribution, fit
from ropelime.method.scores import Scores, join
from ropelime.options import SCORING
from ropelime.surrogate import Ablation, Scorer, Surrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_text
from ropelime.typing import Floats, Masks

_EVERY = 3  # one example in so many has its intervals compared with many more masks
_UNLABELLED: Row = {"iou": None, "f1": None, "auroc": None}  # an example without gold
# A method that ranks features without the surrogate's scores: its row for one example.
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
    intervals: bool = False,
    ablation: Ablation = Ablation(),  # noqa: B008 - it is frozen
    extras: dict[str, Extra] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run every example that the store does not hold yet.

    Args:
        examples: The examples.
        methods: The methods.
        surrogate: The model that scores.
        store: Where the rows go.
        seed: Seed of all masks; example i draws from (seed, i), whatever was run before.
        curves: Whether to compute the top-k drops and the insertion and deletion curves.
        detail: Whether to add the indicators of trust and the tokens run.
        intervals: Whether to score every third example under many more masks, and to add the coverage
            of the intervals.
        ablation: How features are removed.
        extras: Methods of another kind, by name.
        progress: Called with the examples done and in all.
    """
    done = sum(example.id in store.done for example in examples)
    for number, example in enumerate(examples):
        if example.id in store.done:
            continue
        if progress:
            progress(done, len(examples))
        prompt = from_text(example.prompt)
        features = split(prompt, example.spans, token_spans=surrogate.token_spans)
        scorer = surrogate.prepare(prompt, features, example.answer, ablation=ablation)
        rows = _example(example, methods, scorer, (seed, number), _Extent(curves, detail, intervals))
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
    """Scores of one example, cached or exact; each mask is scored at most once."""

    def __init__(self, scorer: Scorer, methods: Sequence[Method], *, cached: bool) -> None:
        """Score nothing yet.

        Args:
            scorer: The prepared example.
            methods: The methods, which determine what is computed with the scores.
            cached: Whether scoring is cached.
        """
        self._scorer, self._cached = scorer, cached
        self._kl = any(m.recipe.target.needs_kl for m in methods)
        self._question = scorer.has_question and any(
            m.recipe.target.question_weight > 0 for m in methods
        )
        spaces = {m.recipe.kernel.space for m in methods if m.recipe.kernel.space is not None}
        self._spaces = tuple(sorted(spaces, key=repr))
        self._place: dict[bytes, int] = {}
        self._scores: Scores | None = None

    def read(self, masks: Masks, *, fitted: bool = True) -> None:
        """Score the masks that have not been scored.

        Args:
            masks: The masks.
            fitted: Whether to compute the divergences, distances and question scores of the fits too.
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
            cached=self._cached,
            question=self._question and fitted,
        )
        start = 0 if self._scores is None else len(self._scores.masks)
        self._scores = new if self._scores is None else join(self._scores, new)
        for offset, mask in enumerate(rows):
            self._place.setdefault(mask.tobytes(), start + offset)

    def scores(self, masks: Masks) -> Scores:
        """The scores of some masks, the unmasked prompt first."""
        assert self._scores is not None
        ones = np.ones((1, masks.shape[1]), dtype=bool)
        rows = [self._place[m.tobytes()] for m in np.concatenate([ones, masks])]
        return self._scores.select(rows)

    def logprob(self, masks: Masks) -> Floats:
        """(N,) log-probability of the whole output under each mask."""
        return np.asarray(self.scores(masks).logprob.sum(1)[1:])

    @property
    def seconds_per_token(self) -> float:
        """Mean time per token over all scores."""
        assert self._scores is not None
        return self._scores.seconds / max(1, int(self._scores.tokens.sum()))


@dataclass(frozen=True)
class _Fitted:
    """What one method made of its scores.

    Attributes:
        method: The method.
        attribution: Its weights.
        scores: The scores that were fitted.
        seconds: The time of the fit.
    """

    method: Method
    attribution: Attribution
    scores: Scores
    seconds: float


@dataclass(frozen=True)
class _Extent:
    """What is computed for each example beside the agreement with labels and LDS.

    Attributes:
        curves: The top-k drops and both curves.
        detail: Indicators of trust and tokens run.
        intervals: Coverage of the intervals, in every third example.
    """

    curves: bool
    detail: bool
    intervals: bool


def _example(
    example: Example, methods: Sequence[Method], scorer: Scorer, seed: tuple[int, int], extent: _Extent
) -> list[Row]:
    n, gold = len(example.spans), example.gold
    readers: dict[str, Reader] = {
        kind: Reader(scorer, methods, cached=kind == "cached") for kind in SCORING
    }
    reader = readers["exact"]
    unseen = held_out(n, np.random.default_rng([*seed, 1]))
    read = _read_all(methods, n, seed, readers)
    reader.read(unseen, fitted=False)
    fits = [_fit(m, read) for m in methods]
    plans = [plan(f.attribution.normalized_weights) for f in fits] if extent.curves else []
    if plans:
        reader.read(np.concatenate([curve.masks for curve in plans]), fitted=False)
    intervals = extent.intervals and seed[1] % _EVERY == 0
    known = coverage.reference(n, seed, readers) if intervals else {}

    rows: list[Row] = []
    full = float(reader.scores(unseen).logprob[0].sum())
    true = reader.logprob(unseen)
    for number, f in enumerate(fits):
        weights = f.attribution.normalized_weights
        row = asdict(agreement(weights, gold)) if gold.any() else dict(_UNLABELLED)
        row["lds"] = spearman(unseen @ f.attribution.weights, true)
        if plans:
            curve = plans[number]
            row |= follow(curve, reader.logprob(curve.masks), full, f.scores.logprob.shape[1])
        if extent.detail:
            row |= coverage.details(f.method, f.attribution, f.scores, gold, scorer, known)
        tokens = int(f.scores.tokens.sum())
        seconds = tokens * readers[f.method.scoring].seconds_per_token + f.seconds
        cost = {"masks": len(f.scores.masks), "tokens": tokens, "seconds": round(seconds, 4)}
        rows.append({"method": f.method.name, **_rounded(row), **cost})
    expected = asdict(chance(n, int(gold.sum()))) if gold.any() else dict(_UNLABELLED)
    return [*rows, {"method": CHANCE, **_rounded(expected)}]


def _fit(m: Method, read: dict[str, Scores]) -> _Fitted:
    scores = read[m.name]
    if m.tokens_of:
        most = read[m.tokens_of].tokens.sum()
        affordable = int((np.cumsum(scores.tokens) <= most).sum())
        scores = scores.select(list(range(max(2, affordable))))
    start = time.perf_counter()
    fitted = fit(scores.fitted() if m.preset else scores, m.recipe, tokens=False)
    return _Fitted(m, fitted, scores, time.perf_counter() - start)


def _read_all(
    methods: Sequence[Method], n: int, seed: tuple[int, int], readers: dict[str, Reader]
) -> dict[str, Scores]:
    """The scores of every method, round by round.

    Every method draws from the same seed, so settings that differ in size only share masks.
    """
    plans = {m.name: m.rounds(n, seed) for m in methods}
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


def _rounded(figures: dict[str, float | None]) -> dict[str, Any]:
    return {k: None if v is None else round(v, 6) for k, v in figures.items()}
