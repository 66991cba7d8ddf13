"""A prompt becomes features: the spans of it that are removed, scored and ranked."""

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
from ropelime.text import structured
from ropelime.text.prompt import Prompt, Span, naming_field

_SPLITTERS = {"word": segment.words, "sentence": structured.sentences, "paragraph": segment.paragraphs}
_NEEDS = {"document": "context", "message": "messages"}  # the kind of prompt that has such parts
PARTS = tuple(_NEEDS)  # granularities for which no text is cut
GRANULARITIES = ("token", *_SPLITTERS, *PARTS)


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
    """Cut the prompt into features, in the order of the text.

    Args:
        prompt: The prompt.
        features: A granularity, which tiles each part of the prompt, or the spans themselves as
            (start, end) in ``prompt.text``; what these leave out is pinned.
        token_spans: Gives the spans of a surrogate's tokens in ``prompt.text``, as
            :meth:`ropelime.surrogate.Surrogate.token_spans` does. Every feature then owns at least one
            token, unless the surrogate has no tokenizer. ``"token"`` needs it.
    """
    with naming_field("features"):
        return _split(prompt, features, token_spans)


def _split(
    prompt: Prompt,
    features: str | Sequence[Span],
    token_spans: Callable[[Prompt], Sequence[Span]] | None,
) -> tuple[Feature, ...]:
    text = prompt.text
    if not isinstance(features, str):
        found = _given(prompt, features)
    elif splitter := _SPLITTERS.get(features):
        found = [
            _feature(text, start + a, start + b, part)
            for part, (start, end) in _parts(prompt)
            for a, b in splitter(text[start:end])
        ]
    elif features == "token":
        if token_spans is None:
            raise InputError("features='token' needs a surrogate that has a tokenizer.")
        found = cut_at_tokens(prompt, token_spans(prompt))
    elif needs := _NEEDS.get(features):
        if prompt.kind != needs:
            raise InputError(
                f"features={features!r} needs {needs}=[...]; this is a {prompt.kind}. "
                "Use 'sentence' or 'paragraph', or pass the spans."
            )
        found = [_feature(text, start, end, part) for part, (start, end) in _parts(prompt)]
    else:
        raise unknown("features", features, GRANULARITIES)
    cut = _enough(found)
    if token_spans is None:
        return cut
    try:
        spans = token_spans(prompt)
    except NoTokenizerError:
        return cut
    return with_tokens(cut, spans, text, given=not isinstance(features, str))


def token_owners(
    features: Sequence[Feature], token_spans: Sequence[Span | None], text: str
) -> npt.NDArray[np.int64]:
    """(L,) the feature that each token belongs to; -1 where it is pinned.

    A token belongs to the feature of its first visible character, as :func:`character_owners` says. The
    span of a token of the chat template is None.
    """
    owner = character_owners(features, text)
    # The place after the text belongs to no feature.
    return owner[[_first_visible(text, *s) if s and s[0] < s[1] else len(text) for s in token_spans]]


def character_owners(features: Sequence[Feature], text: str) -> npt.NDArray[np.int64]:
    """(C + 1,) the feature that each character belongs to, and -1 for the place after the last.

    White space that separates two features goes with the one before it, so that removing a chunk
    leaves no empty lines behind. Pinned text has -1.
    """
    owner = np.full(len(text) + 1, -1, dtype=np.int64)
    for index, feature in enumerate(features):
        owner[feature.start : feature.end] = index
    for before, after in pairwise(features):
        if before.end < after.start and not text[before.end : after.start].strip():
            owner[before.end : after.start] = owner[before.end - 1]
    return owner


def with_tokens(
    features: Sequence[Feature], token_spans: Sequence[Span], text: str, *, given: bool
) -> tuple[Feature, ...]:
    """Join features that are smaller than a token to the neighbour that owns the token.

    Those whose spans were ``given`` by the caller are refused instead.
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
    edges = [*np.flatnonzero(owned).tolist(), len(features)]
    joined = ((features[a], features[b - 1]) for a, b in pairwise(edges))
    return _enough([_feature(text, first.start, last.end, first.part) for first, last in joined])


def cut_at_tokens(prompt: Prompt, token_spans: Iterable[Span]) -> list[Feature]:
    """Features that tile each part and begin where its tokens do; none holds only white space."""
    text, found = prompt.text, []
    # A set: tokens that share a character, such as those of an emoji, are one feature.
    first = {_first_visible(text, start, end) for start, end in token_spans if start < end}
    starts = sorted(start for start in first if not text[start].isspace())
    for part, (start, end) in _parts(prompt):
        inside = starts[bisect_left(starts, start) : bisect_left(starts, end)]
        found += [_feature(text, a, b, part) for a, b in pairwise([start, *inside[1:], end])]
    return found


def _first_visible(text: str, start: int, end: int) -> int:
    blank = end - start - len(text[start:end].lstrip())
    return start + blank if start + blank < end else start


def _enough(features: Sequence[Feature]) -> tuple[Feature, ...]:
    if len(features) < 2:
        raise InputError(
            f"The prompt has {len(features)} feature{'s' * (len(features) != 1)} and an attribution "
            "needs at least two to choose between. Cut it finer (features='word' or 'token'), or give "
            "more of it."
        )
    return tuple(features)


def _feature(text: str, start: int, end: int, part: int) -> Feature:
    return Feature(text[start:end], start, end, part)


def _parts(prompt: Prompt) -> list[tuple[int, Span]]:
    """Every part with the number of its chunk or message; a message can hold several, or none."""
    if prompt.kind != "messages":
        return list(enumerate(prompt.parts))
    starts = [message.start for message in prompt.messages]
    return [(bisect_right(starts, start) - 1, (start, end)) for start, end in prompt.parts]


def _given(prompt: Prompt, spans: Sequence[Span]) -> list[Feature]:
    text, parts = prompt.text, _parts(prompt)
    begins = [start for _, (start, _) in parts]
    found: list[Feature] = []
    if not isinstance(spans, Iterable):
        raise InputError(f"features must be a granularity or a list of (start, end), not {spans!r}.")
    for number, span in enumerate(spans):
        try:
            start, end = (operator.index(v) for v in span)
        except (TypeError, ValueError):
            raise InputError(f"features[{number}] must be (start, end), not {span!r}.") from None
        where = f"features[{number}] = ({start}, {end})"
        if not 0 <= start < end <= len(text):
            raise InputError(
                f"{where} does not lie in the prompt, which has {len(text)} characters; "
                f"0 <= start < end <= {len(text)} is needed."
            )
        if not text[start:end].strip():
            raise InputError(f"{where} holds only white space.")
        if found and start < found[-1].end:
            raise InputError(
                f"{where} overlaps or stands before features[{number - 1}] = ({found[-1].start}, "
                f"{found[-1].end}). Spans must be sorted and disjoint."
            )
        part, (_, stop) = parts[max(0, bisect_right(begins, start) - 1)]
        found.append(_feature(text, start, end, part if begins[0] <= start < stop else 0))
    return found
