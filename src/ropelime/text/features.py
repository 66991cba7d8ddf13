"""A prompt becomes features: the spans of it that are removed, scored and ranked.

Features are cut from the text alone. Where the tokens of a surrogate are known too, every feature gets
at least one token of its own: one that is smaller than a token joins its neighbour.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ropelime.errors import InputError, NoTokenizerError
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
    token_spans: Callable[[Prompt], Sequence[Span]] | None = None,
) -> tuple[Feature, ...]:
    """Cut the prompt into features.

    Args:
        prompt: The prompt.
        features: A granularity, or the spans themselves as (start, end) in ``prompt.text``.
        token_spans: Gives the spans of a surrogate's tokens in ``prompt.text``, as
            :meth:`ropelime.surrogate.Surrogate.token_spans` does. Every feature then owns at least one
            token, unless the surrogate has no tokenizer. ``"token"`` needs it.

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
        found = cut_at_tokens(prompt, token_spans(prompt))
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
    cut = _enough(found)
    if token_spans is None:
        return cut
    try:
        spans = token_spans(prompt)
    except NoTokenizerError:
        return cut
    return with_tokens(cut, spans, prompt.text, given=not isinstance(features, str))


def token_owners(
    features: Sequence[Feature], token_spans: Sequence[Span | None], text: str
) -> npt.NDArray[np.int64]:
    """(L,) the feature that each token belongs to; -1 where it is pinned.

    A token belongs to the feature of its first visible character. White space that separates two
    features goes with the one before it, so that removing a chunk leaves no empty lines behind.

    Args:
        features: The features in the order of the text.
        token_spans: (L,) where each token lies in the text; None for a token of the chat template.
        text: The text of the prompt.
    """
    owner = np.full(len(text) + 1, -1, dtype=np.int64)
    for index, feature in enumerate(features):
        owner[feature.start : feature.end] = index
    for before, after in pairwise(features):
        if before.end < after.start and not text[before.end : after.start].strip():
            owner[before.end : after.start] = owner[before.end - 1]
    return np.array(
        [
            -1 if span is None or span[0] == span[1] else owner[_first_visible(text, *span)]
            for span in token_spans
        ],
        dtype=np.int64,
    )


def with_tokens(
    features: Sequence[Feature], token_spans: Sequence[Span], text: str, *, given: bool
) -> tuple[Feature, ...]:
    """Join features that are smaller than a token to the neighbour that owns the token.

    Args:
        features: The features in the order of the text.
        token_spans: Where each token of the surrogate lies in the text.
        text: The text of the prompt.
        given: Whether the caller named the spans; they are then refused instead of joined.
    """
    owned = np.isin(np.arange(len(features)), token_owners(features, token_spans, text))
    if owned.all():
        return tuple(features)
    if given:
        lost = int(np.flatnonzero(~owned)[0])
        span = features[lost]
        raise InputError(
            f"features[{lost}] = ({span.start}, {span.end}) {span.text!r} shares its only token with "
            "a neighbour, so it cannot be removed by itself. Join the two spans."
        )
    if not owned[0]:
        raise InputError("The first feature has no token of its own. Use coarser features.")
    joined: list[Feature] = []
    for feature, own in zip(features, owned, strict=True):
        if own:
            joined.append(feature)
        else:
            last = joined[-1]
            joined[-1] = Feature(text[last.start : feature.end], last.start, feature.end, last.part)
    return _enough(joined)


def cut_at_tokens(prompt: Prompt, token_spans: Iterable[Span]) -> list[Feature]:
    """Features that tile each part and begin where its tokens do; none holds only white space.

    Tokens that share a character, such as those of an emoji, are one feature.
    """
    text, found = prompt.text, []
    visible = sorted({_first_visible(text, start, end) for start, end in token_spans if start < end})
    for part, (start, end) in _parts(prompt):
        starts = visible[bisect_left(visible, start) : bisect_left(visible, end)]
        cuts = [start, *(s for s in starts[1:] if text[starts[0] : s].strip()), end]
        spans: list[Span] = []
        for a, b in pairwise(cuts):
            if spans and not text[a:b].strip():
                spans[-1] = (spans[-1][0], b)
            elif a < b:
                spans.append((a, b))
        found += [_feature(prompt, span, part) for span in spans]
    return found


def _first_visible(text: str, start: int, end: int) -> int:
    visible = len(text[start:end]) - len(text[start:end].lstrip())
    return start + visible if start + visible < end else start


def _enough(features: Sequence[Feature]) -> tuple[Feature, ...]:
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
