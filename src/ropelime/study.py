"""One prompt with one answer, ready to be explained: what to read next, and what it came to."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropelime._version import __version__
from ropelime.budget import Budget
from ropelime.errors import InputError
from ropelime.method.attribution import Recipe, attribute
from ropelime.method.interactions import Interaction, candidates, found
from ropelime.method.rounds import PRESETS, Order, Outcome, Plan, make_plan
from ropelime.method.samplers import resolve_sampler
from ropelime.method.scores import Ints, Masks, Scores, join
from ropelime.registry import describe, unknown
from ropelime.results.explanation import Cost, Explanation, build
from ropelime.surrogate import Ablation, ScoreRequest, Surrogate, check_only_output
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, Span

_CHEAP = (
    "Readings are cheap: the removed features were hidden from what follows the last one, but the kept "
    "ones had seen them. Masks that cut into the very end of the prompt were read exactly."
)
_NOT_CHEAP = "{} no cheap readings of this prompt: every masked prompt was read exactly."
_QUESTION = (
    "A feature counts for what it does to the answer and{} for what it does to the question before it. "
    "For the answer alone: target='shift'."
)
_INSTEAD = "Weights say what speaks for this answer and against {!r}: negative ones speak for that one."
SCORING = ("exact", "cached")
_CONTRAST = "contrast"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How to explain, whatever the prompt: the options of :func:`ropelime.explain`."""

    features: str | Sequence[Span] = "sentence"
    sampler: object = None
    target: object = None
    kernel: object = None
    regressor: object = None
    ablation: str | Ablation = "delete"
    scoring: str | None = None
    budget: object = "auto"
    seed: int = 0
    preset: str = "evidence"
    interactions: bool = False
    instead_of: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is wrong before a model is loaded."""
        if self.preset not in PRESETS:
            raise unknown("preset", self.preset, PRESETS)
        Budget.of(self.budget)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed must be a whole number that is not negative, not {self.seed!r}.")
        if self.scoring is not None and self.scoring not in SCORING:
            raise unknown("scoring", self.scoring, SCORING)
        ablation = Ablation.of(self.ablation)
        if self.scoring == "cached" and ablation.how != "delete":
            raise InputError(
                f"Cheap readings hide features and cannot honour ablation={str(ablation)!r}."
            )
        recipe = self.recipe()
        named = recipe.describe()["target"].get("name")
        if (named == _CONTRAST) != (self.instead_of is not None):
            raise InputError(
                f"instead_of='another answer' and target={_CONTRAST!r} go together; "
                f"got target={named!r}."
            )
        if self.sampler is not None:
            resolve_sampler(self.sampler)

    def recipe(self) -> Recipe:
        """The strategies that were given, and the preset's for those that were not."""
        preset = PRESETS[self.preset]
        target = preset.target if self.instead_of is None else _CONTRAST
        return Recipe.of(
            target if self.target is None else self.target,
            preset.kernel if self.kernel is None else self.kernel,
            preset.regressor if self.regressor is None else self.regressor,
        )


def check_suits(models: Sequence[Surrogate], choices: Choices, also: str | None = None) -> None:
    """Refuse what one of the models has no readings for, before any of them has made one."""
    wanted = [choices, *([] if also is None else [replace(choices, preset=also)])]
    for recipe in (chosen.recipe() for chosen in wanted):
        if any(model.only_output for model in models):
            check_only_output(
                kl=recipe.target.needs_kl,
                spaces=recipe.kernel.space is not None,
                cached=choices.scoring == "cached",
            )


