"""What is known about the quality of an explanation without labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ropelime.method.attribution import Attribution
from ropelime.method.scores import Scores
from ropelime.results.verdicts import Name
from ropelime.text.features import Feature
from ropelime.text.lexical import pinned
from ropelime.text.prompt import Prompt
from ropelime.text.segmentation import sentences
from ropelime.text.similarity import words
from ropelime.typing import Floats

_SURPRISED = -4.0  # nats a token: below this the surrogate would hardly have said it itself
_INDEPENDENT = 0.1  # nats a token: features that move the answer by less do not matter to it
_POOR_FIT = 0.3
_FEW = 5.0
_MANY_TOKENS = 1.2  # for each character
_QUOTED = 2, 20  # sentences and words: a document of fewer may be the answer because it was quoted
_EXACT = 1 - 1e-6  # R²: what is left over is rounding


@dataclass(frozen=True)
class Diagnostics:
    """What is known about the quality of an explanation without any labels.

    Attributes:
        r2: Weighted R² of the fit; NaN where the target does not vary.
        effective_samples: Effective number of scored masks under the kernel's weights.
        logprob_full: Log-probability of the output with all features, nats per token.
        logprob_empty: The same with none of them.
        masks_requested: Masks that the sampler was to draw.
        masks_scored: Masks that it drew; one that was scored both cached and exactly counts twice.
        notes: How the scoring differs from the request, and why.
        warnings: When not to trust it, in plain words.
    """

    r2: float
    effective_samples: float
    logprob_full: float
    logprob_empty: float
    masks_requested: int
    masks_scored: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def has_residuals(self, features: int) -> bool:
        """Whether R² says something: not where any fit of so many features would be exact."""
        return math.isfinite(self.r2) and not (self.masks_scored == features and self.r2 >= _EXACT)


def diagnose(
    scores: Scores,
    fitted: Attribution,
    *,
    requested: int,
    notes: tuple[str, ...],
    warnings: tuple[str, ...],
) -> Diagnostics:
    """Examine a fit and its scores: the full prompt, the prompt with no feature, then the masks."""
    exact = len(scores.masks) == scores.masks.shape[1] + 2 and not fitted.r2 < _EXACT  # or undefined
    note = "The fit has as many scores as unknowns, so that it is exact: its R² would say nothing."
    return Diagnostics(
        r2=fitted.r2,
        effective_samples=fitted.effective_samples,
        logprob_full=float(scores.full.logprob.mean()),
        logprob_empty=float(scores.empty.logprob.mean()),
        masks_requested=requested,
        masks_scored=len(scores.masks) - 2,
        notes=tuple(dict.fromkeys((*notes, note) if exact and fitted.from_masks else notes)),
        warnings=warnings,
    )


def warn(scores: Scores, fitted: Attribution) -> Iterator[tuple[Name, str]]:
    """The warnings, each with the verdict that it lowers."""
    full, none = float(scores.full.logprob.mean()), float(scores.empty.logprob.mean())
    rows, features = len(scores.masks) - 1, scores.masks.shape[1]
    if full < _SURPRISED:
        yield (
            "understood",
            f"The surrogate finds this output very unlikely even with the whole prompt ({full:.1f} "
            "nats per token): it may not follow the reasoning behind it. Try a larger surrogate.",
        )
    moved = float(np.abs(scores.logprob - scores.logprob[0]).mean(1).max())
    if moved < _INDEPENDENT:
        yield (
            "rests",
            "The output hardly depends on these features: no masked prompt moved it by more than "
            f"{moved:.2f} nats per token. The ranking may be noise.",
        )
    elif none >= full:
        yield (
            "rests",
            "The surrogate finds the output no less likely without any feature: it may know the answer "
            "by itself, or be misled by the prompt.",
        )
    if not np.any(fitted.weights):
        yield (
            "cause",
            "Every weight is zero: the features cannot be told apart, and their ranking means nothing.",
        )
    if not fitted.from_masks:
        return
    if rows <= features and not fitted.grouped:
        yield (
            "cause",
            f"{rows} scores for {features} features leave the fit underdetermined; the solution of "
            "minimum norm was taken. Raise the budget for firmer weights.",
        )
    elif fitted.r2 < _POOR_FIT:
        yield (
            "understood",
            f"The linear fit accounts for only {max(fitted.r2, 0):.0%} of the variance over the masks: "
            "features may interact, or the scores are noisy.",
        )
    if fitted.effective_samples < min(_FEW, 0.3 * rows):
        yield (
            "understood",
            f"With the kernel's weights about {fitted.effective_samples:.1f} of {rows} scores count: a"
            " few masks decide the fit. Try kernel='uniform'.",
        )


def notice(
    prompt: Prompt, features: Sequence[Feature], output: str, tokens: int
) -> Iterator[tuple[Name, str]]:
    """What in the input defeats the purpose, each with the verdict that it lowers.

    Args:
        prompt: The prompt.
        features: The parts of it that can be removed.
        output: The explained answer.
        tokens: How many tokens the surrogate cuts it into.
    """
    answer, last = " ".join(output.split()), prompt.messages[-1]
    said = " ".join(prompt.text[last.start : last.end].split())
    if prompt.kind == "messages" and last.role == "assistant" and answer and answer in said:
        yield (
            "rests",
            "The last message is the answer itself, so the answer is explained by itself. Leave that "
            "message out.",
        )
    elif (number := _repeated(prompt, output, answer)) is not None:
        yield (
            "rests",
            f"Document {number} is the answer itself, so the answer is explained by itself. If it is a "
            "copy of the answer, leave it out.",
        )
    elif len(answer.split()) > 1 and answer in " ".join(pinned(prompt, features).split()):
        yield (
            "rests",
            "The answer stands word for word in the question, which no mask removes: it may be a mere "
            "repetition.",
        )
    if tokens > _MANY_TOKENS * len("".join(output.split())):
        yield (
            "understood",
            "The surrogate cuts this answer into more tokens than it has characters: it hardly knows "
            "this script. Choose a surrogate that does.",
        )


def twins(features: Sequence[Feature], weights: Floats) -> Iterator[tuple[Name, str]]:
    """That the first part stands in the prompt more than once, and so may not be needed."""
    texts = [" ".join(feature.text.split()) for feature in features]
    times = texts.count(texts[int(np.argmax(np.abs(weights)))])
    if times > 1 and weights.any():
        yield (
            "cause",
            f"The first part stands in the prompt {times} times: without one of them, the answer may "
            "well stay the same.",
        )


def _repeated(prompt: Prompt, output: str, answer: str) -> int | None:
    """Which document, from 1, is the answer and nothing else; a short one may well be quoted."""
    least_sentences, least_words = _QUOTED
    short = len(sentences(output)) < least_sentences or len(words(answer)) < least_words
    if prompt.kind != "context" or short:
        return None
    texts = (" ".join(prompt.text[start:end].split()) for start, end in prompt.parts)
    return next((number for number, text in enumerate(texts, 1) if text == answer), None)
