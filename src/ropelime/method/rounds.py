"""What to read next, by what was read so far: presets, and budgets that stop by themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ropelime.budget import Budget
from ropelime.errors import InputError
from ropelime.method.attribution import Recipe, attribute
from ropelime.method.regression import check_readings
from ropelime.method.samplers import Sample, Sampler, resolve_sampler
from ropelime.method.scores import Ints, Masks, Passes

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
        cheap: Whether cheap readings will do.
    """

    masks: Masks
    cheap: bool = False


@dataclass(frozen=True)
class Preset:
    """Strategies that go together.

    Attributes:
        readings: How masks are read where nothing else was asked for.
        sampler: Which masks.
        target: What the fit explains.
        kernel: How much each reading counts.
        regressor: How to fit.
        exact_sampler: Which masks where cheap readings were not wanted or are not to be had.
        further: Whether the first readings call for more, and which kind.
    """

    readings: str
    sampler: str
    target: str
    kernel: str
    regressor: str
    exact_sampler: str
    further: Callable[[Passes, Recipe], Further | None] = lambda passes, recipe: None


@dataclass(frozen=True)
class Further:
    """What to read when the first readings have not settled it.

    Attributes:
        why: A sentence for the reader of the result.
        masks: How many.
        cheap: Whether on top of the first ones and cheap, or exact ones from the start.
    """

    why: str
    masks: int
    cheap: bool


def _unexplained(passes: Passes, recipe: Recipe) -> Further | None:
    """More masks where several features say the same: without either the answer stays."""
    said = passes.logprob.sum(1)
    lost = said[0] - said[1]
    single = passes.masks.sum(1) == passes.masks.shape[1] - 1
    if lost < _NEEDED or np.maximum(said[0] - said[single], 0).sum() >= _UNEXPLAINED * lost:
        return None
    why = (
        "The answer needs these features but no single one of them: several may say the same. Halves "
        "of the prompt were removed too."
    )
    return Further(why, _MORE, cheap=True)


def _unclear(passes: Passes, recipe: Recipe) -> Further | None:
    """Exact readings where no feature stands out among the cheap ones."""
    fitted = attribute(passes.fitted(), recipe, tokens=False)
    if fitted.scores.max() >= _CLEAR:
        return None
    why = "No feature stood out in cheap readings, so exact ones were made too; the fit joins both."
    return Further(why, _MORE, cheap=False)


PRESETS = {
    # Which parts would a person cite for this answer? Every feature is hidden once.
    "evidence": Preset(
        "cheap", "singles-first", "evidence", "uniform", "wls", "singles-first", _unexplained
    ),
    # Which parts foretell the probability of the answer when others go too? Random halves.
    "faithful": Preset(
        "cheap", "hadamard:128", "nll", "uniform", "bayes-ridge", "hadamard:64", _unclear
    ),
    # The paper to the letter: Sparse-K at its best setting for the number of features.
    "paper": Preset("exact", "sparse-k-best", "kl", "rope-rwmd", "wls", "sparse-k-best"),
}


class Costs(Protocol):
    """Says what masks would cost."""

    def __call__(self, masks: Masks, *, cheap: bool) -> Ints:
        """(N,) tokens of each."""
        ...


