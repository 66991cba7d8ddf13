"""A tokenised prompt and output, from which the token sequence of any mask is built. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.surrogate.base import Ablation, Lengths
from ropelime.surrogate.chat_template import Encoder
from ropelime.text.features import Feature, token_owners
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Ints, Masks

_TEMPLATE = 1024  # tokens that no chat template adds to a short prompt
_FEW = 8  # a fraction of the features below 1 / _FEW is looked up feature by feature


@dataclass(frozen=True)
class TokenSequence:
    """One masked prompt with the output behind it, as tokens of one forward pass.

    The last token of the output is left out: nothing is predicted from it.
    """

    index: int  # of its mask
    ids: Ints  # (q,)
    positions: Ints  # (q,)
    owner: Ints  # (q,) the feature of each token, -1 for pinned and output tokens
    n_outputs: int  # how many of the last tokens predict a token that is scored
    # (p,) which tokens of the cached prefix it attends to; None if it holds the whole masked prompt.
    prefix_mask: Masks | None = None

    @property
    def cached(self) -> bool:
        """Whether it attends to the cached prefix instead of holding the whole masked prompt."""
        return self.prefix_mask is not None

    @property
    def length(self) -> int:
        """How many tokens it has."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return int(self.positions[-1]) + 1


@dataclass(frozen=True)
class TokenizedPrompt:
    """The tokens of one prompt and one output; builds the token sequence of any mask."""

    ids: Ints  # (L,) of the prompt, inside the chat template
    owner: Ints  # (L,) the feature of each token, -1 for pinned ones; every feature owns a token
    output_ids: Ints  # (T,)
    ablation: Ablation
    placeholder: Ints  # (p,) tokens that stand for a removed feature
    beginning: Ints  # (1,) the token that stands for a prompt of which nothing is left
    output_spans: tuple[Span, ...] = ()  # where each output token lies in the output
    has_question: bool = False  # whether pinned text stands between the last feature and the output

    @property
    def n_features(self) -> int:
        """How many features there are."""
        return int(self.owner.max()) + 1

    @cached_property
    def tail(self) -> int:
        """Where the pinned end of the prompt begins; it holds at least one token."""
        last = int(np.flatnonzero(self.owner >= 0)[-1])
        return min(last + 1, len(self.ids) - 1)

    @property
    def n_question(self) -> int:
        """How many tokens of the tail can be scored: all but the first."""
        return len(self.ids) - self.tail - 1

    def sequence(self, index: int, mask: Masks) -> TokenSequence:
        """The whole masked prompt with the output."""
        if self.ablation.how == "placeholder" and not (kept := self._kept(mask)).all():
            ids, owner, positions = self._replaced(kept)
        else:
            places = self._kept_places(mask)
            ids, owner = self.ids[places], self.owner[places]
            positions = places if self.ablation.how == "in-place" else np.arange(len(places))
        if not len(ids):  # something must predict the first token of the output
            ids, owner, positions = self.beginning, np.array([-1]), np.array([0])
        after = len(self.ids) if self.ablation.how == "in-place" else len(ids)
        return self._with_output(index, ids, positions, owner, after)

    def cached_sequence(self, index: int, mask: Masks) -> TokenSequence:
        """The tail and the output alone, attending to the cached prompt less the removed features."""
        start, length = self.tail, len(self.ids)
        positions, owner = np.arange(start, length), np.full(length - start, -1)
        kept = self._kept(mask)[:start]
        return self._with_output(index, self.ids[start:], positions, owner, length, kept)

    def prefix(self) -> TokenSequence:
        """The unmasked prompt alone: it predicts nothing, and fills the cache for the others."""
        return TokenSequence(0, self.ids, np.arange(len(self.ids)), self.owner, 0)

    def can_be_cached(self, masks: Masks) -> Masks:
        """(N,) whether a mask leaves the tail as it is, so that its sequence can use the cache."""
        owner = self.owner[self.tail :]
        return np.asarray(masks[:, owner[owner >= 0]].all(1))

    def lengths(self, masks: Masks) -> Ints:
        """(N,) tokens of each masked prompt with the whole output, without building the sequences."""
        tokens = np.bincount(self.owner + 1, minlength=masks.shape[1] + 1)
        left = tokens[0] + masks @ tokens[1:]
        if self.ablation.how == "placeholder":
            left += len(self.placeholder) * (~masks @ (tokens[1:] > 0).astype(np.int64))
        return np.asarray(np.maximum(left, 1) + len(self.output_ids))

    @cached_property
    def _places(self) -> list[Ints]:
        """Where the pinned tokens are, and then those of each feature."""
        order = np.argsort(self.owner, kind="stable")
        return np.split(order, np.searchsorted(self.owner[order], np.arange(self.owner.max() + 1)))

    def _places_of(self, features: Ints) -> list[Ints]:
        return [self._places[f + 1] for f in features.tolist() if f + 1 < len(self._places)]

    def _kept_places(self, mask: Masks) -> Ints:
        """Where the tokens are that a mask keeps; for few features this takes time for them only."""
        features = np.flatnonzero(mask)
        if _FEW * len(features) > len(mask):
            return np.flatnonzero(self._kept(mask))
        return np.sort(np.concatenate([self._places[0], *self._places_of(features)]))

    def _kept(self, mask: Masks) -> Masks:
        """(L,) which tokens a mask keeps."""
        removed = np.flatnonzero(~mask)
        if _FEW * len(removed) > len(mask):
            return np.asarray((self.owner < 0) | mask[self.owner])
        kept = np.ones(len(self.ids), dtype=bool)
        for places in self._places_of(removed):
            kept[places] = False
        return kept

    def _replaced(self, kept: Masks) -> tuple[Ints, Ints, Ints]:
        """Every removed feature as one placeholder, where its first token was."""
        places: list[tuple[Ints, Ints]] = []
        replaced: set[int] = set()
        pinned = np.full(len(self.placeholder), -1)
        edges = np.flatnonzero(np.diff(self.owner)) + 1
        for a, b in pairwise([0, *edges.tolist(), len(self.ids)]):
            if kept[a]:
                places.append((self.ids[a:b], self.owner[a:b]))
            elif int(self.owner[a]) not in replaced:
                replaced.add(int(self.owner[a]))
                places.append((self.placeholder, pinned))
        ids, owner = (np.concatenate(parts) for parts in zip(*places, strict=True))
        return ids, owner, np.arange(len(ids))

    def _with_output(
        self, index: int, ids: Ints, positions: Ints, owner: Ints, after: int, kept: Masks | None = None
    ) -> TokenSequence:
        output = self.output_ids[:-1]
        ids = np.concatenate([ids, output])
        positions = np.concatenate([positions, after + np.arange(len(output))])
        owner = np.concatenate([owner, np.full(len(output), -1)])
        return TokenSequence(index, ids, positions, owner, len(self.output_ids), kept)


