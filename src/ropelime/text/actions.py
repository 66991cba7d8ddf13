"""Tool calls as text: their fields, and which parts of a prompt have the words of a call.

A call copies data and follows a request. The data may be long, such as the body of a message, and say
little about why the call was made; so the name of the tool and each argument count the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from ropelime.text.prompt import Prompt, Span
from ropelime.text.vocabulary import stem
from ropelime.typing import Floats

_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LEAST = 3  # letters of a word that may be a short form
_NAME = 6  # words that a name may have
_MADE = re.compile(r"(?P<name>[\w.\-/:]+)\((?P<arguments>\{.*\})\)", re.DOTALL)  # as prompts have it
_KEYS = {"name", "arguments", "id", "type"}


def fields(action: str) -> list[str] | None:
    """The name of a tool and each argument of a call; None for any other text.

    A call is a line of JSON, ``{"name": ..., "arguments": {...}}``, or ``name({...})``. Several calls,
    one on each line, give the fields of all. Text before the first call is left out.
    """
    found: list[str] = []
    for line in action.splitlines():
        call = _call(line.strip())
        if call is not None:
            found += [call[0], *_values(call[1])]
        elif found and line.strip():
            return None
    return found or None


def is_call(text: str) -> bool:
    """Whether a text is a tool call, or several."""
    spans = call_spans(text)
    return bool(spans) and not text[: spans[0][0]].strip()


def call_spans(text: str) -> list[Span]:
    """Where the tool calls at the end of a text are; none if other text follows them."""
    if fields(text) is None:
        return []
    found, at = [], 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare and _call(bare) is not None:
            start = at + line.index(bare)
            found.append((start, start + len(bare)))
        at += len(line)
    return found


def _call(line: str) -> tuple[str, object] | None:
    """The name and the arguments of the call that a line is."""
    if made := _MADE.fullmatch(line):
        return made["name"], _parsed(made["arguments"])
    call = _parsed(line) if line.startswith("{") else None
    if not isinstance(call, dict) or not {"name", "arguments"} <= set(call) <= _KEYS:
        return None
    return str(call["name"]), call["arguments"]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _values(value: object) -> list[str]:
    """The texts and numbers in the arguments, in order."""
    left, found = [value], []
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += reversed(list(each.values()))
        elif isinstance(each, list):
            left += reversed(each)
        elif each is not None and str(each).strip():
            found.append(str(each))
    return found


def asked_for(action_fields: Sequence[str], parts: Sequence[str]) -> Floats:
    """(parts,) how much of a call each part has, 0 to 2: the mean over the fields of the call.

    For each field the part of its words counts, rare ones for more, and one more where the part has it
    as it is; that is shared out if several parts have it.
    """
    own = [stems(part) for part in parts]
    flat = [_flat(part) for part in parts]
    scores = np.zeros(len(parts))
    for number, field in enumerate(action_fields):
        scores += coverage(dict.fromkeys(sorted(stems(field)), 1), own, _rarity)
        whole = _flat(field)
        if number and len(whole) > 1:  # names of tools are not said as they are
            held = np.array([whole in part for part in flat], dtype=float)
            scores += held / max(held.sum(), 1.0)
    return np.asarray(scores / max(len(action_fields), 1))


def covered(wanted: frozenset[str], held: frozenset[str]) -> float:
    """The part of some words that others have, 0 to 1, as :func:`stems` gives both.

    Of a few words, as in a name, short forms are found too: *repository* counts for *repo*.
    """
    found = wanted & held
    if len(wanted) <= _NAME:
        short = (word for word in wanted - held if len(word) > _LEAST)
        found |= {word for word in short if any(other.startswith(word) for other in held)}
    return len(found) / len(wanted) if wanted else 0.0


def earlier_calls(prompt: Prompt, spans: Sequence[Span]) -> Floats:
    """(spans,) 1 where a span of the prompt is a call that was made before, else 0.

    It has the form of a later call, but is not a reason for it.
    """
    made = [m for m in prompt.messages if m.role == "assistant"]
    return np.array(
        [
            any(m.start <= start < m.end for m in made)
            and _MADE.fullmatch(prompt.text[start:end].strip()) is not None
            for start, end in spans
        ],
        dtype=float,
    )


def coverage(
    wanted: Mapping[str, float], parts: Sequence[Collection[str]], rarity: Callable[[Floats], float]
) -> Floats:
    """(parts,) the part of some words that each part has, 0 to 1.

    Args:
        wanted: The words, and how often each counts.
        parts: The words of the parts.
        rarity: How much a word counts, given which parts have it as 0 and 1.
    """
    held, all_of_it = np.zeros(len(parts)), 0.0
    for word, times in wanted.items():
        found = np.array([word in part for part in parts], dtype=float)
        count = times * rarity(found)
        held += count * found
        all_of_it += count
    return held / all_of_it if all_of_it else held


def _rarity(found: Floats) -> float:
    return float(np.log1p(len(found) / max(found.sum(), 1.0)))


def _flat(text: str) -> str:
    return " ".join(text.lower().split())


def stems(text: str) -> frozenset[str]:
    """The words of a text without their endings; those of a name such as ``sendMail`` by themselves."""
    return frozenset(stem(word.lower()) for word in _WORD.findall(_HUMP.sub(" ", text)))
