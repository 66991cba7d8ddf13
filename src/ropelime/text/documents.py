"""The documents of a prompt, and which of them a mark cites.

Documents are, whichever the prompt has first: its chunks; the ``document`` and ``search_result``
blocks of its messages; passages with numbers, such as ``[1] ...`` or ``<document index="1">``;
results of tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from ropelime.errors import InputError
from ropelime.text.marks import Reference
from ropelime.text.prompt import Prompt, Span

_NAMES = ("source", "url", "title", "id", "file_id", "filename", "file_name", "name")
_BLOCKS = ("document", "search_result")  # of Anthropic's messages
_HEADER = re.compile(
    r"^[ \t]*(?:\[(\d{1,3})\]|【(\d{1,3})】"
    r"|(?:document|source|passage|doc|chunk|context)[ \t]*[#\[(]?(\d{1,3})[\])]?[ \t]*[:.)\]-]"
    r"|<(?:document|doc|source|passage|chunk)[ \t]+(?:index|id|number)=[\"']?(\d{1,3})[\"']?[^>\n]*>)",
    re.I | re.M,
)
_CLOSED = re.compile(r"</(?:document|doc|source|passage|chunk)>", re.I)
_TITLE = re.compile(r"(?:\b(?:title|source|url|file)[ \t]*[:=][ \t]*|<source>)([^\n<>)]+)", re.I)
_TRACKING = re.compile(r"[?&]utm_[^#]*")  # what some APIs append to an address
_FILE_OR_ADDRESS = re.compile(
    r"\w+://\S|\b[\w-]+\.(?:pdf|html?|md|txt|docx?|csv|json|xlsx?|pptx?)\b", re.I
)
_QUOTED = 12  # characters of a text that must stand in a document to be a quotation from it


@dataclass(frozen=True)
class Document:
    """A document that marks can cite.

    Attributes:
        index: Its place among the documents, counted from 0.
        number: The number that marks call it by.
        names: Its file, address, title or id; the first one is shown.
        page: Its page; empty where it is not known.
        start: Where its text begins in the prompt.
        end: Where it ends.
        text: The text.
    """

    index: int
    number: int
    names: tuple[str, ...]
    page: str
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        page = f"page {self.page}" if self.page else ""
        return ", ".join(filter(None, (f"document {self.number}", *self.names[:1], page)))

    def quotes(self, text: str) -> bool:
        """Whether it holds a text, white space aside."""
        bare = _bare(text)
        return bool(bare) and bare in _bare(self.text)


@dataclass(frozen=True)
class Documents:
    """The documents of a prompt."""

    prompt: Prompt
    all: tuple[Document, ...]

    def numbered(self, number: int) -> bool:
        """Whether a document has that number."""
        return any(document.number == number for document in self.all)

    def named(self, name: str) -> bool:
        """Whether a document has that name or address."""
        return bool(self._by_name(name))

    def mentions(self, text: str) -> bool:
        """Whether the prompt holds that text."""
        return text in self.prompt.text

    def at(self, start: int, end: int) -> Document | None:
        """The document that a span of the prompt lies in, at least in part."""
        return next((each for each in self.all if each.start < end and each.end > start), None)

    def cited(self, reference: Reference) -> tuple[Document, ...]:
        """The documents that a reference means: several chunks of one file, or none."""
        if reference.definition and (found := self._by_definition(reference.definition)):
            return found
        if reference.definition and _FILE_OR_ADDRESS.search(reference.definition):
            return ()  # it names something that is not here
        names = list(dict.fromkeys(each for name in reference.names for each in self._by_name(name)))
        if reference.index is not None:
            placed = [each for each in self.all if each.index == reference.index]
            names = placed if not names or (placed and placed[0] in names) else names
        elif not names and reference.number is not None:
            names = [each for each in self.all if each.number == reference.number]
        return tuple(_narrowed(names, reference))

    def _by_name(self, name: str) -> list[Document]:
        """Those with that name, or else those whose path or address ends in it."""
        wanted = _name(name)
        if not wanted:
            return []
        own = {each.index: [_name(known) for known in each.names] for each in self.all}
        exact = [each for each in self.all if wanted in own[each.index]]
        last = wanted.rpartition("/")[2]
        ends = [
            each
            for each in self.all
            if any(known.rpartition("/")[2] == last and "." in last for known in own[each.index])
        ]
        return exact or (ends if wanted == last or "://" not in name else [])

    def _by_definition(self, says: str) -> tuple[Document, ...]:
        """Those that an entry of a list of sources quotes or names."""
        plain = re.sub(r"\\([^\w\s])", r"\1", says)  # escapes of Markdown
        bare = re.sub(r"\s*\([^()]*\)\s*$", "", plain).strip("\"'“”*_ ")
        quoted = [each for each in self.all if len(bare) >= _QUOTED and each.quotes(bare)]
        named = self._named_in(_name(plain))
        number = re.search(r"\b(?:chunk|document|doc|passage)\s*#?(\d{1,3})\b", plain, re.I)
        placed = [each for each in named or self.all if number and each.number == int(number[1])]
        page = re.search(r"\b(?:page|p\.)\s*(\d+)", plain, re.I)
        paged = [each for each in named if page and each.page == page[1]]
        both = [each for each in quoted if each in named]
        return tuple(both or quoted or placed or paged or named)

    def _named_in(self, text: str) -> list[Document]:
        """Those whose name stands in a text, or else the last part of their path."""

        def stands(name: str) -> bool:
            return bool(name) and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None

        own = {each.index: [_name(name) for name in each.names] for each in self.all}
        whole = [each for each in self.all if any(map(stands, own[each.index]))]
        files = {i: [n.rpartition("/")[2] for n in names] for i, names in own.items()}
        return whole or [e for e in self.all if any("." in f and stands(f) for f in files[e.index])]


def read_documents(prompt: Prompt, given: Any = None, *, first: int = 1) -> Documents:
    """The documents of a prompt.

    Args:
        prompt: The prompt.
        given: The chunks or messages that it was made of, which hold names.
        first: The number of the first document, where the prompt does not number them.
    """
    if prompt.kind == "context":
        found = [_chunk(i, prompt, entry) for i, entry in enumerate(given or prompt.parts)]
    else:
        found = list(_of_blocks(prompt, given)) or list(_numbered(prompt)) or list(_of_tools(prompt))
    if not found:
        raise InputError(
            "The prompt has no documents that a mark could cite. Pass them as context=[...], or number "
            "them in the prompt: [1] ..., [2] ..."
        )
    count = (replace(each, index=i) for i, each in enumerate(found))
    return Documents(
        prompt, tuple(replace(e, number=e.index + first) if e.number < 0 else e for e in count)
    )


def with_documents(messages: Any) -> Any:
    """Messages whose ``document`` and ``search_result`` blocks are texts, with their names kept."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        return messages
    return [_with_texts(number, message) for number, message in enumerate(messages)]


