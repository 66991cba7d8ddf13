"""Text that somebody else wrote, made safe to show: nothing in it can act on what shows it."""

from __future__ import annotations

import unicodedata

_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # they hold emoji and letters together


def plain(text: str) -> str:
    """Text without control characters, one character for each, so that offsets stay what they are."""
    return "".join(c if _harmless(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


def visible(text: str) -> str:
    """Text with its control characters, also those that turn the writing direction, spelled out."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    if lines.isascii() and lines.isprintable():
        return lines
    return "".join(c if _harmless(c) else f"[U+{ord(c):04X}]" for c in lines)


def _harmless(c: str) -> bool:
    return c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" or c in _JOINERS
