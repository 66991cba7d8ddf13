"""What to read next, by what was read so far: presets, and budgets that stop by themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ropelime.budget import Budget
from ropelime.errors import InputError
from ropelime.method.attribution import Recipe, attribute
from ropelime.method.regression import check_enough
from ropelime.method.samplers import Sample, Sampler, resolve_sampler
from ropelime.method.scores import Ints, Masks, Scores

_FIRST_ROUND = 4  # masks that are read to learn how long one takes, where seconds are limited
_MARGIN = 0.9  # of the time that is left is planned for: the last readings take as long as they take
# Evidence goes on where the answer needs the features (nats), but no single one of them: all single
# drops together are less than this part of what is lost without any.
_NEEDED, _UNEXPLAINED = 1.0, 0.25
_MORE = 64
_BOTH = "Exact readings were made beside cheap ones; the fit joins both."
# A cheap faithful fit stands if one feature has this share of it: then cheap and exact agree.
_CLEAR = 0.18


@dataclass(frozen=True)
class Order:
    """Masks to be read, on top of the full prompt.

    Attributes:
        masks: (N, n).
        cached: Whether cheap readings will do.
    """

    masks: Masks
    cached: bool = False


@dataclass(frozen=True)
class Preset:
    """Strategies that go together.

    Attributes:
        scoring: How masks are read where nothing else was asked for.
        sampler: Which masks.
        target: What the fit explains.
        kernel: How much each reading counts.
        regressor: How to fit.
        exact_sampler: Which masks where cheap readings were not wanted or are not to be had.
        further: Whether the first readings call for more, and which kind.
    """

    scoring: str
    sampler: str
    target: str
    kernel: str
    regressor: str
    exact_sampler: str
    further: Callable[[Scores, Recipe], Further | None] = lambda scores, recipe: None


@dataclass(frozen=True)
class Further:
    """What to read when the first readings have not settled it.

    Attributes:
        why: A sentence for the reader of the result.
        masks: How many.
        cached: Whether on top of the first ones and cheap, or exact ones from the start.
    """

    why: str
    masks: int
    cached: bool


def _unexplained(scores: Scores, recipe: Recipe) -> Further | None:
    """More masks where several features say the same: without either the answer stays."""
    said = scores.logprob.sum(1)
    lost = said[0] - said[1]
    single = scores.masks.sum(1) == scores.masks.shape[1] - 1
    if lost < _NEEDED or np.maximum(said[0] - said[single], 0).sum() >= _UNEXPLAINED * lost:
        return None
    why = (
        "The answer needs these features but no single one of them: several may say the same. Halves "
        "of the prompt were removed too."
    )
    return Further(why, _MORE, cached=True)


def _unclear(scores: Scores, recipe: Recipe) -> Further | None:
    """Exact readings where no feature stands out among the cheap ones."""
    fitted = attribute(scores.fitted(), recipe, tokens=False)
    if fitted.normalized_weights.max() >= _CLEAR:
        return None
    why = "No feature stood out in cheap readings, so exact ones were made too; the fit joins both."
    return Further(why, _MORE, cached=False)


PRESETS = {
    # Which parts would a person cite for this answer? Every feature is hidden once.
    "evidence": Preset(
        "cached",
        "leave-one-out-first",
        "evidence",
        "uniform",
        "wls",
        "leave-one-out-first",
        _unexplained,
    ),
    # Which parts foretell the probability of the answer when others go too? Random halves.
    "faithful": Preset(
        "cached", "hadamard:128", "nll", "uniform", "bayes-ridge", "hadamard:64", _unclear
    ),
    # The paper to the letter: Sparse-K at its best setting for the number of features.
    "paper": Preset("exact", "sparse-k-best", "kl", "rope-rwmd", "wls", "sparse-k-best"),
}


class Costs(Protocol):
    """Says what masks would cost."""

    def __call__(self, masks: Masks, *, cached: bool) -> Ints:
        """(N,) tokens of each."""
        ...


@dataclass(frozen=True)
class Plan:
    """Everything that decides which masks are read.

    Attributes:
        sampler: Draws the masks.
        recipe: What will be made of them.
        budget: How many there may be.
        cached: Whether they are read cheaply.
        seed: Seed of the masks.
        further: Whether the first readings call for more; nothing does if not given.
    """

    sampler: Sampler
    recipe: Recipe
    budget: Budget
    cached: bool
    seed: int | tuple[int, ...]
    further: Callable[[Scores, Recipe], Further | None] | None = None

    def draw(self, n: int, count: int | None) -> Sample:
        """Masks of n features: as many as the sampler finds right, or at most so many."""
        return self.sampler.sample(n, budget=count, rng=np.random.default_rng(self.seed))

    def orders(self, n: int, costs: Costs) -> Generator[Order, Scores, Outcome]:
        """Yields what to read next and is sent all that was read, the unmasked prompt first."""
        empty = np.zeros((1, n), bool)
        if self.budget.seconds is not None:
            return (yield from self._timed(n, costs))
        drawn = self.draw(n, self.budget.masks)
        if self.budget.tokens is not None:
            drawn = self._affordable(n, drawn, costs, self.budget.tokens)
        check_enough(self.recipe.regressor, len(drawn.masks) + 1)  # before any is paid for
        scores = yield Order(np.concatenate([empty, drawn.masks]), self.cached)
        counts = {_kind(self.cached): len(drawn.masks)}
        more = self.further(scores, self.recipe) if self.further and self.budget.auto else None
        if more is None:
            return Outcome(drawn.requested, counts, (drawn.note,))
        begun = len(drawn.masks) if more.cached == self.cached else 0
        follow = self.draw(n, begun + more.masks)
        fresh = follow.masks[begun:]
        if not more.cached:  # some had to be read exactly already
            fresh = _unread(fresh, scores.masks[scores.exact])
        if len(fresh):
            yield Order(fresh, more.cached)
        counts[_kind(more.cached)] = len(follow.masks)
        return Outcome(drawn.requested + more.masks, counts, (drawn.note, follow.note, more.why))

    def further_orders(
        self, scores: Scores, counts: Mapping[str, int], more: int
    ) -> Generator[Order, Scores, Outcome]:
        """The masks that a longer run would have read on top of those that were read.

        Args:
            scores: What was read.
            counts: How many masks were drawn for it, by how they were read.
            more: How many to add: exact ones where the fit can join them to cheap ones.
        """
        n = scores.masks.shape[1]
        exact = "exact" in counts or hasattr(self.recipe.regressor, "fit_mixed")
        kind = _kind(not exact)
        read = scores.masks[scores.exact] if exact else scores.masks
        want = counts.get(kind, 0) + more
        while True:
            drawn = self.draw(n, want)
            fresh = _unread(drawn.masks, read)[:more]
            if len(fresh) == more or len(drawn.masks) < want:
                break
            want += more - len(fresh)  # some were read already, though not drawn to be read like this
        if not len(fresh):
            raise InputError(f"There are no more masks to read. {drawn.note}".rstrip())
        yield Order(fresh, not exact)
        total = counts.get(kind, 0) + len(fresh)
        counts = {**counts, kind: total}
        notes = (drawn.note, _BOTH if len(counts) > 1 else "")
        return Outcome(sum(counts.values()), counts, notes)

    def _shuffled(self, count: int) -> Ints:
        """An order in which any beginning is a fair part of all masks."""
        return np.random.default_rng([*np.atleast_1d(self.seed).tolist(), 1]).permutation(count)

    def _affordable(self, n: int, drawn: Sample, costs: Costs, tokens: int) -> Sample:
        """As many masks as there are tokens for, a random part where the sampler has more."""
        ends = np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool)])
        left = tokens - int(costs(ends, cached=self.cached).sum())
        prices = costs(drawn.masks, cached=self.cached)
        each = max(1.0, float(prices.mean()))
        if left < prices.max():
            least = tokens - left + int(prices.max())
            raise InputError(
                f"A budget of {tokens:,} tokens is too small: the prompt with all features, with none "
                f"and under one mask takes up to {least:,}."
            )
        fitting = self.draw(n, max(1, round(left / each)))  # those may cost a little more or less
        order = self._shuffled(len(fitting.masks))
        spent = np.cumsum(costs(fitting.masks[order], cached=self.cached))
        some = np.sort(order[: max(1, int((spent <= left).sum()))])
        return Sample(fitting.masks[some], fitting.requested, fitting.note)

    def _timed(self, n: int, costs: Costs) -> Generator[Order, Scores, Outcome]:
        """Rounds of masks until the time is over."""
        assert self.budget.seconds is not None
        everything = self.draw(n, None)
        masks = everything.masks[self._shuffled(len(everything.masks))]
        check_enough(self.recipe.regressor, len(masks) + 1)
        done = min(len(masks), max(_FIRST_ROUND, getattr(self.recipe.regressor, "least_scores", 1)))
        scores = yield Order(np.concatenate([np.zeros((1, n), bool), masks[:done]]), self.cached)
        prices = costs(masks, cached=self.cached)
        full = int(costs(np.ones((1, n), bool), cached=self.cached)[0])
        while done < len(masks):
            a_second = scores.tokens.sum() / max(scores.seconds, 1e-9)
            tokens = _MARGIN * a_second * (self.budget.seconds - scores.seconds)
            spent = np.cumsum(prices[done:]) + full  # each round reads the full prompt again
            fitting = int((spent <= tokens).sum())
            if not fitting:
                break
            scores = yield Order(masks[done : done + fitting], self.cached)
            done += fitting
        note = "" if done == len(masks) else f"There was time for {done} of {len(masks)} masks."
        if scores.seconds > self.budget.seconds:
            note = f"{note} Reading them took {scores.seconds:.1f} s, more than was allowed.".lstrip()
        counts = {_kind(self.cached): done}
        return Outcome(len(masks), counts, (everything.note, note))


def _unread(masks: Masks, read: Masks) -> Masks:
    """Those of the masks that are not among the ones that were read."""
    known = {mask.tobytes() for mask in read}
    return masks[[mask.tobytes() not in known for mask in masks]]


def _kind(cached: bool) -> str:
    return "cached" if cached else "exact"


@dataclass(frozen=True)
class Outcome:
    """What a plan came to.

    Attributes:
        asked: How many masks were to be read.
        counts: How many were drawn, by how they were read.
        notes: What was done differently from what was asked, and why.
    """

    requested: int
    counts: dict[str, int]
    notes: tuple[str, ...]


def make_plan(
    preset: str,
    recipe: Recipe,
    *,
    sampler: object,
    budget: Budget,
    cached: bool,
    seed: int | tuple[int, ...],
) -> Plan:
    """The plan of a preset, or of a sampler that was given instead of the preset's.

    Args:
        preset: Name of the preset.
        recipe: What will be made of the readings.
        sampler: A sampler by name or as an object; the preset's if None.
        budget: How much may be read.
        cached: Whether readings are cheap.
        seed: Seed of the masks.
    """
    chosen = PRESETS[preset]
    if sampler is not None:  # whoever chooses the masks gets those and no others
        return Plan(resolve_sampler(sampler), recipe, budget, cached, seed)
    own = chosen.sampler if cached else chosen.exact_sampler
    further = chosen.further if cached == (chosen.scoring == "cached") else None
    return Plan(resolve_sampler(own), recipe, budget, cached, seed, further)
