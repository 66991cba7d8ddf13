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
from ropelime.method.scores import Ints, Masks, Passes, join
from ropelime.registry import describe, unknown
from ropelime.results.explanation import Cost, Explanation, build
from ropelime.surrogate import FunctionSurrogate, Job, Removal, Surrogate, check_only_output
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
READINGS = ("exact", "cheap")
_CONTRAST = "contrast"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How to explain, whatever the prompt: the options of :func:`ropelime.explain`."""

    features: str | Sequence[Span] = "sentence"
    sampler: object = None
    target: object = None
    kernel: object = None
    regressor: object = None
    removal: str | Removal = "delete"
    readings: str | None = None
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
        if self.readings is not None and self.readings not in READINGS:
            raise unknown("readings", self.readings, READINGS)
        removal = Removal.of(self.removal)
        if self.readings == "cheap" and removal.how != "delete":
            raise InputError(
                f"Cheap readings hide features and cannot honour removal={str(removal)!r}."
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
        if any(getattr(model, "only_output", False) for model in models):
            check_only_output(
                kl=recipe.target.needs_kl,
                spaces=recipe.kernel.space is not None,
                cheap=choices.readings == "cheap",
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
        self.removal = Removal.of(choices.removal)
        cut = choices.features
        self.scorer = surrogate.prepare(prompt, cut, output, removal=self.removal)
        self.n = len(self.scorer.features)
        self.other = None
        if choices.instead_of is not None:
            if isinstance(surrogate, FunctionSurrogate):
                raise InputError(
                    "A function of masks does not see the answer, so it cannot tell this one from "
                    "instead_of. Use a model, or an object with prepare() that is given the output."
                )
            self.other = surrogate.prepare(prompt, cut, choices.instead_of, removal=self.removal)
        self.cheap, self.notes = self._readings()
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
            cheap=self.cheap,
            seed=choices.seed,
        )
        self._seconds = time.perf_counter() - start  # its own: others may be under way beside it

    def _readings(self) -> tuple[bool, list[str]]:
        """Whether readings are cheap, and what to say about it."""
        wanted = self.choices.readings
        if (wanted or PRESETS[self.choices.preset].readings) != "cheap":
            return False, []
        if wanted is None and self.removal.how != "delete":
            return False, [_NOT_CHEAP.format(f"With removal={str(self.removal)!r} there are")]
        scorers = [self.scorer, *([] if self.other is None else [self.other])]
        if wanted is None and not all(scorer.looks_back for scorer in scorers):
            return False, [_NOT_CHEAP.format("The surrogate has")]
        return True, [_CHEAP]

    def _cost(self, masks: Masks, *, cheap: bool) -> Ints:
        """(N,) tokens that reading each mask takes, of the other answer too."""
        cost = self.scorer.cost(masks, cheap=cheap)
        return cost if self.other is None else cost + self.other.cost(masks, cheap=cheap)

    def jobs(self, order: Order) -> list[Job]:
        """What the surrogate has to read: of this answer, and of the other if there is one."""
        masks = np.concatenate([np.ones((1, self.n), bool), order.masks])
        kernel = self.recipe.kernel
        spaces = (kernel.space,) if kernel.space else ()
        first = Job(self.scorer, masks, self.recipe.target.needs_kl, spaces, order.cheap, self.asks)
        if self.other is None:
            return [first]
        return [first, Job(self.other, masks, cheap=order.cheap, beside=True)]

    @staticmethod
    def joined(read: Sequence[Passes]) -> Passes:
        """The readings of this answer, with those of the other beside them."""
        if len(read) == 1:
            return read[0]
        ours, other = read
        return replace(
            ours,
            instead=other.logprob,
            tokens=ours.tokens + other.tokens,
            scored=ours.scored + other.scored,
            seconds=ours.seconds + other.seconds,
        )

    def steps(
        self, before: Explanation | None = None, more: int = 0
    ) -> Generator[Order, Passes, Explanation]:
        """Yields what to read next, and is sent the readings of it, the unmasked prompt first.

        Args:
            before: An explanation of the same whose readings shall be added to, and
            more: by how many masks.
        """
        self._resumed = time.perf_counter()
        passes: Passes | None = None
        pairs: tuple[Interaction, ...] = ()
        besides = also_read = 0  # tokens and masks that were read for anything but the fit
        if before is None:
            reading = self.plan.orders(self.n, self._cost)
        else:
            passes = before.passes
            pairs = before.interactions
            besides = before.cost.tokens - passes.scored
            also_read = before.cost.passes - _distinct(passes)
            reading = self.plan.further_orders(passes, before.config["masks"], more)
        order = next(reading)
        while True:
            new = yield from self._read(order)
            passes = new if passes is None else join(passes, new.select(np.arange(1, len(new.masks))))
            try:
                order = reading.send(passes)
            except StopIteration as stop:
                outcome: Outcome = stop.value
                break
        if self.choices.interactions:
            fitted = attribute(passes.fitted(), self.recipe, tokens=False)
            wanted = candidates(fitted.weights, len(passes.masks))
            new = yield from self._read(Order(wanted.masks, self.cheap))
            pairs = found(wanted, new)
            besides += new.scored
            also_read = len(wanted.masks)
        return build(
            self.prompt,
            self.output,
            self.scorer.features,
            self.scorer.output_spans,
            passes,
            self.recipe,
            self.config(outcome),
            span=(0, len(self.output)),
            cost=Cost(
                _distinct(passes) + also_read,
                passes.scored + besides,
                self._seconds + time.perf_counter() - self._resumed,
            ),
            asked=outcome.asked,
            notes=tuple(filter(None, (*outcome.notes, passes.note, *self.notes))),
            interactions=pairs,
        )

    def _read(self, order: Order) -> Generator[Order, Passes, Passes]:
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
            "removal": str(self.removal),
            "readings": "cheap" if self.cheap else "exact",
            "budget": str(Budget.of(chosen.budget)),
            "masks": dict(outcome.counts),
            "seed": chosen.seed,
            "interactions": chosen.interactions,
            "instead_of": chosen.instead_of,
        }


def _distinct(passes: Passes) -> int:
    """Masked prompts that were read; one that was read cheaply and exactly counts twice."""
    return len(np.unique(np.column_stack([passes.masks, passes.exact]), axis=0))
