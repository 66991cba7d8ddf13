"""The prompt as views lay it out: named blocks, cut where features begin, and what to fold of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ropelime.results.explanation import ExplanationData
from ropelime.text.prompt import Prompt
from ropelime.views.findings import has_share

SHADE_FROM = 0.15  # of the largest weight: smaller ones have no shade
_MOST = 12  # parts that are shown because of their weight, beside the first of the ranking
_AROUND = 80  # characters of what surrounds them, before and after
_UNITS = {  # what features are called, by granularity
    "token": "token",
    "word": "word",
    "sentence": "sentence",
    "paragraph": "paragraph",
    "document": "chunk",
    "message": "message",
}


@dataclass(frozen=True)
class Block:
    """A span of the prompt: a chunk or a message with its names, or text between them without any."""

    start: int
    end: int
    label: str = ""  # "Chunk 2, b.txt", or the role of a message
    name: str = ""  # as citations name it: "chunk 2, b.txt", "message 3, user"


@dataclass(frozen=True)
class Piece:
    """A span of the prompt that lies in one feature, or in none."""

    start: int
    end: int
    feature: int | None


def blocks(prompt: Prompt) -> list[Block]:
    """The prompt in blocks, in its order; line breaks around those without a name are left out."""
    named: list[Block] = []
    if prompt.kind == "messages":
        for i, message in enumerate(prompt.messages):
            named.append(Block(message.start, message.end, message.role, prompt.where(i)))
    elif prompt.kind == "context":
        for i, (start, end) in enumerate(prompt.parts):
            name = prompt.where(i)
            named.append(Block(start, end, name.replace("chunk", "Chunk", 1), name))
    else:
        named.append(Block(0, len(prompt.text)))
    found, at = [], 0
    for block in [*named, Block(len(prompt.text), len(prompt.text))]:
        between = prompt.text[at : block.start]
        if bare := between.strip("\r\n"):
            at += between.index(bare)
            found.append(Block(at, at + len(bare)))
        if block.end > block.start:
            found.append(block)
        at = block.end
    return found


def pieces(e: ExplanationData, start: int, end: int) -> list[Piece]:
    """A span of the prompt, cut where features begin and end."""
    cut: list[Piece] = []
    at = start
    i = bisect_right(e.features, start, key=lambda feature: feature.end)
    while i < len(e.features) and e.features[i].start < end:
        first, last = max(e.features[i].start, start), min(e.features[i].end, end)
        cut += [Piece(at, first, None), Piece(first, last, i)]
        at, i = last, i + 1
    cut.append(Piece(at, end, None))
    return [piece for piece in cut if piece.start < piece.end]


def mattering(e: ExplanationData, top: int) -> set[int]:
    """The features to show with their surroundings: the first of the ranking, and the shaded ones."""
    largest = float(abs(e.weights).max()) or 1.0
    ranked = e.top(max(top, _MOST))
    return {
        each.index
        for place, each in enumerate(ranked)
        if has_share(e, each.index) and (place < top or abs(each.weight) >= SHADE_FROM * largest)
    }


def around(cut: Sequence[Piece], wanted: set[int]) -> set[int]:
    """Which pieces of a block to show: those of wanted features, and 80 characters on either side."""
    shown = {i for i, piece in enumerate(cut) if piece.feature in wanted}
    for i in tuple(shown):
        for step in (-1, 1):
            at, room = i + step, _AROUND
            while 0 <= at < len(cut) and room > 0:
                shown.add(at)
                room -= cut[at].end - cut[at].start
                at += step
    return shown


def hidden(e: ExplanationData, features: set[int]) -> str:
    """Features that are not shown, in words: "12 sentences without weight"."""
    unit = _UNITS.get(str(e.config.get("features")), "part")
    count = f"{len(features):,} {unit}{'' if len(features) == 1 else 's'}"
    share = sum(float(e.normalized_weights[i]) for i in features if has_share(e, i))
    if not share:
        return f"{count} without weight"
    return f"{count} with {f'{share:.0%}' if share >= 0.005 else 'under 1%'} of all weight"
