"""Long prompts: runs of features that are read together, and a prompt with some features only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ropelime.text.features import Feature, character_owners
from ropelime.text.prompt import Message, Prompt
from ropelime.typing import Ints


def reduced(
    prompt: Prompt, features: Sequence[Feature], keep: Sequence[int]
) -> tuple[Prompt, tuple[Feature, ...]]:
    """The prompt with these features only, and where they lie in it; pinned text stays.

    Characters are removed as the ablation ``"delete"`` removes tokens.
    """
    kept = np.zeros(len(features) + 1, dtype=bool)
    kept[[*keep, -1]] = True  # the last entry is that of pinned text, whose owner is -1
    left = kept[character_owners(features, prompt.text)]
    left[-1] = False  # the place after the text
    edges = np.flatnonzero(np.diff(left, prepend=False)).reshape(-1, 2).tolist()
    at = np.concatenate([[0], np.cumsum(left)])

    def moved(start: int, end: int) -> tuple[int, int]:
        return int(at[start]), int(at[end])

    messages = [(m, *moved(m.start, m.end)) for m in prompt.messages]
    short = Prompt(
        "".join(prompt.text[start:end] for start, end in edges),
        # One of which nothing is left would be an empty turn.
        tuple(Message(m.role, a, b) for m, a, b in messages if a < b or m.start == m.end),
        tuple(moved(*part) for part in prompt.parts),
        prompt.kind,
        prompt.origins,
    )
    places = ((features[i], *moved(features[i].start, features[i].end)) for i in sorted(keep))
    return short, tuple(replace(feature, start=a, end=b) for feature, a, b in places)


def passages(features: Sequence[Feature], tokens: Ints, text: str, most: int) -> list[range]:
    """Runs of features of one chunk or message, each of at most so many tokens.

    A feature with more tokens is a run by itself. Runs end at white space wherever there is some, so
    that text that is put together anew has the same tokens.

    Args:
        features: The features.
        tokens: (n,) how many tokens each has.
        text: The text of the prompt.
        most: The most tokens of a run, unless that would cut a word.
    """
    runs: list[range] = []
    start, size = 0, 0
    for i, feature in enumerate(features):
        full = size + int(tokens[i]) > most
        other = i > 0 and feature.part != features[i - 1].part
        at = feature.start
        blank = at == 0 or text[at].isspace() or text[at - 1].isspace()
        if i > start and (other or (full and blank)):
            runs.append(range(start, i))
            start, size = i, 0
        size += int(tokens[i])
    return [*runs, range(start, len(features))]


def windows(sizes: Sequence[int], room: int) -> list[range]:
    """Runs of passages that fill a window each.

    Args:
        sizes: The tokens of each passage, none with more than ``room``.
        room: The most tokens of a run.
    """
    runs: list[range] = []
    start, used = 0, 0
    for i, size in enumerate(sizes):
        if i > start and used + size > room:
            runs.append(range(start, i))
            start, used = i, 0
        used += size
    return [*runs, range(start, len(sizes))]
