"""A key that a server sends back is masked, however it is written.

That is: as it is, escaped (JSON, percent, HTML, quoted-printable), as hexadecimal digits, in base64 at
any place of a longer text, in the other case, or with spaces and invisible characters in between. A
text is read in several ways, each of which undoes some of that, and the key is looked for in each.
"""

from __future__ import annotations

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex

from ropelime.text.prompt import Span

MASK = "[key]"
_SHORTEST = 8  # characters: what local servers are given for a key ("none") is not a secret
# Upper case as lower case, and base64 for URLs as the other.
_FOLDED = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_FOLDED |= {ord("-"): ord("+"), ord("_"): ord("/")}

_BETWEEN = r"[\s\p{C}\\]++"  # what may stand between two characters; a backslash escapes the next one
_SLASHES, _ENTITY, _ZEROS = r"\\{1,8}", "&(?:amp;){0,4}#", "0{0,6}"
_PLAIN = regex.compile(_BETWEEN)
_ESCAPED = regex.compile(
    rf"(?:%(?:25){{0,4}}|{_SLASHES}(?:x|u00|u\{{{_ZEROS}|U0{{6}})|{_ENTITY}x{_ZEROS})"
    rf"(?<hex>[2-7][0-9a-f])[;}}]?|{_ENTITY}{_ZEROS}(?<decimal>\d{{2,3}});?"
    rf"|{_SLASHES}(?<octal>[01]?[0-7]{{2}})|[\s\p{{C}}]++|\\",
    regex.IGNORECASE,
)
_QUOTED = regex.compile(rf"=(?:(?<hex>[2-7][0-9a-f])|\r?\n)|{_BETWEEN}", regex.IGNORECASE)
_DIGITS = regex.compile(r"0x|[\s\p{C}:,\\]++", regex.IGNORECASE)
_WAYS = {_PLAIN: "", _ESCAPED: r"\%&", _QUOTED: "=", _DIGITS: ""}  # and characters that they need
# The beginning of an escape.
_BEGUN = regex.compile(
    rf"(?:%(?:25){{0,4}}[0-9a-f]?|{_SLASHES}(?:x|u0{{0,2}}|u\{{{_ZEROS}|U{_ZEROS})?[0-9a-f]{{0,2}}"
    rf"|&(?:amp;){{0,4}}(?:a|am|amp|#x?{_ZEROS}[0-9a-f]{{0,2}})?|=[0-9a-f\r]?|0)$",
    regex.IGNORECASE,
)
_FAR = 64  # characters that each of a key may take, in what is looked at for the beginning of one


@dataclass(frozen=True)
class _Decoded:
    """A text with escapes undone, and which place of it is which place of the text itself."""

    text: str
    marks: tuple[list[int], list[int]]  # places that belong together, in both texts; same steps between

    @classmethod
    def of(cls, text: str, way: Any) -> _Decoded:
        parts: list[str] = []
        ours, theirs, size, at = [0], [0], 0, 0
        for found in way.finditer(text):
            written = _undone(found)
            size += found.start() - at
            parts += [text[at : found.start()], written]
            ours += [size, size + len(written)]
            theirs += [found.start(), found.end()]
            size, at = size + len(written), found.end()
        return cls("".join([*parts, text[at:]]).translate(_FOLDED), (ours, theirs))

    def start(self, place: int) -> int:
        """Where a character begins in the text itself."""
        ours, theirs = self.marks
        mark = bisect_right(ours, place) - 1
        return theirs[mark] + place - ours[mark]

    def end(self, place: int) -> int:
        """Where the character before a place ends in the text itself."""
        ours, theirs = self.marks
        mark = bisect_left(ours, place)
        return theirs[mark] if mark < len(ours) and ours[mark] == place else self.start(place)

    def find(self, written: str) -> Iterator[Span]:
        """Every place in the text itself where this is written."""
        at = self.text.find(written)
        while at >= 0:
            yield self.start(at), self.end(at + len(written))
            at = self.text.find(written, at + len(written))

    def begun(self, written: str) -> int | None:
        """Where this begins in the text itself and continues beyond its end, if it does."""
        longest = min(len(written) - 1, len(self.text))
        sizes = (k for k in range(longest, 0, -1) if self.text.endswith(written[:k]))
        size = next(sizes, 0)
        return self.start(len(self.text) - size) if size else None


def hidden(text: str, key: str | None) -> str:
    """The text with the key masked, should it be in it."""
    if _harmless(key):
        return text
    ways = _written(str(key))
    decoded = [r for r in _decodings(text) if any(written in r.text for written in ways)]
    shown, at = "", 0
    for start, end in sorted({span for r in decoded for written in ways for span in r.find(written)}):
        if start >= at:
            shown += text[at:start] + MASK
        at = max(at, end)
    return shown + text[at:]


def split_at_key(text: str, key: str | None) -> tuple[str, str]:
    """What can be shown of an unfinished text, and its end, which may be the beginning of the key."""
    if _harmless(key):
        return text, ""
    before = max(0, len(text) - _FAR * len(str(key)))
    tail = text[before:]
    escape = _BEGUN.search(tail)
    cuts = {len(tail), len(tail) if escape is None else escape.start()}
    decoded = [_Decoded.of(tail[:cut], way) for cut in cuts for way in _WAYS]
    begun = (r.begun(written) for r in decoded for written in _written(str(key)))
    at = before + min(*cuts, *(place for place in begun if place is not None), len(tail))
    return text[:at], text[at:]


def _decodings(text: str) -> Iterator[_Decoded]:
    """The ways to read a text, but for those that would not change it."""
    for way, needed in _WAYS.items():
        if not needed or any(char in text for char in needed):
            yield _Decoded.of(text, way)


def _harmless(key: str | None) -> bool:
    return key is None or len(key) < _SHORTEST


@lru_cache(maxsize=8)
def _written(key: str) -> tuple[str, ...]:
    """A key as it is written in one of the decoded texts."""
    ways = [regex.sub(_BETWEEN, "", key), key.encode().hex()]
    # What base64 makes of it behind 0, 1 or 2 other bytes, less the ends that depend on others.
    for before, skipped in enumerate((0, 2, 3)):
        data = bytes(before) + key.encode()
        ways.append(base64.b64encode(data).decode()[skipped : len(data) * 8 // 6])
    return tuple(way.translate(_FOLDED) for way in ways if way)


def _undone(found: Any) -> str:
    """The character that an escape stands for; nothing for what stands between two."""
    for name, base in (("hex", 16), ("decimal", 10), ("octal", 8)):
        if name in found.re.groupindex and found[name]:
            return chr(int(found[name], base))
    return ""
