"""A method that is compared: options by name, and what it is charged for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ropelime.method.attribution import Recipe
from ropelime.method.samplers import Sample, Sampler
from ropelime.method.schedule import FollowUp, Schedule
from ropelime.method.scores import Scores
from ropelime.options import PRESETS, Options, PresetName, Scoring
from ropelime.results.explanation import ExplanationData
from ropelime.surrogate import Ablation, Scorer
from ropelime.text.prompt import Span
from ropelime.typing import Ints


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Options):
    """Options with what only experiments vary.

    Attributes:
        entropy: Seed of the masks: that of the experiment, and the number of the example.
        exact: Exact scores on top of the cached ones, for as many masks of the same sampler.
    """

    entropy: tuple[int, ...] = field(default=(0,), metadata={"parse": tuple})
    exact: int = field(default=0, metadata={"parse": int})

    def schedule(self, *, cached: bool) -> Schedule:
        """As the options decide, drawn from ``entropy``; the exact scores come in a second round."""
        schedule = replace(super().schedule(cached=cached), seed=self.entropy)
        if not self.exact:
            return schedule
        more = FollowUp("", self.exact, cached=False)
        return replace(schedule, follow_up=lambda scores, recipe: more)


@dataclass(frozen=True)
class First(Sampler):
    """The masks that another sampler draws first.

    Attributes:
        sampler: The other sampler.
        count: How many of its masks.
    """

    sampler: Sampler
    count: int
    name: ClassVar[str] = "first"

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Draw as the other sampler does, and keep the first masks."""
        drawn = self.sampler.sample(n, budget=budget, rng=rng)
        return replace(drawn, masks=drawn.masks[: self.count])


@dataclass(frozen=True)
class Method:
    """One way to attribute an answer.

    Attributes:
        name: What the tables call it.
        options: How it explains, whatever the example.
        tokens_of: Another method with a sampler of its own, whose tokens are the budget of this one.
    """

    name: str
    options: MethodOptions
    tokens_of: str | None = None

    @property
    def preset(self) -> str | None:
        """The preset whose masks and strategies it takes, if any."""
        return self.options.preset if self.options.sampler is None else None

    @property
    def scoring(self) -> Scoring | None:
        """``"exact"`` or ``"cached"``."""
        return self.options.scoring

    @property
    def recipe(self) -> Recipe:
        """Its target, kernel and regressor."""
        return self.options.recipe

    def scores(self, e: ExplanationData) -> Scores:
        """The scores that it is charged for: only presets need the prompt with no feature."""
        return e.surrogate_scores if self.preset else e.surrogate_scores.fitted()

    def costs(self, n: int, entropy: tuple[int, ...], scorer: Scorer) -> Ints:
        """(N,) tokens of the full prompt and of each of its masks."""
        drawn = self.options.sampler.sample(n, budget=None, rng=np.random.default_rng(entropy))
        masks = np.concatenate([np.ones((1, n), dtype=bool), drawn.masks])
        return scorer.cost(masks, cached=self.scoring == "cached")


def method(
    name: str,
    sampler: object,
    target: object,
    kernel: object,
    regressor: object,
    tokens_of: str | None = None,
    *,
    scoring: Scoring = "exact",
    exact: int = 0,
) -> Method:
    """A method from names or objects."""
    options = MethodOptions(
        sampler=sampler,
        target=target,
        kernel=kernel,
        regressor=regressor,
        scoring=scoring,
        exact=exact,
    )
    return Method(name, options, tokens_of)


def preset(name: PresetName) -> Method:
    """One of the presets of :func:`ropelime.explain`, with its automatic budget."""
    return Method(name, MethodOptions(preset=name, scoring=PRESETS[name].scoring))


def options_of(
    methods: Sequence[Method],
    scorer: Scorer,
    *,
    features: Sequence[Span],
    ablation: Ablation,
    entropy: tuple[int, ...],
) -> list[MethodOptions]:
    """The options of each method for one example.

    Every method draws from the same seed, so settings that differ in size only share masks.

    Args:
        methods: The methods.
        scorer: Says what masks of the example cost.
        features: Its features, as spans of the prompt.
        ablation: How they are removed.
        entropy: The seed of its masks.
    """
    n, named = len(features), {m.name: m for m in methods}
    found = []
    for m in methods:
        sampler = m.options.sampler
        if m.tokens_of:
            tokens = named[m.tokens_of].costs(n, entropy, scorer).sum()
            affordable = int((np.cumsum(m.costs(n, entropy, scorer)) <= tokens).sum())
            # The full prompt is one of them; a fit needs at least one mask besides.
            sampler = First(sampler, max(1, affordable - 1))
        varied = {"features": features, "ablation": ablation, "entropy": entropy, "sampler": sampler}
        found.append(replace(m.options, **varied))
    return found
