"""Values out of foreign files: texts, JSON in texts, times, and what could not be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from ropelime.errors import FORGIVEN, InputError, worded
from ropelime.text.display import shorten

_UNFIT = re.compile("[\0\ud800-\udfff]")  # no tokenizer can encode these
_FRACTION = re.compile(r"(\.\d{6})\d+")  # datetime has microseconds
_SHORT = re.compile(r"\.(\d{1,5})(?=$|[+-])")  # and Python 3.10 wants three or six of their digits
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_MOST = 100  # problems that are kept
_DOTS = 24  # levels of a dotted key
ROOM = 1 << 30  # bytes that a file of a few may come to, where it repeats or refers to what it holds

Tree = dict[str, Any]


class TooMuch(InputError):
    """A file that would take far more memory than it has bytes."""


class Problems:
    """What could not be read, each with its place; and how much memory is left for what can."""

    def __init__(self, room: int = ROOM) -> None:
        self._seen: dict[str, None] = {}  # in order, each once
        self._more = 0
        self._room = room

    def take(self, size: int) -> None:
        """Count bytes that are made of a few by repetition; too many of them end it."""
        self._room -= size
        if self._room < 0:
            raise TooMuch("it has too many messages, or refers too often to the same ones")

    def add(self, where: str, what: str) -> None:
        """Note one problem."""
        line = text(f"{where}: {what}" if where else what)
        if len(self._seen) < _MOST or line in self._seen:
            self._seen[line] = None
        else:
            self._more += 1

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Note what is wrong with one part of a file, so that the others can be read."""
        try:
            yield
        except TooMuch:
            raise
        except FORGIVEN as error:
            self.add(where, shorten(worded(error), 200))

    def listed(self) -> tuple[str, ...]:
        """All of them, or the first and how many more there are."""
        return (*self._seen, *([f"{self._more:,} more problems"] if self._more else []))


def text(value: Any) -> str:
    """A value as text: JSON for what is not one, and U+FFFD for what no tokenizer can encode."""
    if value is None:
        return ""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=str)
    if value.isascii() and "\0" not in value:  # most are, and logs repeat long ones
        return str(value)
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", value)


def parsed(value: Any) -> Any:
    """The data of JSON text that is an object or a list; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, also one that is stored as JSON text; an empty one for anything else."""
    value = parsed(value)
    return value if isinstance(value, Mapping) else {}


def record(value: Any) -> Mapping[str, Any]:
    """A mapping, or an error that says what came in its place."""
    if not isinstance(value, Mapping):
        raise InputError(f"an object is needed, not {type(value).__name__}")
    return value


def items(value: Any) -> list[Any]:
    """A list, also one that is stored as JSON text or with numbers as keys; or an empty one."""
    value = parsed(value)
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []


def first(data: Any, *names: str) -> Any:
    """The value of the first name that is set to something."""
    if isinstance(data, Mapping):
        for name in names:
            if (value := data.get(name)) not in (None, "", [], {}):
                return value
    return None


def tree(value: Any) -> Any:
    """The same data with dotted keys as levels, and with numbered keys as lists.

    ``{"a.0.b": 1}`` becomes ``{"a": [{"b": 1}]}``. A value that stands where a level is too, as that of
    ``a`` beside ``a.b``, gets the key "".
    """
    if isinstance(value, list):
        return [tree(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    grown: Tree = {}
    for key, given in value.items():
        *levels, last = str(key).split(".", _DOTS)
        at = grown
        for level in levels:
            inside = at.get(level)
            if not isinstance(inside, dict):
                inside = at[level] = {} if inside is None else {"": inside}
            at = inside
        at[last] = _merged(at.get(last), tree(given))
    return _listed(grown)


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict):
        return {**old, **new} if isinstance(new, dict) else {**old, "": new}
    return new


def _listed(level: Any) -> Any:
    """Levels whose keys are all numbers as lists."""
    if not isinstance(level, dict):
        return level
    inner = {key: _listed(value) for key, value in level.items()}
    if inner and all(key.isdecimal() and len(key) < 9 for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    return inner


def at(data: Any, path: str) -> Any:
    """What a tree holds at a dotted path; None if nothing."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data.get("", data) if isinstance(data, dict) else data


def found(data: Any, *paths: str) -> Any:
    """What a tree holds at the first of some paths that has something."""
    return next((v for path in paths if (v := at(data, path)) not in (None, "", [], {})), None)


def when(value: Any) -> datetime | None:
    """A time as tools write it: ISO 8601, or seconds, milliseconds or nanoseconds since 1970."""
    try:
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        if isinstance(value, list) and len(value) == 2:  # JavaScript's seconds and nanoseconds
            value = float(value[0]) + float(value[1]) / 1e9
        if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d+)?", value):
            iso = _FRACTION.sub(r"\1", value.strip().replace("Z", "+00:00").replace(" ", "T", 1))
            time = datetime.fromisoformat(_SHORT.sub(lambda m: "." + m[1].ljust(6, "0"), iso))
            return time if time.tzinfo else time.replace(tzinfo=timezone.utc)
        if isinstance(value, bool) or value is None:
            return None
        seconds = float(value)
        for _ in range(3):  # milliseconds, microseconds, nanoseconds
            seconds /= 1000 if seconds > 1e11 else 1
        return datetime.fromtimestamp(seconds, timezone.utc) if seconds > 0 else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def later(start: datetime | None, duration: Any) -> datetime | None:
    """The end of something that lasts as long as ISO 8601 says, as ``PT2.5S``."""
    found = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if start is None or found is None:
        return None
    days, hours, minutes, seconds = (float(group or 0) for group in found.groups())
    try:
        return start + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        return None
