"""The result: what was explained, the share of every feature, and how far to trust it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.attribution import Recipe, attribute
from ropelime.method.interactions import Interaction
from ropelime.method.scores import Floats, Ints, Scores
from ropelime.results.diagnostics import Diagnostics, diagnose
from ropelime.results.trust import Trust, judge
from ropelime.text import segmentation as segment
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span

if TYPE_CHECKING:
    from ropelime.progress import Option
    from ropelime.results.citations import Cited


@dataclass(frozen=True)
class RankedFeature:
    """One feature in a ranking.

    Attributes:
        index: Which feature it is.
        text: Its text.
        score: Its share.
        weight: Its signed weight.
        interval: Ends of the 90 % interval of the weight; None in files of older releases.
        rank: Its place; features that cannot be told apart from the one above share a place.
    """

    index: int
    text: str
    score: float
    weight: float
    interval: tuple[float, float] | None = None
    rank: int = 0


@dataclass(frozen=True)
class Cost:
    """What an explanation cost.

    Attributes:
        masks: Masked prompts that were scored.
        tokens: Tokens that the surrogate ran, shared work counted once.
        seconds: Time it took; not saved, because it belongs to the run and not to the result.
    """

    masks: int
    tokens: int
    seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Explanation:
    """Which parts of a prompt carried an output.

    Attributes:
        prompt: What was sent to the model.
        output: The answer that is explained.
        features: The parts of the prompt that were scored.
        normalized_weights: (n,) magnitudes of the weights, at least 0, sum 1.
        weights: (n,) signed, in ``config["unit"]``; positive supports the output.
        token_weights: (n, T) the same fit for each output token.
        output_spans: Where each output token lies in the output.
        span: The part of the output that the scores are for.
        surrogate_scores: What the surrogate scored: the full prompt, the prompt with no feature, then
            the masks.
        cost: Passes, tokens and seconds.
        diagnostics: How far to trust it.
        config: Every choice that was made.
        recipe: The strategies themselves; a loaded explanation builds them from ``config``.
        intervals: (n, 2) ends of the 90 % interval of each weight; None in files of older releases.
        trust: One number and a sentence on how far to trust it; None in files of older releases.
        interactions: Pairs of features that do not simply add up, the largest effect first; only where
            they were asked for.
        members: The explanation of each surrogate, where several were asked.
        also: The explanation under another preset, where one was asked for.
    """

    prompt: Prompt
    output: str
    features: tuple[Feature, ...]
    normalized_weights: Floats
    weights: Floats
    token_weights: Floats
    output_spans: tuple[Span, ...]
    span: Span
    surrogate_scores: Scores
    cost: Cost
    diagnostics: Diagnostics
    config: Mapping[str, Any]
    recipe: Recipe | None = field(default=None, repr=False)
    intervals: Floats | None = None
    trust: Trust | None = None
    interactions: tuple[Interaction, ...] = ()
    members: tuple[Explanation, ...] = ()
    also: Explanation | None = None

    def __post_init__(self) -> None:
        for array in (self.normalized_weights, self.weights, self.token_weights, self.intervals):
            if array is not None:
                array.setflags(write=False)

    @property
    def normalized_intervals(self) -> Floats | None:
        """(n, 2) ends of the 90 % interval of each share, the sum of all weights taken as it is."""
        if self.intervals is None:
            return None
        total = float(np.abs(self.weights).sum())
        if total == 0:  # the shares are equal for want of anything else
            return np.tile([0.0, 1.0], (len(self.weights), 1))
        with np.errstate(over="ignore"):  # weights of next to nothing
            ends = np.abs(self.intervals) / total
        low = np.where(np.prod(np.sign(self.intervals), 1) > 0, ends.min(1), 0.0)
        return np.stack([low, np.minimum(ends.max(1), 1.0)], 1)

    @property
    def ranks(self) -> Ints:
        """(n,) places in the ranking; features that cannot be told apart share the first of theirs.

        Going down the ranking, a feature takes a new place when the first of the place above lies
        outside its interval.
        """
        order = np.argsort(-self.normalized_weights, kind="stable")
        ranks = np.empty(len(order), dtype=np.int64)
        size = np.abs(self.weights)
        half = np.zeros(len(size)) if self.intervals is None else np.ptp(self.intervals, axis=1) / 2
        first, place = order[0], 1
        for number, i in enumerate(order, 1):
            if size[first] - size[i] > half[i]:
                first, place = i, number
            ranks[i] = place
        return ranks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        first = self.top(1)[0]
        text = first.text.strip()
        shown = text if len(text) <= 60 else text[:57] + "..."
        return (
            f"<Explanation of {self.output[:40]!r} over {len(self.features)} features; "
            f"first is {shown!r} with {first.score:.0%}>"
        )

    def top(self, k: int | None = None) -> list[RankedFeature]:
        """The features by score, the largest first; all of them, or the first ``k``."""
        if k is not None and k < 0:
            raise InputError(f"top() takes a number that is not negative, not {k}.")
        order = np.argsort(-self.normalized_weights, kind="stable")[:k]
        ranks, ends = self.ranks, self.intervals
        return [
            RankedFeature(
                int(i),
                self.features[i].text,
                float(self.normalized_weights[i]),
                float(self.weights[i]),
                None if ends is None else (float(ends[i, 0]), float(ends[i, 1])),
                int(ranks[i]),
            )
            for i in order
        ]

    def for_output(self, start: int, end: int) -> Explanation:
        """The explanation of one span of the output, from the readings that are there.

        Args:
            start: First character of the span in the output.
            end: The character after its last.
        """
        also = None if self.also is None else self.also.for_output(start, end)
        if self.members:
            from ropelime.results.ensemble import combine

            joined = combine([member.for_output(start, end) for member in self.members])
            return replace(joined, also=also)
        first, last = self.tokens_in(start, end)
        config = self.config
        recipe = self.recipe or Recipe.of(*(config[k] for k in ("target", "kernel", "regressor")))
        found = build(
            self.prompt,
            self.output,
            self.features,
            self.output_spans[first:last],
            self.surrogate_scores.columns(first, last),
            recipe,
            {**config, "interactions": False},  # those are of the whole answer
            span=(start, end),
            cost=self.cost,
            requested=self.diagnostics.masks_requested,
            notes=self.diagnostics.notes,
        )
        return replace(found, also=also)

    def extend(self, more: int, *, surrogate: Any = None, progress: Option = "auto") -> Explanation:
        """The same explanation out of more readings: those that are there, and ``more`` masks.

        Args:
            more: How many masks to read on top.
            surrogate: The model that it was made with; loaded by its name if not given.
            progress: ``"auto"``, True, False, or a function of (done, total).
        """
        from ropelime.explain import extend

        return extend(self, more, surrogate=surrogate, progress=progress)

    @property
    def output_sentences(self) -> tuple[Span, ...]:
        """Where each sentence of the explained output lies, without the white space around it."""
        first, last = self.span
        found = []
        for start, end in segment.sentences(self.output[first:last]):
            text = self.output[first + start : first + end]
            start, end = (
                first + start + len(text) - len(text.lstrip()),
                first + start + len(text.rstrip()),
            )
            if any(a < end and b > start for a, b in self.output_spans):
                found.append((start, end))
        return tuple(found)

    def tokens_in(self, start: int, end: int) -> tuple[int, int]:
        """The output tokens that lie in a span of the output, at least in part: first, and after last.

        Args:
            start: First character of the span in the output.
            end: The character after its last.
        """
        first, last = self.span
        if not first <= start < end <= last:
            raise InputError(
                f"({start}, {end}) does not lie in the explained output; "
                f"{first} <= start < end <= {last} is needed."
            )
        inside = [i for i, (a, b) in enumerate(self.output_spans) if a < end and b > start]
        if not inside:
            raise InputError(f"No output token lies in ({start}, {end}).")
        return inside[0], inside[-1] + 1

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The explanation as one self-contained page.

        Args:
            path: Where to write it too; an existing file is replaced in one step or not at all.
        """
        from ropelime.views.html import report

        page = report(self)
        if path is not None:
            from ropelime.results.serialization import write_text

            write_text(Path(path), page)
        return page

    def cite(self) -> Cited:
        """The answer with marks on its sentences, and the parts of the prompt that they stand for.

        The rule is that of :func:`ropelime.results.citations.cite`.
        """
        from ropelime.results.citations import cite

        return cite(self)

    def _repr_html_(self) -> str:
        from ropelime.views.html import frame

        return frame(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the same for the same seed: no times in it."""
        from ropelime.results.serialization import to_dict

        return to_dict(self)

    def to_json(self) -> str:
        """The explanation as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explanation as JSON; an existing file is replaced in one step or not at all."""
        from ropelime.results.serialization import write_text

        write_text(Path(path), self.to_json())


def build(
    prompt: Prompt,
    output: str,
    features: tuple[Feature, ...],
    output_spans: tuple[Span, ...],
    scores: Scores,
    recipe: Recipe,
    config: Mapping[str, Any],
    *,
    span: Span,
    cost: Cost,
    requested: int,
    notes: tuple[str, ...] = (),
    interactions: tuple[Interaction, ...] = (),
) -> Explanation:
    """Fit the readings and say how far the result can be trusted.

    Args:
        prompt: What was sent.
        output: The whole answer.
        features: The features, in the order of the masks.
        output_spans: The output tokens that the readings are of.
        scores: The full prompt, the prompt with no feature, then the masks.
        recipe: How to fit them.
        config: Every choice that was made.
        span: The part of the output that is explained.
        cost: What the readings cost.
        requested: How many masks the sampler was to draw.
        notes: What was done differently from what was asked.
        interactions: Pairs of features that do not simply add up.
    """
    used = scores.fitted()
    fitted = attribute(used, recipe)
    return Explanation(
        prompt=prompt,
        output=output,
        features=features,
        normalized_weights=fitted.normalized_weights,
        weights=fitted.weights,
        token_weights=fitted.token_weights,
        output_spans=output_spans,
        span=span,
        surrogate_scores=scores,
        cost=cost,
        diagnostics=diagnose(scores, fitted, requested=requested, notes=notes),
        config=config,
        recipe=recipe,
        intervals=fitted.weights[:, None] + fitted.half[:, None] * np.array([-1.0, 1.0]),
        trust=judge(used, fitted),
        interactions=interactions,
    )
