"""A prompt and an output laid out as tokens, each in the hands of its feature. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropelime.errors import InputError
from ropelime.method.scores import Ints
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.chat_template import Encoder
from ropelime.surrogate.sequences import Sequences
from ropelime.text.features import Feature, token_owners
from ropelime.text.prompt import Prompt, Span


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
        sequences: The tokens, from which the row of any mask is made.
        output_spans: Where each output token lies in the output.
        has_question: Whether pinned text stands between the last feature and the output.
    """

    sequences: Sequences
    output_spans: tuple[Span, ...]
    has_question: bool

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        prompt: Prompt,
        features: tuple[Feature, ...],
        output: str,
        *,
        ablation: Ablation,
        window: Window,
    ) -> Layout:
        """Tokenise the prompt once and assign every token to its feature."""
        encoded = encoder.encode(prompt, output)
        window.check(len(encoded.ids), len(encoded.output_ids))
        owner = token_owners(features, encoded.spans, prompt.text)
        _check_owned(features, owner, window.name)
        sequences = Sequences(
            encoded.ids,
            owner,
            encoded.output_ids,
            ablation,
            encoder.token_ids(ablation.text),
            encoder.beginning(),
        )
        question = bool(prompt.text[features[-1].end :].strip())
        return cls(sequences, encoded.output_spans, question)


def _check_owned(features: tuple[Feature, ...], owner: Ints, name: str) -> None:
    """Refuse features that could not be removed: those without a token."""
    lost = np.setdiff1d(np.arange(len(features)), owner)
    if len(lost):
        feature = features[int(lost[0])]
        raise InputError(
            f"features[{lost[0]}] = ({feature.start}, {feature.end}) {feature.text!r} owns no token of "
            f"{name}, so it cannot be removed. Cut the prompt with split(prompt, ..., "
            "token_spans=surrogate.token_spans), which joins it to its neighbour."
        )
