"""Cut JSON, and what Python prints of lists and dictionaries, at its fields and not through them."""

from __future__ import annotations

from collections.abc import Iterator

import regex

from ropelime.text import segmentation
from ropelime.text.prompt import Span

_SHORT = 48  # characters: neighbours of one object are joined up to here
_LONG = 160  # characters: longer values are cut into sentences
_OPEN, _CLOSE = "{[(", "}])"
# A quote ends a string where a comma, a colon or a bracket follows: apostrophes in it are not escaped
# by every program.
_END = r"(?=\s*+(?:[,:\]})]|\Z))"
_STRINGS = {
    quote: regex.compile(rf"{quote}(?:[^{quote}\\]|\\.|{quote}(?!{_END}))*+{quote}", regex.DOTALL)
    for quote in "\"'"
}
_AROUND = "> \t\r\n"
_LINE_END = regex.compile(r"\\++n")  # a line end as an escape: as good as an empty line
# Brackets around a text, a number or a constant; prose in brackets is prose. Marks such as << and >>
# may stand around it all, which tell a model where data begins and ends.
_START = regex.compile(r"[\s<]*+[{\[][\s{\[(]*+(?:[\"'\-\d]|(?:true|false|null|True|False|None)\b)")
_MARK = regex.compile(r"[\"'{}\[\](),]")


def sentences(text: str) -> list[Span]:
    """The fields of a structured text, or the sentences of another."""
    found = fields(text)
    return segmentation.sentences(text) if found is None else found


def fields(text: str) -> list[Span] | None:
    """Where the fields of a structured text are, each with its key; None if it is not structured.

    They tile the text. Short neighbours in one object are joined; long values are cut into sentences.
    """
    if _START.match(text) is None or text.rstrip(_AROUND)[-1:] not in ("}", "]"):
        return None
    found = _items(text)
    if found is None:
        return None
    joined: list[tuple[int, int, bool]] = []
    for start, end, closes in found:
        apart = not joined or joined[-1][2] or text[start] in _OPEN
        if not apart and end - joined[-1][0] <= _SHORT:
            start = joined.pop()[0]
        joined.append((start, end, closes))
    return [span for start, end, _ in joined for span in _cut(text, start, end)]


def _items(text: str) -> list[tuple[int, int, bool]] | None:
    """Start and end of what lies between commas, and whether an object ends in it.

    None if the brackets do not match.
    """
    found, start, depth, before = [], 0, 0, 0
    for at, mark in _marks(text):
        if mark in _OPEN:
            depth += 1
        elif mark in _CLOSE:
            depth -= 1
            if depth < 0:
                return None
        elif depth:
            end = at + 1
            while end < len(text) and text[end].isspace():
                end += 1
            found.append((start, end, depth < before))
            start, before = end, depth
    if depth or not found:
        return None
    return [*found, (start, len(text), True)] if start < len(text) else found


def _marks(text: str) -> Iterator[tuple[int, str]]:
    """Brackets and commas outside of strings."""
    at, unclosed = 0, set()
    while mark := _MARK.search(text, at):
        at = mark.end()
        quote = mark[0]
        if quote not in _STRINGS:
            yield mark.start(), quote
        elif quote not in unclosed:
            if string := _STRINGS[quote].match(text, mark.start()):
                at = string.end()
            else:  # and no later one closes either
                unclosed.add(quote)


def _cut(text: str, start: int, end: int) -> list[Span]:
    if end - start <= _LONG:
        return [(start, end)]
    lines = _LINE_END.sub(lambda mark: mark[0].replace("\\", "\n").replace("n", "\n"), text[start:end])
    return [(start + a, start + b) for a, b in segmentation.sentences(lines)]