@dataclass(frozen=True)
class ContextWindow:
    """What a model can read: how many tokens, and which."""

    name: str  # of the model
    tokens: int | None  # None if it does not say
    vocabulary: int | None = None  # ids of tokens are below it; None if that is not known

    def fits(self, encoder: Encoder, prompt: Prompt, output: str) -> bool:
        """Whether a prompt and an output can be read together."""
        if self.tokens is None:
            return True
        # A text has no more tokens than bytes: short ones need not be tokenised.
        if len(prompt.text.encode()) + len(output.encode()) + _TEMPLATE <= self.tokens:
            return True
        encoded = encoder.encode(prompt, output)
        return len(encoded.ids) + len(encoded.output_ids) <= self.tokens

    def lengths(
        self, encoder: Encoder, prompt: Prompt, features: tuple[Feature, ...], output: str
    ) -> Lengths:
        """How long the features, the rest of the prompt and the output are."""
        assert self.tokens is not None
        encoded = encoder.encode(prompt, output)
        owner = token_owners(features, encoded.spans, prompt.text)
        counts = np.bincount(owner + 1, minlength=len(features) + 1)
        return Lengths(counts[1:], int(counts[0]), len(encoded.output_ids), self.tokens)

    def check(self, prompt: int, output: int) -> None:
        """Refuse a prompt and an output, in tokens, that are longer together."""
        if self.tokens is not None and prompt + output > self.tokens:
            raise InputError(
                f"The prompt has {prompt:,} tokens and the output {output:,}, and {self.name} can read "
                f"{self.tokens:,} in all. Shorten the prompt, or choose a surrogate with a longer "
                "context window."
            )

    def check_ids(self, *ids: Ints) -> None:
        """Refuse tokens that the model has no embedding for."""
        largest = max(int(each.max(initial=-1)) for each in ids)
        if self.vocabulary is not None and largest >= self.vocabulary:
            raise ModelError(
                f"The tokenizer of {self.name} gives the token {largest:,}, and the model knows "
                f"{self.vocabulary:,}: they do not belong together. Fetch the model again, with its "
                "own tokenizer."
            )

    def check_placeholders(self, longest: int) -> None:
        """Refuse masked prompts that placeholders have made longer."""
        if self.tokens is not None and longest > self.tokens:
            raise InputError(
                f"With placeholders for what is removed, prompt and output grow to {longest:,} tokens, "
                f"and {self.name} can read {self.tokens:,} in all. Use a shorter placeholder, or "
                "ablation='delete'."
            )


def tokenize(
    encoder: Encoder,
    prompt: Prompt,
    features: tuple[Feature, ...],
    output: str,
    *,
    ablation: Ablation,
    window: ContextWindow,
) -> TokenizedPrompt:
    """Tokenise a prompt and an output, and assign every token to its feature."""
    encoded = encoder.encode(prompt, output)
    window.check(len(encoded.ids), len(encoded.output_ids))
    owner = token_owners(features, encoded.spans, prompt.text)
    lost = np.setdiff1d(np.arange(len(features)), owner)
    if len(lost):
        feature = features[int(lost[0])]
        raise InputError(
            f"features[{lost[0]}] = ({feature.start}, {feature.end}) {feature.text!r} owns no token of "
            f"{window.name}, so it cannot be removed. Cut the prompt with split(prompt, ..., "
            "token_spans=surrogate.token_spans), which joins it to its neighbour."
        )
    placeholder, beginning = encoder.token_ids(ablation.text), encoder.beginning()
    window.check_ids(encoded.ids, encoded.output_ids, placeholder, beginning)
    return TokenizedPrompt(
        encoded.ids,
        owner,
        encoded.output_ids,
        ablation,
        placeholder,
        beginning,
        encoded.output_spans,
        has_question=bool(prompt.text[features[-1].end :].strip()),
    )
