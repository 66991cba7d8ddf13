"""Hostile values: JSON that is nearly right, and texts that do harm where they are not escaped."""

from __future__ import annotations

import base64
import copy
import math
import unicodedata
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

TEXTS = (
    "", " ", "x", "\0", "\x1b[31mred\x1b]0;title\x07", "\x9b1m", "[/red]", "[bold", "\\", "%s{}{0}",
    "a\nb", "\r\n", "\u202eevil", "\ud800", "\udcff", "<script>alert(1)</script>", "</script>",
    "\u2028", "é" * 3, "ｆｕｌｌ", "👩‍👩‍👧", "nan", "-0", "1e999", "__proto__", "../../etc/passwd",
    "x" * 300, "名" * 200,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 5, 7, -0.0, 0.5, 1.5, -2.5, 1e-320, 1e308, -1e308, 2**31, 2**53, 2**63, -(2**63),
    10**30, 10**400, math.nan, math.inf, -math.inf,
)  # fmt: skip


_LETTERS = (
    "ក", "ខ", "ทดสอบ", "བོད", "漢字", "かな", "မြန်မာ", "ລາວ", "עברית", "عربى", "देव", "👍🏽", "🇩🇪",
    "e\u0301",
)  # fmt: skip


def junk(rng: Random, depth: int = 2) -> Any:
    """Any value that JSON may hold, and some that it may not."""
    kind = rng.randrange(8 if depth else 6)
    if kind < 2:
        return rng.choice(TEXTS)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice([None, True, False, [], {}])
    if kind == 6:
        return [junk(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS): junk(rng, depth - 1) for _ in range(rng.randrange(4))}


def paths(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is a value in nested lists and mappings."""
    inside = (
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    )
    return [at, *(path for key, value in inside for path in paths(value, (*at, key)))]


def mutate(rng: Random, data: Any, times: int) -> Any:
    """The same data with a few changes."""
    data = copy.deepcopy(data)
    for _ in range(times):
        places = [path for path in paths(data) if path]
        if not places:
            break
        _change(rng, data, rng.choice(places), places)
    return data


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _change(rng: Random, data: Any, path: tuple[Any, ...], places: list[tuple[Any, ...]]) -> None:
    holder, key = _at(data, path[:-1]), path[-1]
    value = holder[key]
    action = rng.randrange(7)
    if action == 0:
        holder[key] = junk(rng)
    elif action == 1:
        del holder[key]
    elif action == 2:
        holder[key] = copy.deepcopy(_at(data, rng.choice(places)))
    elif action == 3 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif action == 4 and isinstance(holder, list):
        rng.shuffle(holder)
    elif action == 5 and isinstance(holder, dict):
        holder[rng.choice(TEXTS)] = copy.deepcopy(value)
    else:
        holder[key] = _near(rng, value)


def _near(rng: Random, value: Any) -> Any:
    """A value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return rng.choice([value + 1, value - 1, -value, value * 10**9, rng.choice(NUMBERS)])
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        return rng.choice([value[:at], value[:at] + rng.choice(TEXTS) + value[at:], rng.choice(TEXTS)])
    if isinstance(value, dict) and "float64" in value:
        numbers = bytearray()
        with suppress(TypeError, ValueError):  # it was changed before
            numbers += base64.b64decode(value["float64"])
        if len(numbers) >= 8:
            at = 8 * rng.randrange(len(numbers) // 8)
            some = bytes(rng.randrange(256) for _ in range(8))
            special = [b"\0\0\0\0\0\0\xf8\x7f", b"\0\0\0\0\0\0\xf0\xff", b"\0\0\0\0\0\0\xf0\x7e", some]
            numbers[at : at + 8] = rng.choice(special)
        return {**value, "float64": base64.b64encode(numbers).decode()}
    if isinstance(value, list):
        return rng.choice([value[:-1], value * 2, value[::-1]])
    return junk(rng)


def deep(rng: Random) -> str:
    """JSON that is nested deeper than a parser may follow."""
    levels = rng.choice([50, 300, 900, 1100, 5_000, 200_000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    middle = "1" if rng.random() < 0.5 or opening != "[" else ""
    return opening * levels + (middle or "1" if opening != "[" else middle) + closing * levels


@cache
def _categories() -> dict[str, str]:
    """Up to 300 characters of every Unicode category, spread over all of them."""
    found: dict[str, list[str]] = {}
    for code in range(0x110000):
        found.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    return {name: "".join(own[:: max(1, len(own) // 300)]) for name, own in found.items()}


def unicode_text(rng: Random, longest: int = 400) -> str:
    """Runs of characters of all categories, of marks that matter to a splitter, and of plain words."""
    known = _categories()
    pieces: list[str] = []
    size = rng.randrange(longest)
    while sum(len(piece) for piece in pieces) < size:
        kind = rng.randrange(6)
        if kind == 0:
            own = known[rng.choice(sorted(known))]
            pieces.append("".join(rng.choice(own) for _ in range(rng.randrange(1, 12))))
        elif kind == 1:
            own = known[rng.choice(sorted(known))]
            pieces.append(rng.choice(own) * rng.randrange(1, 30))
        elif kind == 2:
            pieces.append(
                rng.choice(["។", "༎", "ๆ", "။", "。", "…", ". ", "! ", '?" ', "```\n", "\n\n", "\r"])
            )
        elif kind == 3:
            pieces.append(
                rng.choice(["1. ", "- ", "# ", "| a | b |\n", "    code\n", "Dr. ", "e.g. ", "(a) "])
            )
        elif kind == 4:
            pieces.append(rng.choice(_LETTERS))
        else:
            pieces.append(
                rng.choice(["The ", "town ", "is ", "famous. ", "Who?", " ", "\t", "\n", ", "])
            )
    return "".join(pieces)[:size]
