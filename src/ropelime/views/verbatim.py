"""Which parts of a text are code, a table or data, whose columns only line up in a monospaced font."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ropelime.text.actions import is_call
from ropelime.text.prompt import Span
from ropelime.text.structured import fields

_FENCE = re.compile(r"\s*(```+|~~~+)")
# Cells between bars, tabs, or columns that spaces keep apart.
_ROW = re.compile(r"\s*\|.*\||[^|]*\|[^|]*\|[^|]*$|.*\S\t\S|.*\S {2,}\S(?:.*\S)? {2,}\S")
_RULE = re.compile(r"\s*[|+:=-][\s|+:=-]{2,}$")
_CODE = re.compile(
    r"\s*(?:(?:def|class|import|return|function|const|let|var|elif|except|SELECT|INSERT)\s.*[^.]$"
    r"|from \S+ import |#include|[@$>]\s?\w+|[\w.\[\]]+ = \S|</?\w[^>]*>\s*$|(?:else|try):$|//"
    r"|.*[;{}]\s*$)"
)
_INDENTED = re.compile(r"(?: {4}|\t)\S")
_SEEN = 400  # characters of a line that are looked at


def verbatim(text: str) -> list[Span]:
    """Where a text is to be shown in a monospaced font: whole lines, in order."""
    if fields(text) is not None or is_call(text):
        return [(0, len(text))]
    found: list[Span] = []
    for start, end in _runs(text):
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def code_mark(spans: Sequence[Span], start: int, end: int) -> dict[str, bool]:
    """``{"code": True}`` for a part of the text of which more than half lies in spans, else nothing."""
    inside = sum(max(min(end, b) - max(start, a), 0) for a, b in spans)
    return {"code": True} if 2 * inside > end - start else {}


def _runs(text: str) -> Iterator[Span]:
    """Code between fences, and two or more lines in a row that look like code or like a table."""
    at, first, lines, fence = 0, 0, 0, ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence or mark:
            yield at, at + len(line)
            if mark and not (fence and not mark[1].startswith(fence)):
                fence = "" if fence else mark[1]
            lines = 0
        elif any(shape.match(line[:_SEEN]) for shape in (_ROW, _RULE, _CODE, _INDENTED)):
            first = first if lines else at
            lines += 1
            if lines > 1:
                yield first, at + len(line)
                first = at + len(line)
        elif line.strip() or lines < 2:
            lines = 0
        at += len(line)
