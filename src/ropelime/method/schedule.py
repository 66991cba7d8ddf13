"""Which masks to score next, given the scores so far and the budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.attribution import Recipe, fit
from ropelime.method.groups import grid
from ropelime.method.regression import check_enough
from ropelime.method.samplers import MOST_MASKS, LeaveOneOutFirst, Sample, Sampler
from ropelime.method.scores import Scores
from ropelime.typing import Floats, Ints, Masks

Costs = Callable[[Masks], Ints]  # (N,) tokens that scoring each mask takes

_BUDGET = re.compile(r"\s*(\d[\d,_]{0,15}(?:\.\d{1,9})?)\s*([a-z]*)\s*")
_UNITS = {
    "masks": ("", "mask", "masks", "pass", "passes"),
    "tokens": ("t", "token", "tokens"),
    "seconds": ("s", "sec", "second", "seconds"),
}
_FIRST_ROUND = 4  # masks that show how long one takes, where seconds are limited
_MARGIN = 0.9  # of the remaining time is planned for: the last masks take as long as they take
# Leave-one-out needs more masks where the answer depends on the features (nats), but hardly on any
# single one: all leave-one-out drops together are less than this part of the drop without any feature.
_NEEDED, _UNEXPLAINED = 1.0, 0.25
_MORE = 64
# A fit of cached scores stands if one feature has this normalised weight: then cached and exact agree.
_CLEAR = 0.18
# Leave-one-out is scored in full up to so many tokens, or so many times those of the full prompt.
# Beyond that features are grouped, and all masks take about so many times the full prompt. A token of
# the answer attends to the whole prompt, one of the prompt on average to half of it: so this takes the
# time of up to 6.5 plain forward passes in very long prompts, and of about 5 in those of 2,500 tokens.
_IN_FULL, _IN_FULL_TIMES, _GROUPED_TIMES = 16_384, 2.5, 2.75
_LEAST_GROUPED = 12  # masks
_GROUPED = (
    "{} masks were scored instead of leave-one-out over {} parts and {:,} tokens: parts that share few "
    "words with the answer were removed in groups, which share what they moved by attention."
)


@dataclass(frozen=True)
class Budget:
    """How much scoring an explanation may cost; without any limit, scoring stops by itself."""

    masks: int | None = None  # besides the full prompt and the prompt with no feature
    tokens: int | None = None  # that the surrogate may run
    seconds: float | None = None  # of scoring; how many masks that allows depends on the machine

    def __post_init__(self) -> None:
        for unit, value in vars(self).items():
            if value is not None and value <= 0:
                least = "more than 0" if unit == "seconds" else "at least 1"
                raise InputError(f"budget must be {least}, not {value:g}.")
        if self.masks is not None and self.masks > MOST_MASKS:
            raise InputError(f"budget must be at most {MOST_MASKS:,} masks, not {self.masks:,}.")

    @classmethod
    def of(cls, spec: object) -> Budget:
        """Read ``"auto"``, a number of masks, ``"20000 tokens"`` or ``"5 seconds"``."""
        if isinstance(spec, cls):
            return spec
        if spec is None or spec == "auto":
            return cls()
        if isinstance(spec, int) and not isinstance(spec, bool):
            return cls(masks=spec)
        found = _BUDGET.fullmatch(spec.lower()) if isinstance(spec, str) else None
        unit = next((unit for unit, names in _UNITS.items() if found and found[2] in names), None)
        if found and unit and (unit == "seconds" or "." not in found[1]):
            number = found[1].replace(",", "").replace("_", "")
            limit: Any = float(number) if unit == "seconds" else int(number)
            return cls(**{unit: limit})
        forms = "'auto', a number of masks, '20000 tokens' or '5 seconds'"
        raise InputError(f"budget must be {forms}, not {spec!r}.")

    def __str__(self) -> str:
        limits = (f"{value} {unit}" for unit, value in vars(self).items() if value is not None)
        return next(limits, "auto")


@dataclass(frozen=True)
class Round:
    """Masks to score next, besides the full prompt: from its KV cache, or exactly.

    ``attention`` says whether that of the answer to the features is needed beside them.
    """

    masks: Masks
    cached: bool = False
    attention: bool = False


@dataclass(frozen=True)
class FollowUp:
    """A second round where the first did not settle the ranking: cached or exact scores."""

    why: str  # a sentence for the reader of the result
    masks: int  # how many
    cached: bool


def if_redundant(scores: Scores, recipe: Recipe) -> FollowUp | None:
    """More masks where several features are redundant: without any one of them the answer stays."""
    logprob, n = scores.output_logprob, scores.masks.shape[1]
    dropped = float((scores.full.output_logprob - scores.empty.output_logprob)[0])
    leave_one_out = scores.masks.sum(1) == n - 1
    single = np.maximum(logprob[0] - logprob[leave_one_out], 0)
    if dropped < _NEEDED or single.sum() >= _UNEXPLAINED * dropped:
        return None
    why = (
        "The answer depends on these features but on no single one of them: several may be redundant. "
        "Random-half masks were scored too."
    )
    return FollowUp(why, _MORE, cached=True)


def if_unclear(scores: Scores, recipe: Recipe) -> FollowUp | None:
    """Exact scores where no feature stands out among the cached ones."""
    if fit(scores.fitted(), recipe, tokens=False).normalized_weights.max() >= _CLEAR:
        return None
    why = "No feature stood out in cached scores, so exact ones were added; the fit uses both."
    return FollowUp(why, _MORE, cached=False)


@dataclass(frozen=True)
class Outcome:
    """What a schedule came to."""

    requested: int  # how many masks were to be scored
    counts: dict[str, int]  # how many were drawn, by how they were scored
    notes: tuple[str, ...]  # how the masks differ from the request, and why


@dataclass(frozen=True)
class Schedule:
    """Everything that decides which masks are scored.

    ``follow_up`` says whether the first scores call for more masks, and of which kind; never if None.
    ``may_group`` says whether groups may take the place of leave-one-out.
    """

    sampler: Sampler
    recipe: Recipe
    budget: Budget
    cached: bool
    seed: int | tuple[int, ...]
    follow_up: Callable[[Scores, Recipe], FollowUp | None] | None = None
    may_group: bool = False

    def draw(self, n: int, count: int | None) -> Sample:
        """Masks of n features: the sampler's own number of them, or at most ``count``."""
        return self.sampler.sample(n, budget=count, rng=np.random.default_rng(self.seed))

    def rounds(
        self, n: int, costs: Costs, words: Floats | None = None
    ) -> Generator[Round, Scores, Outcome]:
        """Yields what to score next and is sent all scores so far, the full prompt first.

        ``words`` (n,) says which features promise most, where the surrogate shows attention: then they
        may be grouped.
        """
        if self.budget.seconds is not None:
            return (yield from self._timed(n, costs))
        if words is not None and (some := self._grouped(n, costs, words)) is not None:
            yield Round(np.concatenate([np.zeros((1, n), bool), some]), self.cached, attention=True)
            each = int(costs(~np.eye(1, n, dtype=bool))[0])
            note = _GROUPED.format(len(some), n, n * each)
            return Outcome(len(some), {_kind(self.cached): len(some)}, (note,))
        drawn = self.draw(n, self.budget.masks)
        if self.budget.tokens is not None and len(drawn.masks):
            drawn = self._affordable(n, drawn, costs, self.budget.tokens)
        check_enough(self.recipe.regressor, len(drawn.masks) + 1)  # before any forward pass
        scores = yield Round(np.concatenate([np.zeros((1, n), bool), drawn.masks]), self.cached)
        counts = {_kind(self.cached): len(drawn.masks)}
        auto = self.budget == Budget()
        more = self.follow_up(scores, self.recipe) if self.follow_up and auto else None
        if more is None:
            return Outcome(drawn.requested, counts, (drawn.note,))
        begun = len(drawn.masks) if more.cached == self.cached else 0
        second = self.draw(n, begun + more.masks)
        fresh = second.masks[begun:]
        if not more.cached:  # some may have been scored exactly already
            fresh = _unscored(fresh, _fitted(scores, exact=True))
        if len(fresh):
            yield Round(fresh, more.cached)
        counts[_kind(more.cached)] = len(second.masks)
        notes = (drawn.note, second.note, more.why)
        return Outcome(drawn.requested + more.masks, counts, notes)

    def more_rounds(
        self, scores: Scores, counts: Mapping[str, int], more: int
    ) -> Generator[Round, Scores, Outcome]:
        """The masks that a longer run would have scored: ``more`` besides those that were.

        They are scored exactly where the fit can join exact scores to cached ones. ``counts`` says how
        many masks were drawn so far, by how they were scored.
        """
        n = scores.masks.shape[1]
        exact = "exact" in counts or self.recipe.regressor.uses_control_variates
        kind = _kind(not exact)
        known = _fitted(scores, exact=exact)
        wanted = counts.get(kind, 0) + more
        while True:
            drawn = self.draw(n, wanted)
            fresh = _unscored(drawn.masks, known)[:more]
            if len(fresh) == more or len(drawn.masks) < wanted:
                break
            wanted += more - len(fresh)  # some were scored already, though not drawn for it
        if not len(fresh):
            raise InputError(f"There are no more masks to score. {drawn.note}".rstrip())
        yield Round(fresh, not exact)
        counts = {**counts, kind: counts.get(kind, 0) + len(fresh)}
        both = "Exact scores were added to cached ones; the fit uses both." if len(counts) > 1 else ""
        return Outcome(sum(counts.values()), counts, (drawn.note, both))

    def _grouped(self, n: int, costs: Costs, words: Floats) -> Masks | None:
        """Masks of groups where leave-one-out would run too many tokens; None where it does not."""
        auto = self.may_group and self.cached and self.budget == Budget()
        if not auto or not isinstance(self.sampler, LeaveOneOutFirst):
            return None
        full = int(costs(np.ones((1, n), bool))[0])
        each = int(costs(~np.eye(1, n, dtype=bool))[0])
        if n * each <= max(_IN_FULL, _IN_FULL_TIMES * full):
            return None
        order = np.argsort(-words, kind="stable")
        masks = grid(order, max(_LEAST_GROUPED, int(_GROUPED_TIMES * full / each)))
        return masks if len(masks) < n else None

    def _shuffled(self, count: int) -> Ints:
        """An order in which any beginning is a fair sample of all masks."""
        return np.random.default_rng([*np.atleast_1d(self.seed).tolist(), 1]).permutation(count)

    def _affordable(self, n: int, drawn: Sample, costs: Costs, tokens: int) -> Sample:
        """As many masks as there are tokens for, a random part where the sampler has more."""
        left = tokens - int(costs(np.repeat([[True], [False]], n, axis=1)).sum())
        prices = costs(drawn.masks)
        if left < prices.max():
            least = tokens - left + int(prices.max())
            raise InputError(
                f"A budget of {tokens:,} tokens is too small: the prompt with all features, with none "
                f"and under one mask takes up to {least:,}."
            )
        # As many masks of the mean price: those drawn now may cost a little more or less.
        count = round(left / max(1.0, float(prices.mean())))
        fitting = self.draw(n, min(max(1, count), MOST_MASKS))
        order = self._shuffled(len(fitting.masks))
        spent = np.cumsum(costs(fitting.masks[order]))
        some = np.sort(order[: max(1, int((spent <= left).sum()))])
        return Sample(fitting.masks[some], fitting.requested, fitting.note)

    def _timed(self, n: int, costs: Costs) -> Generator[Round, Scores, Outcome]:
        """Rounds of masks until the time is over."""
        assert self.budget.seconds is not None
        everything = self.draw(n, None)
        masks = everything.masks[self._shuffled(len(everything.masks))]
        check_enough(self.recipe.regressor, len(masks) + 1)
        done = min(len(masks), max(_FIRST_ROUND, self.recipe.regressor.least_scores))
        scores = yield Round(np.concatenate([np.zeros((1, n), bool), masks[:done]]), self.cached)
        prices = costs(masks) if len(masks) else np.zeros(0, dtype=np.int64)
        full = int(costs(np.ones((1, n), bool))[0])
        while done < len(masks):
            per_second = scores.tokens.sum() / max(scores.seconds, 1e-9)
            tokens = _MARGIN * per_second * (self.budget.seconds - scores.seconds)
            spent = np.cumsum(prices[done:]) + full  # each round scores the full prompt again
            fitting = int((spent <= tokens).sum())
            if not fitting:
                break
            scores = yield Round(masks[done : done + fitting], self.cached)
            done += fitting
        note = "" if done == len(masks) else f"There was time for {done} of {len(masks)} masks."
        if scores.seconds > self.budget.seconds:
            note = f"{note} Scoring took {scores.seconds:.1f} s, more than was allowed.".lstrip()
        return Outcome(len(masks), {_kind(self.cached): done}, (everything.note, note))


def _fitted(scores: Scores, *, exact: bool) -> Masks:
    """The masks that the fit uses, or those that were scored exactly among them.

    The prompt with no feature, which is always scored, is one of them only where it was drawn too.
    """
    fitted = scores.fitted()
    return fitted.masks[fitted.exact] if exact else fitted.masks


def _unscored(masks: Masks, known: Masks) -> Masks:
    """The masks that are not among the known ones."""
    seen = {mask.tobytes() for mask in known}
    return masks[[mask.tobytes() not in seen for mask in masks]]


def _kind(cached: bool) -> str:
    return "cached" if cached else "exact"
