"""The result as frozen data: what was explained, the weight of every feature, and its ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ropelime.errors import InputError
from ropelime.method.attribution import Attribution, Recipe, fit, normalized
from ropelime.method.interactions import Interaction
from ropelime.method.scores import Scores
from ropelime.results import grounding
from ropelime.results.close import READ, CloseReading
from ropelime.results.diagnostics import Diagnostics, diagnose, notice, twins, warn
from ropelime.results.verdicts import Trust, Verdict, judge
from ropelime.results.verification import Verified
from ropelime.text.actions import is_call
from ropelime.text.features import Feature
from ropelime.text.lexical import coverage, pinned, shared_words, stems
from ropelime.text.passages import reduced
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Ints

_EQUAL = 0.01  # weights made of signals that differ by no more share a place


@dataclass(frozen=True)
class RankedFeature:
    """One feature in a ranking.

    Attributes:
        index: Which feature it is.
        text: Its text.
        weight: Its signed weight.
        normalized_weight: The magnitude of its weight, relative to the sum of all.
        interval: Ends of the 90 % interval of the weight; None in files of older releases.
        rank: Its place; features that the intervals cannot tell apart share a place.
    """

    index: int
    text: str
    weight: float
    normalized_weight: float
    interval: tuple[float, float] | None = None
    rank: int = 0


@dataclass(frozen=True)
class Cost:
    """What an explanation cost.

    Attributes:
        masks: Masked prompts that were scored.
        tokens: Tokens of the surrogate's forward passes, shared prefixes counted once.
        seconds: Time that it took; not saved, because it belongs to the run and not to the result.
    """

    masks: int
    tokens: int
    seconds: float | None = field(default=None, compare=False)

    def __add__(self, other: Cost) -> Cost:
        seconds = (self.seconds or 0.0) + (other.seconds or 0.0)
        return Cost(self.masks + other.masks, self.tokens + other.tokens, seconds)


@dataclass(frozen=True, eq=False)
class ExplanationData:
    """Which parts of a prompt an output depends on.

    Attributes:
        prompt: What was sent to the model.
        output: The answer that is explained.
        features: The parts of the prompt that were scored.
        normalized_weights: (n,) magnitudes of the weights, at least 0, sum 1.
        weights: (n,) signed, in ``config["unit"]``; positive supports the output.
        token_weights: (n, T) the same fit for each output token.
        output_spans: Where each output token lies in the output.
        span: The part of the output that is explained.
        surrogate_scores: What the surrogate scored: the full prompt, the prompt with no feature, then
            the masks.
        cost: Masks, tokens and seconds.
        diagnostics: Fit, dependence of the answer on the features, and warnings.
        config: Every choice that was made.
        recipe: The strategies themselves; a loaded explanation builds them from ``config``.
        intervals: (n, 2) ends of the 90 % interval of each weight; None in files of older releases.
        trust: One number and a sentence on how far to trust it, the least of :attr:`verdicts`; None in
            files of older releases.
        interactions: Pairs of features whose effects do not add up, the largest first; only where they
            were requested.
        members: The explanation of each surrogate, where there are several.
        also: The explanation under another preset, where one was requested.
        signals: (n,) the share that each signal gives each feature, by name, where the weights are made
            of several; ``config["target"]`` says how much each counts.
        verified: What further calls of the answering model showed, where some were made. Ranks and
            trust follow it; weights and intervals are the surrogate's.
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
    members: tuple[ExplanationData, ...] = ()
    also: ExplanationData | None = None
    signals: Mapping[str, Floats] = field(default_factory=dict)
    verified: Verified | None = None

    def __post_init__(self) -> None:
        weights = (self.normalized_weights, self.weights, self.token_weights, self.intervals)
        for array in (*weights, *self.signals.values()):
            if array is not None:
                array.setflags(write=False)

    @property
    def normalized_intervals(self) -> Floats | None:
        """(n, 2) ends of the 90 % interval of each normalised weight, the sum of all taken as known."""
        if self.intervals is None:
            return None
        total = float(np.abs(self.weights).sum())
        if total == 0:  # the normalised weights are equal for want of anything else
            return np.tile([0.0, 1.0], (len(self.weights), 1))
        with np.errstate(over="ignore"):  # weights of next to nothing
            ends = np.abs(self.intervals) / total
        low = np.where(np.prod(np.sign(self.intervals), 1) > 0, ends.min(1), 0.0)
        return np.stack([low, np.minimum(ends.max(1), 1.0)], 1)

    @property
    def ranks(self) -> Ints:
        """(n,) places in the ranking; features that cannot be told apart share the first of theirs.

        Going down the ranking, a feature takes a new place when the first of the place above lies
        outside its interval, or differs from it in what was seen (:meth:`Verified.groups`). The
        intervals of weights that are made of signals say what one ablation may do, and not how well
        the weights are known: these share a place only if they are equal to one per cent.
        """
        order, seen = self._order, self._seen
        ranks = np.empty(len(order), dtype=np.int64)
        size = np.abs(self.weights)
        half = np.zeros(len(size)) if self.intervals is None else np.ptp(self.intervals, axis=1) / 2
        if self.signals:
            half = np.full(len(size), _EQUAL) * (size > 0)
        first, place = order[0], 1
        for number, i in enumerate(order, 1):
            if size[first] - size[i] > half[i] or seen[first] != seen[i]:
                first, place = i, number
            ranks[i] = place
        return ranks

    def top(self, k: int | None = None) -> list[RankedFeature]:
        """The features in their ranking; all of them, or the first ``k``.

        The largest normalised weight is first. In a verified explanation, features that were seen to
        change the answer go before the others.
        """
        if k is not None and k < 0:
            raise InputError(f"top() takes a number that is not negative, not {k}.")
        order = self._order[:k]
        ranks, ends = self.ranks, self.intervals
        return [
            RankedFeature(
                index=int(i),
                text=self.features[i].text,
                weight=float(self.weights[i]),
                normalized_weight=float(self.normalized_weights[i]),
                interval=None if ends is None else (float(ends[i, 0]), float(ends[i, 1])),
                rank=int(ranks[i]),
            )
            for i in order
        ]

    @property
    def _order(self) -> Ints:
        """(n,) the features by what was seen, then by normalised weight."""
        return np.lexsort((-self.normalized_weights, self._seen))

    @property
    def _seen(self) -> Ints:
        """(n,) what was seen of each feature, as an order; all the same if nothing was verified."""
        n = len(self.features)
        return np.ones(n, dtype=np.int64) if self.verified is None else self.verified.groups(n)

    @property
    def output_sentences(self) -> tuple[Span, ...]:
        """Where each sentence of the explained output lies, without the white space around it."""
        return grounding.sentences_of(self.output, self.span, self.output_spans)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Three questions about the explanation, answered: see :class:`Verdict`."""
        return () if self.trust is None else self.trust.verdicts

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
        inside = self._inside(start, end)
        if not inside:
            raise InputError(f"No output token lies in ({start}, {end}).")
        return inside[0], inside[-1] + 1

    def _inside(self, start: int, end: int) -> list[int]:
        return [i for i, (a, b) in enumerate(self.output_spans) if a < end and b > start]

    def strategies(self) -> Recipe:
        """Target, kernel and regressor, built from ``config`` in a loaded explanation."""
        names = ("target", "kernel", "regressor")
        try:
            return self.recipe or Recipe.of(*(self.config[name] for name in names))
        except InputError as error:
            again = "Its strategies cannot be built by this release; make it again."
            raise InputError(f"{again} {error}") from None


E = TypeVar("E", bound=ExplanationData)


def explained(
    attribution: Attribution, scores: Scores, *, requested: int, notes: tuple[str, ...], **known: Any
) -> ExplanationData:
    """The explanation out of a fit and all scores; ``known`` holds the fields they do not give."""
    weights, half = attribution.weights, attribution.half_width
    ends = np.stack([weights - half, weights + half], 1)
    start, end = known["span"]
    answer, spans = known["output"][start:end], known["output_spans"]
    noticed = notice(known["prompt"], known["features"], answer, len(spans))
    repeated = twins(known["features"], attribution.weights)
    warnings = (*warn(scores, attribution), *noticed, *repeated)
    sentences = grounding.sentences_of(known["output"], known["span"], spans)
    asked = pinned(known["prompt"], known["features"])
    measured = grounding.measure(
        known["output"], sentences, spans, known["features"], scores, asked=asked
    )
    return ExplanationData(
        normalized_weights=attribution.normalized_weights,
        weights=weights,
        token_weights=attribution.token_weights,
        surrogate_scores=scores,
        diagnostics=diagnose(
            scores,
            attribution,
            requested=requested,
            notes=notes,
            warnings=tuple(text for _, text in warnings),
        ),
        intervals=np.clip(ends, 0.0, 1.0) if attribution.signals else ends,
        trust=judge(scores.fitted(), attribution, measured, dict(warnings)),
        signals=attribution.signals,
        **known,
    )


def with_verified(e: E, verified: Verified | None) -> E:
    """The explanation with what was seen, in place of what was seen before; None takes it all back."""
    trust, warnings = e.trust, e.diagnostics.warnings
    if e.verified is not None:
        trust = e.verified.trust_before
        warnings = tuple(text for text in warnings if text not in e.verified.warnings)
    if verified is not None:
        verified = replace(verified, trust_before=trust)
        first = int(replace(e, verified=verified)._order[0])
        trust, warnings = verified.trust(first), (*warnings, *verified.warnings)
    diagnostics = replace(e.diagnostics, warnings=warnings)
    return replace(e, verified=verified, trust=trust, diagnostics=diagnostics)


def widened(
    e: ExplanationData,
    close: CloseReading,
    prompt: Prompt,
    features: tuple[Feature, ...],
    *,
    notes: tuple[str, ...] = (),
) -> ExplanationData:
    """The explanation of a long prompt, out of that of what was read closely."""
    shares = bool(e.signals)
    weights = close.weights(e.weights, shares=shares)
    return replace(
        e,
        prompt=prompt,
        features=features,
        weights=weights,
        normalized_weights=close.weights(e.normalized_weights, shares=True),
        token_weights=close.spread(e.token_weights),
        intervals=close.ends(e.intervals, weights, shares=shares),
        signals={name: close.weights(each, shares=True) for name, each in e.signals.items()},
        surrogate_scores=close.scores(e.surrogate_scores),
        interactions=close.pairs(e.interactions),
        diagnostics=replace(e.diagnostics, notes=(*notes, *e.diagnostics.notes)),
    )


def narrowed(e: ExplanationData) -> tuple[ExplanationData, CloseReading]:
    """What was read closely of a long prompt: its scores, from which the weights can be fitted."""
    close = CloseReading.recorded(e.config, e.normalized_weights, e.intervals)
    prompt, features = reduced(e.prompt, e.features, close.features.tolist())
    at = {feature: number for number, feature in enumerate(close.features.tolist())}
    pairs = tuple(replace(p, first=at[p.first], second=at[p.second]) for p in e.interactions)
    inner = replace(
        e,
        prompt=prompt,
        features=features,
        surrogate_scores=close.narrowed(e.surrogate_scores),
        interactions=pairs,
        config={name: value for name, value in e.config.items() if name != READ},
    )
    return inner, close


def slice_output(e: ExplanationData, start: int, end: int) -> ExplanationData:
    """The explanation of one span of the output by one surrogate, fitted to the scores it holds."""
    if READ in e.config:
        inner, close = narrowed(e)
        part = slice_output(inner, start, end)
        part = replace(part, config={**part.config, READ: e.config[READ]})
        return widened(part, close, e.prompt, e.features)
    first, last = e.tokens_in(start, end)
    if not grounding.sentences_of(e.output, (start, end), e.output_spans[first:last]):
        raise InputError(
            f"The span ({start}, {end}) contains only white space; choose one with text in it."
        )
    return explained(
        fit_span(e, start, end), e.surrogate_scores.columns(first, last),
        requested=e.diagnostics.masks_requested, notes=e.diagnostics.notes,
        prompt=e.prompt, output=e.output, features=e.features, span=(start, end),
        output_spans=e.output_spans[first:last], cost=e.cost, recipe=e.strategies(),
        config={**e.config, "interactions": False},  # those are of the whole answer
    )  # fmt: skip


def fit_span(e: ExplanationData, start: int, end: int, *, tokens: bool = True) -> Attribution:
    """The fit for one span of the output; without ``tokens``, none for each output token.

    A few words say little about where they come from. Where weights are shares, those of a span within
    a sentence are the mean of its own and its sentence's.
    """
    if READ in e.config:
        inner, close = narrowed(e)
        return close.attribution(fit_span(inner, start, end, tokens=tokens))
    own = _fit(e, start, end, tokens=tokens)
    sentences = [span for span in e.output_sentences if span[0] < end and span[1] > start]
    if not own.signals or not sentences or (sentences[0][0], sentences[-1][1]) == (start, end):
        return own
    around = _fit(e, sentences[0][0], sentences[-1][1], tokens=False)
    weights = (own.weights + around.weights) / 2
    half = np.hypot((own.half_width + around.half_width) / 2, (own.weights - around.weights) / 2)
    return replace(own, weights=weights, normalized_weights=normalized(weights), half_width=half)


def _fit(e: ExplanationData, start: int, end: int, *, tokens: bool) -> Attribution:
    first, last = e.tokens_in(start, end)
    scores, recipe = e.surrogate_scores.columns(first, last).fitted(), e.strategies()
    if not recipe.uses_words:
        return fit(scores, recipe, tokens=tokens)
    said = e.output[start:end]
    if said == e.output or is_call(said):
        words = shared_words(e.prompt, e.features, said)
    else:
        words = coverage(said, [feature.text for feature in e.features], terms=stems)
    return fit(scores, recipe, words=words, tokens=tokens)
