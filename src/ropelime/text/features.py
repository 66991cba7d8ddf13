"""A prompt becomes features: the spans of it that are removed, scored and ranked."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ropelime.errors import InputError
from ropelime.registry import unknown
from ropelime.text import segmentation as segment
from ropelime.text.prompt import Prompt, Span

GRANULARITIES = ("token", "word", "sentence", "paragraph", "document", "message")

_SPLITTERS: dict[str, Callable[[str], list[Span]]] = {
    "word": segment.words,
    "sentence": segment.sentences,
    "paragraph": segment.paragraphs,
}


@dataclass(frozen=True)
class Feature:
    """One contiguous span of the prompt.

    Attributes:
        text: The characters of the span.
        start: Where it begins in the text of the prompt.
        end: Where it ends.
        part: Which chunk or message it was cut from, counted from 0.
    """

    text: str
    start: int
    end: int
    part: int


def split(
    prompt: Prompt,
    features: str | Sequence[Span],
    *,
    token_spans: Callable[[str], list[Span]] | None = None,
) -> tuple[Feature, ...]:
    """Cut the prompt into features.

    Args:
        prompt: The prompt.
        features: A granularity, or the spans themselves as (start, end) in ``prompt.text``.
        token_spans: How the surrogate cuts a text into tokens; needed for ``"token"`` only.

    Returns:
        The features in the order of the text. Named granularities tile each part of the prompt;
        what the caller leaves out of a list of spans is pinned.
    """
    if not isinstance(features, str):
        found = _given(prompt, features)
    elif features in _SPLITTERS:
        found = _cut(prompt, _SPLITTERS[features])
    elif features == "token":
        if token_spans is None:
            raise InputError("features='token' needs a surrogate that has a tokenizer.")
        found = _cut(prompt, token_spans)
    elif features in ("document", "message"):
        needs = {"document": "context", "message": "messages"}[features]
        if prompt.kind != needs:
            raise InputError(
                f"features={features!r} needs {needs}=[...]; this is a {prompt.kind}. "
                "Use 'sentence' or 'paragraph', or pass the spans."
            )
        found = [_feature(prompt, span, i) for i, span in _parts(prompt)]
    else:
        raise unknown("features", features, GRANULARITIES)
    return enough(found)


def enough(features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The features, if there are at least two of them."""
    if len(features) < 2:
        raise InputError(
            f"The prompt has {len(features)} feature{'s' * (len(features) != 1)} and an attribution "
            "needs at least two to choose between. Cut it finer (features='word' or 'token'), or give "
            "more of it."
        )
    return tuple(features)


def _feature(prompt: Prompt, span: Span, part: int) -> Feature:
    return Feature(prompt.text[span[0] : span[1]], span[0], span[1], part)


def _parts(prompt: Prompt) -> list[tuple[int, Span]]:
    """Every part with the number of its chunk or message; a message can hold several, or none."""
    if prompt.kind != "messages":
        return list(enumerate(prompt.parts))
    starts = [message.start for message in prompt.messages]
    return [(bisect_right(starts, start) - 1, (start, end)) for start, end in prompt.parts]


def _cut(prompt: Prompt, splitter: Callable[[str], list[Span]]) -> list[Feature]:
    return [
        _feature(prompt, (start + a, start + b), part)
        for part, (start, end) in _parts(prompt)
        for a, b in splitter(prompt.text[start:end])
    ]


def _given(prompt: Prompt, spans: Sequence[Span]) -> list[Feature]:
    found: list[Feature] = []
    if not isinstance(spans, Iterable):
        raise InputError(f"features must be a granularity or a list of (start, end), not {spans!r}.")
    for number, span in enumerate(spans):
        try:
            start, end = (operator.index(v) for v in span)
        except (TypeError, ValueError):
            raise InputError(f"features[{number}] must be (start, end), not {span!r}.") from None
        if not 0 <= start < end <= len(prompt.text):
            raise InputError(
                f"features[{number}] = ({start}, {end}) does not lie in the prompt, which has "
                f"{len(prompt.text)} characters; 0 <= start < end <= {len(prompt.text)} is needed."
            )
        if not prompt.text[start:end].strip():
            raise InputError(f"features[{number}] = ({start}, {end}) holds only white space.")
        if found and start < found[-1].end:
            before = found[-1]
            raise InputError(
                f"features[{number}] = ({start}, {end}) overlaps or stands before features"
                f"[{number - 1}] = ({before.start}, {before.end}). Spans must be sorted and disjoint."
            )
        holders = [i for i, part in _parts(prompt) if part[0] <= start < part[1]]
        found.append(_feature(prompt, (start, end), holders[0] if holders else 0))
    return found