def _with_texts(number: int, message: Any) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str) or not isinstance(content, Sequence):
        return message
    where = f"messages[{number}]['content']"
    blocks = [
        {**block, "text": _block_text(f"{where}[{i}]", block)} if _is_block(block) else block
        for i, block in enumerate(content)
    ]
    return {**message, "content": blocks}


def _is_block(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _BLOCKS


def _block_text(where: str, block: Mapping[str, Any]) -> str:
    """The text of a document: plain, or in blocks of its own."""
    source = block.get("source")
    inside = block.get("content") if block["type"] == "search_result" else None
    if isinstance(source, Mapping):
        inside = source.get("data") if source.get("type") == "text" else source.get("content")
    if isinstance(inside, str):
        return inside
    texts = [
        part["text"]
        for part in (inside if isinstance(inside, Sequence) else ())
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    ]
    if not texts:
        raise InputError(f"{where} has no text: pass the text of the document, not a file or a PDF.")
    return "\n".join(texts)


def _chunk(index: int, prompt: Prompt, entry: Any) -> Document:
    start, end = prompt.parts[index]
    known = entry if isinstance(entry, Mapping) else {}
    return _document(prompt, (start, end), _own_names(known, prompt.origin(index).source),
                     page=prompt.origin(index).page)  # fmt: skip


def _own_names(entry: Mapping[str, Any], *names: str) -> Iterator[str]:
    yield from names
    yield from (str(entry[key]) for key in _NAMES if isinstance(entry.get(key), (str, int)))


def _document(
    prompt: Prompt, span: Span, names: Iterable[str] = (), *, page: str = "", number: int = -1
) -> Document:
    kept = tuple(dict.fromkeys(" ".join(name.split()) for name in names if name.strip()))
    return Document(0, number, kept, page, *span, prompt.text[slice(*span)])


def _of_blocks(prompt: Prompt, messages: Any) -> Iterator[Document]:
    """The blocks of messages, whose texts are parts of the prompt in the same order."""
    parts = iter(prompt.parts)
    for message in messages if prompt.kind == "messages" and isinstance(messages, Sequence) else ():
        content = message.get("content")
        pieces = (
            content if isinstance(content, Sequence) and not isinstance(content, str) else [content]
        )
        pieces = [*pieces, *(message.get("tool_calls") or ())]
        for piece in pieces:
            text = piece.get("text", " ") if isinstance(piece, Mapping) and "text" in piece else piece
            if (isinstance(text, str) and not text.strip()) or text is None:
                continue  # as in the prompt, where blank pieces are not parts
            span = next(parts, None)
            if span is not None and _is_block(piece):
                yield _document(prompt, span, _own_names(piece))


def _numbered(prompt: Prompt) -> Iterator[Document]:
    """Passages that begin with their number, each up to the next or to the end of its part."""
    for start, end in prompt.parts:
        headers = list(_HEADER.finditer(prompt.text, start, end))
        edges = [*(header.start() for header in headers[1:]), end][: len(headers)]
        open_ended = any(
            "\n\n" in prompt.text[h.end() : e].strip()
            for h, e in zip(headers, edges[:-1], strict=False)
        )
        for header, edge in zip(headers, edges, strict=True):
            begin = header.end()
            closed = _CLOSED.search(prompt.text, begin, edge)
            if closed:
                edge = closed.start()
            elif edge == end and not open_ended and (gap := prompt.text.find("\n\n", begin, end)) > 0:
                edge = gap
            text = prompt.text[begin:edge]
            span = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
            if span[0] < span[1]:
                names = [match[1].strip() for match in _TITLE.finditer(text)][:3]
                number = int(next(filter(None, header.groups())))
                yield _document(prompt, span, names, number=number)


def _of_tools(prompt: Prompt) -> Iterator[Document]:
    for message in prompt.messages:
        if message.role in ("tool", "function") and prompt.content(message).strip():
            yield _document(prompt, (message.start, message.end))


def _narrowed(found: Sequence[Document], reference: Reference) -> Sequence[Document]:
    """Of several chunks of one file, those with the page or the quotation."""
    if len(found) > 1 and reference.pages is not None:
        found = [e for e in found if _in(reference.pages, e.page)] or found
    if len(found) > 1 and reference.quote:
        found = [each for each in found if each.quotes(reference.quote)] or found
    return found


def _in(pages: Span, page: str) -> bool:
    return page.isdecimal() and len(page) < 10 and pages[0] <= int(page) < pages[1]


def _name(text: str) -> str:
    """A name or an address in a form that can be compared."""
    bare = _TRACKING.sub("", unquote(text).strip().strip("<>\"'`").casefold())
    bare = re.sub(r"^\w+://(?:www\.)?", "", bare).partition("#")[0]
    return " ".join(bare.removeprefix("./").rstrip("/").split())


def _bare(text: str) -> str:
    return " ".join(text.split()).strip("\"'“”").casefold()
