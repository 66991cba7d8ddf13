"""Untrusted text made safe to display: no control characters, and no longer than there is room."""

from __future__ import annotations

import unicodedata

_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # they hold emoji and letters together


def plain(text: str) -> str:
    """Text with control characters replaced one for one, so that offsets stay valid."""
    return "".join(c if _harmless(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


def visible(text: str) -> str:
    """Text with its control characters spelled out, including those that change its direction."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    if lines.isascii() and lines.isprintable():
        return lines
    return "".join(c if _harmless(c) else f"[U+{ord(c):04X}]" for c in lines)


def shorten(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Text on one line of at most ``limit`` characters, with an ellipsis where it was cut.

    Args:
        text: Any text; each run of white space becomes one space.
        limit: The most characters of the result, at least 1.
        keep_end: Cut off the beginning instead of the end: of a path, the end names the file.
    """
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    return "…" + line[len(line) - limit + 1 :] if keep_end else line[: limit - 1].rstrip() + "…"


def _harmless(c: str) -> bool:
    return c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" or c in _JOINERS