class Study:
    """One prompt with one answer, made ready for one surrogate."""

    def __init__(self, prompt: Prompt, output: str, surrogate: Surrogate, choices: Choices) -> None:
        """Cut the prompt and tokenise it; nothing is read yet."""
        start = time.perf_counter()
        check_suits([surrogate], choices)
        self.prompt, self.output, self.choices = prompt, output, choices
        self.surrogate = surrogate
        self.recipe = choices.recipe()
        self.ablation = Ablation.of(choices.ablation)
        self.features = split(prompt, choices.features, token_spans=surrogate.token_spans)
        self.scorer = surrogate.prepare(prompt, self.features, output, ablation=self.ablation)
        self.n = len(self.features)
        self.other = None
        if choices.instead_of is not None:
            if not surrogate.sees_output:
                raise InputError(
                    "A function of masks does not see the answer, so it cannot tell this one from "
                    "instead_of. Use a model, or a Surrogate whose prepare() heeds the output."
                )
            self.other = surrogate.prepare(
                prompt, self.features, choices.instead_of, ablation=self.ablation
            )
        self.cached, self.notes = self._readings()
        self.asks = self.recipe.target.reads_question and self.scorer.has_question
        if self.asks:
            share = getattr(self.recipe.target, "question", 1.0)
            words = ", as much," if share == 1 else f", times {share:g},"
            self.notes.append(_QUESTION.format(words))
        if choices.instead_of is not None:
            self.notes.append(_INSTEAD.format(choices.instead_of))
        self.plan: Plan = make_plan(
            choices.preset,
            self.recipe,
            sampler=choices.sampler,
            budget=Budget.of(choices.budget),
            cached=self.cached,
            seed=choices.seed,
        )
        self._seconds = time.perf_counter() - start  # its own: others may be under way beside it

    def _readings(self) -> tuple[bool, list[str]]:
        """Whether readings are cheap, and what to say about it."""
        wanted = self.choices.scoring
        if (wanted or PRESETS[self.choices.preset].scoring) != "cached":
            return False, []
        if wanted is None and self.ablation.how != "delete":
            return False, [_NOT_CHEAP.format(f"With ablation={str(self.ablation)!r} there are")]
        scorers = [self.scorer, *([] if self.other is None else [self.other])]
        if wanted is None and not all(scorer.supports_cached for scorer in scorers):
            return False, [_NOT_CHEAP.format("The surrogate has")]
        return True, [_CHEAP]

    def _cost(self, masks: Masks, *, cached: bool) -> Ints:
        """(N,) tokens that reading each mask takes, of the other answer too."""
        cost = self.scorer.cost(masks, cached=cached)
        return cost if self.other is None else cost + self.other.cost(masks, cached=cached)

    def requests(self, order: Order) -> list[ScoreRequest]:
        """What the surrogate has to read: of this answer, and of the other if there is one."""
        masks = np.concatenate([np.ones((1, self.n), bool), order.masks])
        kernel = self.recipe.kernel
        spaces = (kernel.space,) if kernel.space else ()
        needs_kl = self.recipe.target.needs_kl
        first = ScoreRequest(self.scorer, masks, needs_kl, spaces, order.cached, self.asks)
        if self.other is None:
            return [first]
        return [first, ScoreRequest(self.other, masks, cached=order.cached, shares_previous=True)]

    @staticmethod
    def joined(read: Sequence[Scores]) -> Scores:
        """The readings of this answer, with those of the other beside them."""
        if len(read) == 1:
            return read[0]
        ours, other = read
        return replace(
            ours,
            alternative=other.logprob,
            tokens=ours.tokens + other.tokens,
            tokens_run=ours.tokens_run + other.tokens_run,
            seconds=ours.seconds + other.seconds,
        )

    def steps(
        self, before: Explanation | None = None, more: int = 0
    ) -> Generator[Order, Scores, Explanation]:
        """Yields what to read next, and is sent the readings of it, the unmasked prompt first.

        Args:
            before: An explanation of the same whose readings shall be added to, and
            more: by how many masks.
        """
        self._resumed = time.perf_counter()
        scores: Scores | None = None
        pairs: tuple[Interaction, ...] = ()
        besides = also_read = 0  # tokens and masks that were read for anything but the fit
        if before is None:
            reading = self.plan.orders(self.n, self._cost)
        else:
            scores = before.surrogate_scores
            pairs = before.interactions
            besides = before.cost.tokens - scores.tokens_run
            also_read = before.cost.masks - _distinct(scores)
            reading = self.plan.further_orders(scores, before.config["masks"], more)
        order = next(reading)
        while True:
            new = yield from self._read(order)
            scores = new if scores is None else join(scores, new.select(np.arange(1, len(new.masks))))
            try:
                order = reading.send(scores)
            except StopIteration as stop:
                outcome: Outcome = stop.value
                break
        if self.choices.interactions:
            fitted = attribute(scores.fitted(), self.recipe, tokens=False)
            wanted = candidates(fitted.weights, len(scores.masks))
            new = yield from self._read(Order(wanted.masks, self.cached))
            pairs = found(wanted, new)
            besides += new.tokens_run
            also_read = len(wanted.masks)
        return build(
            self.prompt,
            self.output,
            self.features,
            self.scorer.output_spans,
            scores,
            self.recipe,
            self.config(outcome),
            span=(0, len(self.output)),
            cost=Cost(
                _distinct(scores) + also_read,
                scores.tokens_run + besides,
                self._seconds + time.perf_counter() - self._resumed,
            ),
            requested=outcome.requested,
            notes=tuple(filter(None, (*outcome.notes, scores.note, *self.notes))),
            interactions=pairs,
        )

    def _read(self, order: Order) -> Generator[Order, Scores, Scores]:
        """Ask for readings; of the time until they come only what they took counts."""
        self._seconds += time.perf_counter() - self._resumed
        new = yield order
        self._seconds += new.seconds
        self._resumed = time.perf_counter()
        return new

    def config(self, outcome: Outcome) -> dict[str, Any]:
        """Every choice that was made."""
        chosen = self.choices
        cut = chosen.features
        return {
            "ropelime": __version__,
            "preset": chosen.preset,
            "features": cut if isinstance(cut, str) else "spans",
            "surrogate": self.surrogate.describe(),
            "sampler": describe(self.plan.sampler),
            **self.recipe.describe(),
            "unit": self.recipe.target.unit,
            "ablation": str(self.ablation),
            "scoring": "cached" if self.cached else "exact",
            "budget": str(Budget.of(chosen.budget)),
            "masks": dict(outcome.counts),
            "seed": chosen.seed,
            "interactions": chosen.interactions,
            "instead_of": chosen.instead_of,
        }


def _distinct(scores: Scores) -> int:
    """Masked prompts that were read; one that was read cheaply and exactly counts twice."""
    return len(np.unique(np.column_stack([scores.masks, scores.exact]), axis=0))
