"""Untrusted text made safe to display: no control characters, and no longer than there is room."""

from __future__ import annotations

import regex

# Neither visible nor a space, but for the joiners that hold emoji and letters together.
_CONTROL = regex.compile(r"[^\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}\n\t\u200C\u200D]")


def plain(text: str) -> str:
    """Text with control characters replaced one for one, so that offsets stay valid."""
    return str(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text))


def visible(text: str) -> str:
    """Text with its control characters spelled out, including those that change its direction."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return str(_CONTROL.sub(lambda match: f"[U+{ord(match[0]):04X}]", lines))


def shorten(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Text on one line of at most ``limit`` characters, with an ellipsis where it was cut.

    ``keep_end`` cuts off the beginning instead of the end: of a path, the end names the file.
    """
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    return "…" + line[len(line) - limit + 1 :] if keep_end else line[: limit - 1].rstrip() + "…"
