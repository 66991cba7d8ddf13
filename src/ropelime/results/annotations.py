"""Citations in the form of an API's answer: OpenAI's annotations and Anthropic's citations.

The fields are those of the providers' documentation, as of November 2026;
:mod:`ropelime.text.annotated` reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropelime.results.explanation import ExplanationData
from ropelime.text.prompt import Span


@dataclass(frozen=True)
class SourcedSpan:
    """A sentence of the answer and the features that it cites."""

    span: Span
    features: tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """Where a feature lies in its document: a chunk, a message or the whole prompt."""

    document: int
    title: str
    name: str  # the title, or a name where there is none
    start: int
    end: int
    text: str


def openai_part(
    e: ExplanationData, sentences: Sequence[SourcedSpan], file_ids: Mapping[str, str], *, quote: bool
) -> dict[str, Any]:
    """The answer as a part of a message of OpenAI's Responses API.

    ``{"type": "output_text", "text": ..., "annotations": [...]}``. A document whose source is an
    address is cited as ``url_citation`` with ``start_index``, ``end_index`` (of the sentence; the
    end is excluded), ``url`` and ``title``; another one as ``file_citation`` with ``index`` (the
    end of the sentence), ``file_id`` and ``filename``.
    """
    return {
        "type": "output_text",
        "text": e.output,
        "annotations": [
            {**_annotation(place, sentence.span, file_ids), **({"quote": place.text} if quote else {})}
            for sentence in sentences
            for place in _places(e, sentence.features)
        ],
    }


def anthropic_blocks(e: ExplanationData, sentences: Sequence[SourcedSpan]) -> list[dict[str, Any]]:
    """The answer as content blocks of Anthropic's Messages API.

    Each is ``{"type": "text", "text": ...}``, and their texts make up the answer. The block of a
    sentence with sources has ``citations``, each with ``type`` (``char_location``), ``cited_text``,
    ``document_index`` (from 0), ``document_title``, ``start_char_index`` (from 0) and
    ``end_char_index`` (excluded), both in the text of the document.
    """
    blocks: list[dict[str, Any]] = []
    at = 0
    for sentence in sentences:
        if not sentence.features:
            continue
        start, end = sentence.span
        if start > at:
            blocks.append({"type": "text", "text": e.output[at:start]})
        citations = [
            {
                "type": "char_location",
                "cited_text": place.text,
                "document_index": place.document,
                "document_title": place.title or None,
                "start_char_index": place.start,
                "end_char_index": place.end,
            }
            for place in _places(e, sentence.features)
        ]
        blocks.append({"type": "text", "text": e.output[start:end], "citations": citations})
        at = end
    if at < len(e.output):
        blocks.append({"type": "text", "text": e.output[at:]})
    return blocks


def _annotation(place: _Place, span: Span, file_ids: Mapping[str, str]) -> dict[str, Any]:
    if re.match(r"\w+://", place.title):
        start, end = span
        return {
            "type": "url_citation",
            "start_index": start,
            "end_index": end,
            "url": place.title,
            "title": place.title,
        }
    return {
        "type": "file_citation",
        "index": span[1],
        "file_id": file_ids.get(place.name, place.name),
        "filename": place.name,
    }


def _places(e: ExplanationData, features: Sequence[int]) -> Iterator[_Place]:
    for index in features:
        feature, prompt = e.features[index], e.prompt
        begin = 0
        if prompt.kind == "context":
            begin = prompt.parts[feature.part][0]
        elif prompt.kind == "messages":
            begin = prompt.messages[feature.part].start
        lead = len(feature.text) - len(feature.text.lstrip())
        text = feature.text.strip()
        start = feature.start + lead - begin
        title = prompt.origin(feature.part).source if prompt.kind == "context" else ""
        name = title or prompt.where(feature.part) or "prompt"
        yield _Place(feature.part, title, name, start, start + len(text), text)
