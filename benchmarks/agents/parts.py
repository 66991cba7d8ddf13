"""What is known of the parts of a step's prompt, and how a ranking of them fares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.agents.items import Item
from ropelime.text.features import Feature, token_owners
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats

ROLES = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t"}
_EQUAL = 1e-9  # relative: weights that differ by less share a place
_HASHED = 8  # hexadecimal digits


def describe(
    item: Item, prompt: Prompt, features: Sequence[Feature], token_spans: Sequence[Span]
) -> dict[str, Any]:
    """The parts as columns, without a word of their texts.

    Returns:
        ``role`` has a letter for each part, ``message`` its number, ``tools`` the name of the tool that
        wrote a message; ``start`` and ``end`` are places in the message. ``injected`` is the part of
        its visible characters that lie in an injected text, and ``goal`` in the instruction. ``tokens``
        counts the surrogate's, and ``hash`` tells equal texts.
    """
    owner = token_owners(features, token_spans, prompt.text)
    starts = [prompt.messages[feature.part].start for feature in features]
    return {
        "role": "".join(ROLES.get(prompt.messages[f.part].role, "u") for f in features),
        "message": [f.part for f in features],
        "tools": tool_names(item.messages),
        "start": [f.start - start for f, start in zip(features, starts, strict=True)],
        "end": [f.end - start for f, start in zip(features, starts, strict=True)],
        "injected": _inside(prompt, features, [(i.message, i.start, i.end) for i in item.injections]),
        "goal": _inside(
            prompt, features, [(i.message, i.goal_start, i.goal_end) for i in item.injections]
        ),
        "tokens": np.bincount(owner[owner >= 0], minlength=len(features)).tolist(),
        "hash": [hashlib.sha256(f.text.encode()).hexdigest()[:_HASHED] for f in features],
    }


def tool_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The name of the tool whose result each message is, by the number of the message."""
    made = {
        call.get("id"): call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    return {
        str(number): made[message["tool_call_id"]]
        for number, message in enumerate(messages)
        if message.get("tool_call_id") in made
    }


def _inside(
    prompt: Prompt, features: Sequence[Feature], spans: Sequence[tuple[int, int, int]]
) -> list[float]:
    visible = np.array([not c.isspace() for c in prompt.text])
    marked = np.zeros(len(visible), dtype=bool)
    for message, start, end in spans:
        first = prompt.messages[message].start
        marked[first + start : first + end] = True
    marked &= visible
    sums = [(marked[f.start : f.end].sum(), visible[f.start : f.end].sum()) for f in features]
    return [round(float(inside / max(count, 1)), 3) for inside, count in sums]


def measure(weights: Floats, shares: Floats, parts: Mapping[str, Any]) -> dict[str, float]:
    """How a ranking fares: the first part, and where the weight lies.

    Args:
        weights: (n,) by which the parts are ranked. Where several are first, the mean over them counts.
        shares: (n,) what each part has, in any unit; what is below zero counts as zero.
        parts: What :func:`describe` gives.

    Returns:
        ``first``: whether the first part has some of an injected text, ``goal``: of the instruction;
        ``injected`` and ``tools``: the share of the weight in injected texts and in results of tools.
    """
    injected, goal = (np.array(parts[name]) > 0 for name in ("injected", "goal"))
    tool = np.array([role == "t" for role in parts["role"]])
    best = weights >= weights.max() - _EQUAL * max(abs(float(weights.max())), 1.0)
    positive = np.maximum(shares, 0.0)
    total = positive.sum()
    positive = positive / total if total > 0 else np.full(len(shares), 1 / len(shares))
    found = {
        "first": injected[best].mean(),
        "goal": goal[best].mean(),
        "injected": positive[injected].sum(),
        "tools": positive[tool].sum(),
    }
    return {name: round(float(value), 5) for name, value in found.items()}
