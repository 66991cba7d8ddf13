"""Answers as an API returns them, with citations as objects beside the text.

The fields are those of the providers' documentation, as of November 2026:

- OpenAI, Responses: parts of type ``output_text`` with ``annotations``: ``file_citation``
  (``index``, where the mark belongs in the text; ``file_id``, ``filename``), ``url_citation`` and
  ``container_file_citation`` (``start_index``, ``end_index``; ``url``, ``title`` or ``file_id``,
  ``filename``). Chat Completions nests the fields of an annotation under its type. Assistants has
  ``start_index``, ``end_index`` and ``text``, the mark in the text.
- Anthropic, Messages: blocks of type ``text`` with ``citations``. ``char_location``,
  ``page_location`` and ``content_block_location`` have ``cited_text``, ``document_index`` (from 0)
  and ``document_title``; ``search_result_location`` has ``search_result_index``, ``source`` and
  ``title``; ``web_search_result_location`` has ``url`` and ``title``. Pages count from 1; the last
  is excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from ropelime.errors import InputError
from ropelime.text.integrations import as_dict
from ropelime.text.marks import FoundMark, Known, MarkedAnswer, Reference, joined, read_marks

_OPENAI = ("file_citation", "url_citation", "container_file_citation", "file_path")
_ANTHROPIC = (
    "char_location", "page_location", "content_block_location", "search_result_location",
    "web_search_result_location",
)  # fmt: skip
_NAMES = ("url", "source", "filename", "document_title", "title", "file_id")
_OPENERS = ("[", "(", "【", "<", "http", "†")  # a span that begins so is a mark and not a statement


def read_answer(answer: Any, known: Known) -> MarkedAnswer:
    """The marks of an answer: of a text, or of a message, response or list of blocks of an API."""
    if isinstance(answer, str):
        return read_marks(answer, known)
    blocks = list(_blocks(answer))
    if not blocks:
        raise InputError(
            "output must be a text, or a message or response of OpenAI's or Anthropic's API with text "
            f"in it, not {type(answer).__name__} without any.",
            field="output",
        )
    text, marks = "", []
    for block, gap in blocks:
        text += gap if text else ""
        marks += list(_marks(block, len(text)))
        text += _text(block)
    inline = read_marks(text, known)
    written = [mark for mark in marks if mark.start < mark.end]
    left = [mark for mark in inline.marks if not any(_overlap(mark, other) for other in written)]
    removed = [*inline.removed, *((mark.start, mark.end) for mark in written)]
    order = sorted([*marks, *left], key=lambda mark: (mark.start, mark.end))
    return MarkedAnswer(text, tuple(order), tuple(joined(text, removed)))


def is_message(data: Any) -> bool:
    """Whether parsed JSON is an answer of an API, and not just JSON."""
    return isinstance(data, (Mapping, list)) and bool(list(_blocks(data)))


def _blocks(answer: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The blocks of text in an answer, each with what separates it from the one before."""
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        for item in answer:
            yield from _blocks(item)
        return
    data = as_dict(answer)
    if data is None:
        return
    content = data.get("content")
    if "choices" in data:
        choices = data["choices"] or [{}]
        first = as_dict(choices[0]) if isinstance(choices, Sequence) else None
        yield from _blocks((first or {}).get("message"))
    elif isinstance(data.get("output"), Sequence) and not isinstance(data["output"], str):
        items = [item for item in map(as_dict, data["output"]) if item]
        yield from _blocks([item for item in items if item.get("type") == "message"])
    elif isinstance(content, str):
        yield data, "\n"
    elif isinstance(content, Sequence):
        yield from _blocks(content)
    elif data.get("type") in ("text", "output_text") and _text(data):
        yield data, ""


def _text(block: Mapping[str, Any]) -> str:
    text = block.get("content", block.get("text"))
    if isinstance(text, Mapping):  # Assistants
        text = text.get("value")
    return text if isinstance(text, str) else ""


def _marks(block: Mapping[str, Any], at: int) -> Iterator[FoundMark]:
    """The marks of a block whose text begins at ``at``."""
    text = _text(block)
    inner = block.get("text")
    holder = inner if isinstance(inner, Mapping) else block
    for annotation in _objects(holder.get("annotations")):
        if annotation.get("type") in _OPENAI[:3]:
            yield _openai(annotation, text, at)
    for citation in _objects(block.get("citations")):
        if citation.get("type") in _ANTHROPIC:
            yield _anthropic(citation, text, at)


def _objects(given: Any) -> Iterable[Mapping[str, Any]]:
    entries = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
    return [data for data in map(as_dict, entries) if data is not None]


def _openai(annotation: Mapping[str, Any], text: str, at: int) -> FoundMark:
    kind = str(annotation["type"])
    nested = annotation.get(kind)
    fields = {**annotation, **(nested if isinstance(nested, Mapping) else {})}
    reference = Reference(names=_names(fields), quote=str(fields.get("quote") or ""))
    start, end = (_place(fields.get(name), text) for name in ("start_index", "end_index"))
    if start is None or end is None or start >= end:
        place = _place(fields.get("index"), text)
        place = len(text) if place is None else place
        return FoundMark(at + place, at + place, kind, reference)
    if text[start:end].lstrip().lower().startswith(_OPENERS):
        return FoundMark(at + start, at + end, text[start:end], reference)
    return FoundMark(at + end, at + end, kind, reference, about=(at + start, at + end))


def _anthropic(citation: Mapping[str, Any], text: str, at: int) -> FoundMark:
    index = citation.get("document_index", citation.get("search_result_index"))
    first, after = (citation.get(f"{edge}_page_number") for edge in ("start", "end"))
    reference = Reference(
        index=index if _whole(index) else None,
        names=_names(citation),
        quote=str(citation.get("cited_text") or ""),
        pages=(int(first), int(after)) if _whole(first) and _whole(after) else None,
    )
    end = at + len(text)
    return FoundMark(end, end, str(citation["type"]), reference, about=(at, end))


def _names(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(fields[name] for name in _NAMES if isinstance(fields.get(name), str) and fields[name])


def _place(value: Any, text: str) -> int | None:
    return min(value, len(text)) if _whole(value) else None


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _overlap(one: FoundMark, other: FoundMark) -> bool:
    return one.start < other.end and other.start < one.end
