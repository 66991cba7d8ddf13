"""Cuts a prompt into features and prepares it for scoring, as an explanation does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from ropelime.surrogate import Ablation, Scorer, ServerSurrogate, Surrogate
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.remote import ServerScorer
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, Span


@overload
def prepare(
    surrogate: LocalSurrogate,
    prompt: Prompt,
    features: str | Sequence[Span],
    output: str,
    *,
    ablation: Ablation = ...,
) -> LocalScorer: ...


@overload
def prepare(
    surrogate: ServerSurrogate,
    prompt: Prompt,
    features: str | Sequence[Span],
    output: str,
    *,
    ablation: Ablation = ...,
) -> ServerScorer: ...


@overload
def prepare(
    surrogate: Surrogate,
    prompt: Prompt,
    features: str | Sequence[Span],
    output: str,
    *,
    ablation: Ablation = ...,
) -> Scorer: ...


def prepare(
    surrogate: Surrogate,
    prompt: Prompt,
    features: str | Sequence[Span],
    output: str,
    *,
    ablation: Ablation = Ablation(),  # noqa: B008 - it is frozen
) -> Scorer:
    """A scorer for the features of a granularity, or for those of given spans."""
    parts = split(prompt, features, token_spans=surrogate.token_spans)
    return surrogate.prepare(prompt, parts, output, ablation=ablation)
