"""The first look at a prompt that is longer than the window: which passages to read closely.

Two signals give every feature a share. *Words*: those that it shares with the question and the answer.
*Model*: each window is read once; the window's part is how much it raises the probability of the
answer's tokens above what any window does, and within a window the attention of the answer decides.
Passages are taken in turn from the rankings by each signal, until a window is full. The share of the
features that were left out is the estimate of the probability that something was overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropelime.method.attribution import above_floor, half_width, sharpened
from ropelime.typing import Floats, Ints

_WORDS_POWER = 4


@dataclass(frozen=True)
class FirstLook:
    """What is known of every feature before any is read closely.

    Attributes:
        signals: (n,) the shares that each signal gives, by name; all zero where it says nothing.
        shares: (n,) their mean, without what any feature would get.
        half_width: (n,) half the width of the 90 % interval of each share.
    """

    signals: Mapping[str, Floats]
    shares: Floats
    half_width: Floats

    @classmethod
    def of(cls, signals: Mapping[str, Floats], n: int) -> FirstLook:
        """The mean of the signals that say something; equal shares if none does."""
        heard = {name: share for name, share in signals.items() if share.any()}
        if not heard:
            return cls(dict(signals), np.full(n, 1 / n), np.full(n, 1 - 1 / n))
        shares = above_floor(np.mean(list(heard.values()), axis=0))
        counts = dict.fromkeys(heard, 1 / len(heard))
        return cls(dict(signals), shares, half_width(heard, counts, shares))


def word_shares(words: Floats) -> Floats:
    """(n,) shares by the words that features have in common with question and answer."""
    return sharpened(words, _WORDS_POWER)


def window_shares(logprobs: Sequence[Floats], empty: Floats) -> Floats:
    """(W,) the share of each window in what is known of the answer.

    A token counts for a window as far as it is likelier there than in the window in the middle, and
    than with no feature at all.

    Args:
        logprobs: For each window, the (T,) log-probabilities of the answer's tokens.
        empty: (T,) the same with no feature.
    """
    each = np.stack(logprobs)
    usual = np.maximum(np.median(each, axis=0), empty) if len(each) > 2 else empty
    return sharpened(np.maximum(each - usual, 0.0).sum(1))


def choose(look: FirstLook, passages: Sequence[range], sizes: Sequence[int], room: int) -> list[int]:
    """The numbers of the passages to read closely, in their order.

    Args:
        look: The shares of the features.
        passages: The features of each passage.
        sizes: The tokens of each passage.
        room: The most tokens of all together.
    """
    rankings = [ranked(share, passages) for share in (*look.signals.values(), look.shares)]
    chosen: set[int] = set()
    left = room
    for turn in zip(*rankings, strict=True):
        for number in turn:
            if number not in chosen and sizes[number] <= left:
                chosen.add(number)
                left -= sizes[number]
    return sorted(chosen)


def ranked(shares: Floats, passages: Sequence[range]) -> Ints:
    """(P,) the passages by the largest share of a feature, then by the sum of all."""
    each = [shares[run.start : run.stop] for run in passages]
    largest, total = np.array([part.max() for part in each]), np.array([part.sum() for part in each])
    return np.lexsort((-total, -largest))
