"""A prompt and an output laid out as tokens, each in the hands of its feature. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ropelime.errors import InputError
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.chat_template import Encoder, owners
from ropelime.surrogate.sequences import Sequences
from ropelime.text.features import Feature, enough, split
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Ints


@dataclass(frozen=True)
class Window:
    """The most tokens that a model can read.

    Attributes:
        name: What the model is called.
        tokens: How many; None if it does not say.
    """

    name: str
    tokens: int | None

    def check(self, prompt: int, output: int) -> None:
        """Refuse a prompt and an output, in tokens, that are longer together."""
        if self.tokens is not None and prompt + output > self.tokens:
            raise InputError(
                f"The prompt has {prompt:,} tokens and the output {output:,}, and {self.name} can read "
                f"{self.tokens:,} in all. Shorten the prompt, or choose a surrogate with a longer "
                "window."
            )

    def check_grown(self, longest: int) -> None:
        """Refuse masked prompts that placeholders have made longer."""
        if self.tokens is not None and longest > self.tokens:
            raise InputError(
                f"With placeholders for what is removed, prompt and output grow to {longest:,} tokens, "
                f"and {self.name} can read {self.tokens:,} in all. Use a shorter placeholder, or "
                "removal='delete'."
            )


@dataclass(frozen=True)
class Layout:
    """One prompt and one output as tokens.

    Attributes:
        features: The parts of the prompt that can be removed.
        sequences: The tokens, from which the row of any mask is made.
        output_spans: Where each output token lies in the output.
        has_question: Whether pinned text stands between the last feature and the output.
    """

    features: tuple[Feature, ...]
    sequences: Sequences
    output_spans: tuple[Span, ...]
    has_question: bool

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        prompt: Prompt,
        features: str | Sequence[Span],
        output: str,
        *,
        ablation: Ablation,
        window: Window,
    ) -> Layout:
        """Tokenise the prompt once and assign every token to its feature."""
        encoded = encoder.encode(prompt, output)
        window.check(len(encoded.ids), len(encoded.output_ids))
        parts = split(prompt, features, token_spans=encoder.token_spans)
        owner = owners(encoded, parts, prompt.text)
        parts, owner = with_tokens(parts, owner, prompt.text, given=not isinstance(features, str))
        sequences = Sequences(
            encoded.ids,
            owner,
            encoded.output_ids,
            ablation,
            encoder.token_ids(ablation.text),
            encoder.beginning(),
        )
        question = bool(prompt.text[parts[-1].end :].strip())
        return cls(parts, sequences, encoded.output_spans, question)


def with_tokens(
    features: tuple[Feature, ...], owner: Ints, text: str, *, given: bool
) -> tuple[tuple[Feature, ...], Ints]:
    """Join features that are smaller than a token to the neighbour that the token belongs to."""
    has = np.isin(np.arange(len(features)), owner)
    if has.all():
        return features, owner
    if given:
        lost = int(np.flatnonzero(~has)[0])
        span = features[lost]
        raise InputError(
            f"features[{lost}] = ({span.start}, {span.end}) {span.text!r} shares its only token with "
            "a neighbour, so it cannot be removed by itself. Join the two spans."
        )
    joined: list[Feature] = []
    number = np.cumsum(has) - 1
    for feature, own in zip(features, has, strict=True):
        if own or not joined:
            joined.append(feature)
        else:
            last = joined[-1]
            joined[-1] = Feature(text[last.start : feature.end], last.start, feature.end, last.part)
    if not has[0]:
        raise InputError("The first feature has no token of its own. Use coarser features.")
    return enough(joined), np.where(owner >= 0, number[owner], -1)
