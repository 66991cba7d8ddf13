"""Citation marks in an answer: found, and taken out of its text.

Known forms: ``[1]``, ``[1, 3]``, ``[1-3]``, ``[doc1]``, ``[name of a document]``, ``【1†source】``,
``【4:0†name】``, ``[^1]`` with or without a definition, superscripts (``¹``, ``<sup>1</sup>``),
Markdown links, and addresses of documents. A list of sources after the answer says what its numbers
mean. Code and pictures are left as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from ropelime.text.prompt import Span

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_MARK = re.compile(
    r"""(?P<code>```.*?(?:```|\Z)|`[^`\n]+`|!\[[^\[\]\n]*\]\([^()\n]*\))
    |(?P<lenticular>【(?P<at>\d{1,3})(?::(?P<below>\d{1,3}))?(?:†(?P<named>[^】\n]*))?】)
    |(?P<footnote>\[\^(?P<label>[^\]\s]+)\])
    |(?P<link>\[(?P<shown>\[[^\[\]\n]*\]|[^\[\]\n]*)\]\(<?(?P<to>[^\s()<>]+(?:\([^\s()]*\))?)>?
        (?:\s+"[^"\n]*")?\))
    |(?P<numbers>\[\s*(?P<list>\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\s*\])
    |(?P<worded>\[\s*(?:doc(?:ument)?|source|ref(?:erence)?|chunk|passage)\s*[:.\#]?\s*
        (?P<numbered>\d{1,3})\s*\])
    |(?P<bracket>\[(?:source:\s*)?(?P<name>[^\[\]\n]{1,200})\])
    |(?P<sup><sup>\s*\[?(?P<listed>\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\]?\s*</sup>)
    |(?P<raised>(?:(?<=[^\W\d_]{3})|(?<=[.,;:!?)\]"”’»]))(?P<digits>[⁰¹²³⁴-⁹]{1,3}(?:[,˒⁻][⁰¹²³⁴-⁹]{1,3})*))
    |(?P<address><?(?P<url>https?://[^\s<>()\[\]"”]+[^\s<>()\[\]"”.,;:!?'])>?)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
# A text that stands for the document it links to, and says nothing itself.
_EMPTY_WORDS = re.compile(r"\W*(?:\d{1,3}|source|sources|link|ref|reference|here|citation)?\W*", re.I)
# Parentheses around nothing but links.
_LINKS = re.compile(r"\((?:\[[^\[\]\n]*\]\([^\s()]*(?:\([^\s()]*\))?\)[,;\s]*)+\)")
_NOTE = re.compile(
    r"^ {0,3}\[(?P<label>\^[^\]\s]+|\d{1,3})\]:[ \t]*(?P<says>.*(?:\n[ \t]+\S.*)*)\n?", re.M
)
_ENTRY = re.compile(
    r"^\s*(?:[-*][ \t]+)?(?:\[(?P<n>\d{1,3})\]|(?P<r>[⁰¹²³⁴-⁹]{1,3})|(?P<d>\d{1,3})[.)])"
    r"[ \t]+(?P<says>\S.*)"
)
# What our own citations write after a sentence without a source, and the line that says so.
_WITHOUT = re.compile(r"^\[(?:–\]|\^none\]:) .*$|[ \t]*\[(?:–|\^none)\]", re.M)
_HEADING = re.compile(
    r"^[#*_\s]*(?:sources?|references|citations|footnotes|bibliography)[*_\s]*:?[*_\s]*$", re.I
)
_BETWEEN = re.compile(r"[ \t]*[,;]?[ \t]*")
_NOT_DOCUMENTS = ("#", "mailto:", "tel:", "javascript:")


@dataclass(frozen=True)
class Reference:
    """What a mark says about the document that it cites.

    Attributes:
        number: The number as it is written; None where there is none.
        index: The place among the documents, counted from 0, as in the objects of an API.
        names: Addresses, files, titles or ids.
        definition: What the list of sources says about it.
        quote: The text that it quotes from the document.
        pages: First page, and the one after the last; None where there are none.
    """

    number: int | None = None
    index: int | None = None
    names: tuple[str, ...] = ()
    definition: str = ""
    quote: str = ""
    pages: Span | None = None


@dataclass(frozen=True)
class FoundMark:
    """One document that is cited at one place.

    Attributes:
        start: Where the mark begins in the answer as it was given.
        end: Where it ends; the same for one that is not written in the text.
        label: How to call it: the mark as it is written, or the name of an API's object.
        reference: What it says about the document.
        about: The part of the answer that it is about, where it says so.
        leads: Whether it stands before what it is about.
    """

    start: int
    end: int
    label: str
    reference: Reference
    about: Span | None = None
    leads: bool = False


@dataclass(frozen=True)
class MarkedAnswer:
    """An answer with its marks, and without them.

    Attributes:
        text: The answer as it was given.
        marks: Its marks, in their order.
        removed: The spans of ``text`` that are left out of ``clean``, sorted and disjoint.
    """

    text: str
    marks: tuple[FoundMark, ...]
    removed: tuple[Span, ...] = ()

    @cached_property
    def _kept(self) -> list[tuple[int, int, int]]:
        """Start and end of what is left of the text, and where that begins in ``clean``."""
        kept, at, size = [], 0, 0
        for start, end in (*self.removed, (len(self.text), len(self.text))):
            if start > at:
                kept.append((at, start, size))
                size += start - at
            at = max(at, end)
        return kept

    @cached_property
    def clean(self) -> str:
        """The answer without its marks."""
        return "".join(self.text[start:end] for start, end, _ in self._kept)

    def to_clean(self, at: int) -> int:
        """Where a place of ``text`` is in ``clean``."""
        before = bisect_right(self._kept, at, key=lambda kept: kept[0]) - 1
        if before < 0:
            return 0
        start, end, size = self._kept[before]
        return size + min(at, end) - start

    def to_text(self, start: int, end: int) -> Span:
        """The span of ``text`` that became (start, end) of ``clean``; no mark at its ends is in it."""
        first = bisect_right(self._kept, start, key=lambda kept: kept[2]) - 1
        last = bisect_right(self._kept, max(start, end - 1), key=lambda kept: kept[2]) - 1
        begin, _, size = self._kept[first]
        stop, _, length = self._kept[last]
        return begin + start - size, stop + end - length


class Known(Protocol):
    """What has to be known about the documents to tell marks from other text."""

    def numbered(self, number: int) -> bool:
        """Whether a document has that number."""

    def named(self, name: str) -> bool:
        """Whether a document has that name or address."""

    def mentions(self, text: str) -> bool:
        """Whether the prompt holds that text."""


def read_marks(text: str, known: Known) -> MarkedAnswer:
    """The marks of an answer that is given as text."""
    without = [match.span() for match in _WITHOUT.finditer(text)]
    plain = _WITHOUT.sub(lambda match: " " * len(match[0]), text)
    definitions, lists = _definitions(plain)
    found = [mark for mark in _found(plain, known) if not _inside(mark.start, lists)]
    marks = [
        FoundMark(mark.start, mark.end, text[mark.start : mark.end], reference, None, mark.leads)
        for mark in found
        for reference in (_defined(each, definitions) for each in mark.references)
    ]
    removed = [span for mark in found for span in mark.removed]
    return MarkedAnswer(text, tuple(marks), tuple(joined(text, [*removed, *lists, *without])))


def joined(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Spans to remove, with what only separates or encloses them, and the white space before them."""
    groups: list[Span] = []
    for start, end in sorted(spans):
        if groups and _BETWEEN.fullmatch(text, groups[-1][1], max(start, groups[-1][1])):
            groups[-1] = groups[-1][0], max(end, groups[-1][1])
        else:
            groups.append((start, end))
    at, last = 0, len(text.rstrip())
    for start, end in groups:
        if text[max(start - 1, 0) : start] == "(" and text[end : end + 1] == ")":
            start, end = start - 1, end + 1
        before = _before(text, start, " \t")
        if end >= last:
            start, end = _before(text, start, " \t\n\r"), len(text)
        elif text[max(before - 1, 0) : before] in ("", "\n") and text[end] == " ":
            end += 1
        elif text[end] in " \t\n.,;:!?)":
            start = before
        if end > at:
            yield max(start, at), end
            at = end


def _before(text: str, at: int, skipped: str) -> int:
    """Where a run of the skipped characters begins that ends at a place."""
    while at and text[at - 1] in skipped:
        at -= 1
    return at


@dataclass(frozen=True)
class _Written:
    """A mark as it is written, with the documents that it cites."""

    start: int
    end: int
    references: tuple[Reference, ...]
    leads: bool
    keeps: Span | None = None  # what stays in the text, such as the words of a link

    @property
    def removed(self) -> tuple[Span, ...]:
        if self.keeps is None:
            return ((self.start, self.end),)
        return (self.start, self.keeps[0]), (self.keeps[1], self.end)


def _found(text: str, known: Known) -> Iterator[_Written]:
    apart = [group.span() for group in _LINKS.finditer(text)]
    for match in _MARK.finditer(text):
        start, end = match.span()
        references = _references(match, known)
        if not references:
            continue
        keeps = None
        if match["link"] and not (_inside(start, apart) or _is_label(match, known)):
            keeps = match.span("shown")
        line = _before(text, start, " \t-*>#(\u2022")
        leads = text[max(line - 1, 0) : line] in ("", "\n")
        yield _Written(start, end, references, leads, keeps)


def _references(match: re.Match[str], known: Known) -> tuple[Reference, ...]:
    """The documents that a match cites; none if it is not a mark."""
    kind = match.lastgroup
    if kind == "lenticular":
        named = (match["named"] or "").strip()
        if named and known.named(named):
            return (Reference(names=(named,)),)
        if match["below"]:  # a search and, counted from 0, its result
            return (Reference(index=int(match["below"])),)
        return (Reference(number=int(match["at"])),)
    if kind == "footnote":
        label = match["label"]
        number = int(label) if label.isdecimal() and len(label) < 10 else None
        return (Reference(number=number, names=(f"^{label}",)),)
    if kind == "link":
        address = match["to"]
        if address.lower().startswith(_NOT_DOCUMENTS):
            return ()
        content = known.mentions(address) and not known.named(address)
        return () if content else (Reference(names=(address,)),)
    if kind in ("numbers", "sup", "worded"):
        written = match["list"] or match["listed"] or match["numbered"]
        return tuple(Reference(number=number) for number in _listed(written))
    if kind == "raised":
        return tuple(Reference(number=number) for number in _raised(match["digits"], known))
    name = match["name"] if kind == "bracket" else match["url"] if kind == "address" else ""
    return (Reference(names=(name.strip(),)),) if name and known.named(name.strip()) else ()


def _is_label(link: re.Match[str], known: Known) -> bool:
    """Whether the text of a link only names the document, so that it goes with the mark."""
    shown = link["shown"].strip("[] ")
    host = re.sub(r"^\w+://(?:www\.)?", "", link["to"])
    if _EMPTY_WORDS.fullmatch(shown) or known.named(shown) or host.startswith(shown):
        return True
    before = link.string[max(link.start() - 3, 0) : link.start()]
    after = link.string[link.end() : link.end() + 3]
    between = re.search(r"[.!?)\]]\s+$", before) and re.match(r"\s*(?:$|[A-Z\[(\n])", after)
    return between is not None


def _listed(text: str) -> list[int]:
    """The numbers of ``1, 3`` and ``1-3``."""
    numbers: list[int] = []
    for piece in re.split(r"\s*[,;]\s*", text):
        first, *last = (int(number) for number in re.findall(r"\d+", piece))
        numbers += range(first, last[-1] + 1) if last and first < last[-1] else [first, *last]
    return list(dict.fromkeys(numbers))


def _raised(text: str, known: Known) -> list[int]:
    """The numbers of superscripts; two digits may be one number or two."""
    numbers: list[int] = []
    for piece in re.split(r"[,˒⁻]", text):
        digits = piece.translate(_RAISED)
        apart = not known.numbered(int(digits)) and all(known.numbered(int(d)) for d in digits)
        numbers += [int(digit) for digit in digits] if apart else [int(digits)]
    return numbers


def _defined(reference: Reference, definitions: Mapping[str, str]) -> Reference:
    """A reference with what the list of sources says about its number or label."""
    labels = (*reference.names, str(reference.number), f"^{reference.number}")
    says = next((definitions[label] for label in labels if label in definitions), "")
    names = tuple(name for name in reference.names if not name.startswith("^"))
    return replace(reference, names=names, definition=says)


def _definitions(text: str) -> tuple[dict[str, str], list[Span]]:
    """What footnotes and a list of sources at the end say, and where they are."""
    code = [match.span() for match in _MARK.finditer(text) if match["code"]]
    notes = [note for note in _NOTE.finditer(text) if not _inside(note.start(), code)]
    found = {note["label"]: " ".join(note["says"].split()) for note in notes}
    spans = [note.span() for note in notes]
    entries: dict[str, str] = {}
    end = at = len(text.rstrip())
    headed = bare = False
    while at > 0:
        start = text.rfind("\n", 0, at) + 1
        line = text[start:at]
        if entry := _ENTRY.match(line):
            number = entry["n"] or entry["d"] or entry["r"].translate(_RAISED)
            entries.setdefault(str(int(number)), entry["says"].strip())
            end, bare = start, entry["d"] is not None
        elif entries and _HEADING.match(line):
            end, headed = start, True
            break
        elif line.strip():
            break
        at = start - 1
    above = text[:end]
    cited = {number for match in _MARK.finditer(above) for number in _numbers(match)}
    separate = headed or (not bare and re.search(r"\n[ \t]*\n\s*\Z", above)) if entries else False
    if separate and cited & {int(number) for number in entries}:
        found.update(entries)
        spans.append((len(above.rstrip()), len(text)))
    return found, spans


def _numbers(match: re.Match[str]) -> list[int]:
    """All numbers that a match may cite, as far as that can be said without the documents."""
    label = match["label"]
    written = match["list"] or match["listed"] or match["numbered"] or match["at"] or label or ""
    raised = (match["digits"] or "").translate(_RAISED)
    counted = re.findall(r"(?<!\d)\d{1,9}(?!\d)", written)
    return [int(number) for number in counted + re.findall(r"\d", raised)]


def _inside(at: int, spans: Iterable[Span]) -> bool:
    return any(start <= at < end for start, end in spans)
