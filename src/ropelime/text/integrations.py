"""Objects of other libraries as plain data; :mod:`ropelime.integrations` has their meaning.

They are recognised by their attributes; none of the libraries is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Keys in the metadata of a chunk, in the order of preference. A label is the page number that is
# printed in the document; a bare page number may count from 0.
_SOURCES = ("source", "file_name", "file_path", "url", "title")
_PAGES = ("page_label", "page", "page_number")


def as_dict(value: Any) -> Mapping[str, Any] | None:
    """A mapping as it is, an object of an SDK as its dictionary, None for anything else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)  # the objects of the OpenAI SDK have it
    dumped = dump(exclude_none=True) if callable(dump) and not isinstance(value, type) else None
    return dumped if isinstance(dumped, Mapping) else None


def as_chunks(given: Any) -> Any:
    """Chunks, with LangChain's documents and LlamaIndex's nodes as text, source and page."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return given
    return [chunk if isinstance(chunk, (str, Mapping)) else _chunk(chunk) for chunk in given]


def _chunk(document: Any) -> Any:
    text = getattr(document, "page_content", None)  # LangChain
    if text is None:
        document = getattr(document, "node", document)  # LlamaIndex, with or without a score
        if not callable(read := getattr(document, "get_content", None)):
            return document
        text = read()
    metadata = getattr(document, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return {"text": text, "source": _first(metadata, _SOURCES), "page": _first(metadata, _PAGES)}


def _first(mapping: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first key that is set, as a number or a text."""
    value = next((mapping[name] for name in names if mapping.get(name) not in (None, "")), None)
    return value if value is None or isinstance(value, int) else str(value)