@dataclass(frozen=True)
class Plan:
    """Everything that decides which masks are read.

    Attributes:
        sampler: Draws the masks.
        recipe: What will be made of them.
        budget: How many there may be.
        cheap: Whether they are read cheaply.
        seed: Seed of the masks.
        further: Whether the first readings call for more; nothing does if not given.
    """

    sampler: Sampler
    recipe: Recipe
    budget: Budget
    cheap: bool
    seed: int | tuple[int, ...]
    further: Callable[[Passes, Recipe], Further | None] | None = None

    def draw(self, n: int, count: int | None) -> Sample:
        """Masks of n features: as many as the sampler finds right, or at most so many."""
        return self.sampler.sample(n, budget=count, rng=np.random.default_rng(self.seed))

    def orders(self, n: int, costs: Costs) -> Generator[Order, Passes, Outcome]:
        """Yields what to read next and is sent all that was read, the unmasked prompt first."""
        empty = np.zeros((1, n), bool)
        if self.budget.seconds is not None:
            return (yield from self._timed(n, costs))
        drawn = self.draw(n, self.budget.passes)
        if self.budget.tokens is not None:
            drawn = self._affordable(n, drawn, costs, self.budget.tokens)
        check_readings(self.recipe.regressor, len(drawn.masks) + 1)  # before any is paid for
        passes = yield Order(np.concatenate([empty, drawn.masks]), self.cheap)
        counts = {_kind(self.cheap): len(drawn.masks)}
        more = self.further(passes, self.recipe) if self.further and self.budget.auto else None
        if more is None:
            return Outcome(drawn.asked, counts, (drawn.note,))
        begun = len(drawn.masks) if more.cheap == self.cheap else 0
        follow = self.draw(n, begun + more.masks)
        fresh = follow.masks[begun:]
        if not more.cheap:  # some had to be read exactly already
            fresh = _unread(fresh, passes.masks[passes.exact])
        if len(fresh):
            yield Order(fresh, more.cheap)
        counts[_kind(more.cheap)] = len(follow.masks)
        return Outcome(drawn.asked + more.masks, counts, (drawn.note, follow.note, more.why))

    def further_orders(
        self, passes: Passes, counts: Mapping[str, int], more: int
    ) -> Generator[Order, Passes, Outcome]:
        """The masks that a longer run would have read on top of those that were read.

        Args:
            passes: What was read.
            counts: How many masks were drawn for it, by how they were read.
            more: How many to add: exact ones where the fit can join them to cheap ones.
        """
        n = passes.masks.shape[1]
        exact = "exact" in counts or hasattr(self.recipe.regressor, "fit_mixed")
        kind = _kind(not exact)
        read = passes.masks[passes.exact] if exact else passes.masks
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
        left = tokens - int(costs(ends, cheap=self.cheap).sum())
        prices = costs(drawn.masks, cheap=self.cheap)
        each = max(1.0, float(prices.mean()))
        if left < prices.max():
            least = tokens - left + int(prices.max())
            raise InputError(
                f"A budget of {tokens:,} tokens is too small: the prompt with all features, with none "
                f"and under one mask takes up to {least:,}."
            )
        fitting = self.draw(n, max(1, round(left / each)))  # those may cost a little more or less
        order = self._shuffled(len(fitting.masks))
        spent = np.cumsum(costs(fitting.masks[order], cheap=self.cheap))
        some = np.sort(order[: max(1, int((spent <= left).sum()))])
        return Sample(fitting.masks[some], fitting.asked, fitting.note)

    def _timed(self, n: int, costs: Costs) -> Generator[Order, Passes, Outcome]:
        """Rounds of masks until the time is over."""
        assert self.budget.seconds is not None
        everything = self.draw(n, None)
        masks = everything.masks[self._shuffled(len(everything.masks))]
        check_readings(self.recipe.regressor, len(masks) + 1)
        done = min(len(masks), max(_FIRST_ROUND, getattr(self.recipe.regressor, "least_readings", 1)))
        passes = yield Order(np.concatenate([np.zeros((1, n), bool), masks[:done]]), self.cheap)
        prices = costs(masks, cheap=self.cheap)
        full = int(costs(np.ones((1, n), bool), cheap=self.cheap)[0])
        while done < len(masks):
            a_second = passes.tokens.sum() / max(passes.seconds, 1e-9)
            tokens = _MARGIN * a_second * (self.budget.seconds - passes.seconds)
            spent = np.cumsum(prices[done:]) + full  # each round reads the full prompt again
            fitting = int((spent <= tokens).sum())
            if not fitting:
                break
            passes = yield Order(masks[done : done + fitting], self.cheap)
            done += fitting
        note = "" if done == len(masks) else f"There was time for {done} of {len(masks)} masks."
        if passes.seconds > self.budget.seconds:
            note = f"{note} Reading them took {passes.seconds:.1f} s, more than was allowed.".lstrip()
        counts = {_kind(self.cheap): done}
        return Outcome(len(masks), counts, (everything.note, note))


def _unread(masks: Masks, read: Masks) -> Masks:
    """Those of the masks that are not among the ones that were read."""
    known = {mask.tobytes() for mask in read}
    return masks[[mask.tobytes() not in known for mask in masks]]


def _kind(cheap: bool) -> str:
    return "cheap" if cheap else "exact"


@dataclass(frozen=True)
class Outcome:
    """What a plan came to.

    Attributes:
        asked: How many masks were to be read.
        counts: How many were drawn, by how they were read.
        notes: What was done differently from what was asked, and why.
    """

    asked: int
    counts: dict[str, int]
    notes: tuple[str, ...]


def make_plan(
    preset: str,
    recipe: Recipe,
    *,
    sampler: object,
    budget: Budget,
    cheap: bool,
    seed: int | tuple[int, ...],
) -> Plan:
    """The plan of a preset, or of a sampler that was given instead of the preset's.

    Args:
        preset: Name of the preset.
        recipe: What will be made of the readings.
        sampler: A sampler by name or as an object; the preset's if None.
        budget: How much may be read.
        cheap: Whether readings are cheap.
        seed: Seed of the masks.
    """
    chosen = PRESETS[preset]
    if sampler is not None:  # whoever chooses the masks gets those and no others
        return Plan(resolve_sampler(sampler), recipe, budget, cheap, seed)
    own = chosen.sampler if cheap else chosen.exact_sampler
    further = chosen.further if cheap == (chosen.readings == "cheap") else None
    return Plan(resolve_sampler(own), recipe, budget, cheap, seed, further)
