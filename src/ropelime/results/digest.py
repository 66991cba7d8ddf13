"""What a summary over many answers needs of one explanation, as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ropelime.files import significant
from ropelime.results.citations import ground
from ropelime.results.explanation import ExplanationData
from ropelime.text import segmentation
from ropelime.text.display import shorten
from ropelime.text.features import Feature

PartKind = Literal["document", "message", "instruction", "passage"]
INSTRUCTING = ("system", "developer")  # roles whose messages are instructions
_NAME = 100  # characters of a text that stands for a name


@dataclass(frozen=True)
class _Part:
    """A part of the prompt that may occur in other prompts too."""

    kind: PartKind
    name: str
    key: str  # the name, or a hash of the text of what has none


def digest(e: ExplanationData) -> dict[str, Any]:
    """The parts of the prompt and the sentences of the answer.

    ``parts``: documents by their source (or by their text, if they have none), messages by place
    and role, and the sentences of system messages and of plain prompts by their text. Each has the
    sum of its features' normalised weights (``share``), whether the first-ranked feature is in it
    (``first``), and how many sentences of the answer come from it (``cited``).

    ``sentences``: start and end in the output, the probability that it comes from the prompt, and the
    indices in ``parts`` of what it comes from.
    """
    parts: dict[_Part, dict[str, Any]] = {}
    places: list[int] = []  # of each feature: its part
    order: dict[_Part, int] = {}
    for share, part in zip(e.normalized_weights, _parts(e), strict=True):
        places.append(order.setdefault(part, len(order)))
        own = parts.setdefault(part, {"kind": part.kind, "name": part.name, "key": part.key})
        own["share"] = own.get("share", 0.0) + float(share)
    rows = list(parts.values())
    first = places[e.top(1)[0].index]
    sentences = []
    for sentence in ground(e):
        sources = list(dict.fromkeys(places[source.feature] for source in sentence.sources))
        for place in sources:
            rows[place]["cited"] = rows[place].get("cited", 0) + 1
        start, end = sentence.span
        probability = significant(sentence.probability)
        sentences.append({"start": start, "end": end, "probability": probability, "sources": sources})
    for place, row in enumerate(rows):
        row |= {
            "share": significant(row["share"]),
            "first": place == first,
            "cited": row.get("cited", 0),
        }
    return {"parts": rows, "sentences": sentences}


def _parts(e: ExplanationData) -> Iterator[_Part]:
    """The part that each feature belongs to."""
    prompt = e.prompt
    spans: dict[int, list[tuple[int, int]]] = {}  # sentences of a message or of the prompt
    for feature in e.features:
        if prompt.kind == "context":
            source = prompt.origin(feature.part).source
            text = prompt.text[slice(*prompt.parts[feature.part])]
            yield _Part("document", source, source) if source else _by_text("document", text)
            continue
        message = prompt.messages[feature.part if prompt.kind == "messages" else 0]
        if prompt.kind == "messages" and message.role not in INSTRUCTING:
            name = prompt.where(feature.part)
            yield _Part("message", name, name)
            continue
        if feature.part not in spans:
            found = segmentation.sentences(prompt.content(message))
            spans[feature.part] = [(message.start + a, message.start + b) for a, b in found]
        kind: PartKind = "instruction" if prompt.kind == "messages" else "passage"
        yield _by_text(kind, _whole(prompt.text, feature, spans[feature.part]))


def _whole(text: str, feature: Feature, sentences: list[tuple[int, int]]) -> str:
    """The sentence that a feature lies in, or the feature if it is larger."""
    inside = ((a, b) for a, b in sentences if a <= feature.start and feature.end <= b)
    start, end = next(inside, (feature.start, feature.end))
    return text[start:end]


def _by_text(kind: PartKind, text: str) -> _Part:
    bare = " ".join(text.split())
    key = hashlib.blake2b(bare.encode(), digest_size=8).hexdigest()
    return _Part(kind, shorten(bare, _NAME), key)
