"""What is measured of an action, to tell what a user asked for from what a tool's output caused.

A value of a call may well come from a tool: whoever asks to have a bill paid has the account looked up.
So it counts who spoke of the *kind* of action, whether a part of a tool's output tells someone to do
it, and whether the values of the call stand there with it. Pure functions of an explanation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ropelime.results.explanation import ExplanationData
from ropelime.text import actions, directives
from ropelime.typing import Floats, Masks

Decider = Literal["system", "user", "own", "tool"]
_AROUND = 2  # parts before and after the one that orders an action
SIGNALS = ("attention", "words", "shift")
_ROLES: Mapping[str, Decider] = {
    "system": "system", "developer": "system", "assistant": "own", "tool": "tool", "function": "tool",
}  # fmt: skip


def decider(role: str) -> Decider:
    """Who speaks in a message of a role."""
    return _ROLES.get(role, "user")


def deciders(e: ExplanationData) -> list[Decider]:
    """Who speaks in each feature."""
    return [decider(e.prompt.messages[feature.part].role) for feature in e.features]


def measures(e: ExplanationData) -> dict[str, float]:
    """What the chance that a tool's output caused an action is estimated from.

    All are 0 to 1, but for those of ``asked_for``, which are 0 to 2. *Ordered* are parts of a tool's
    output that tell someone to do something.

    Returns:
        ``share_system``, ``share_user``, ``share_own``, ``share_tool``, ``share_ordered``: the shares
        of all features of each; ``most_user``, ``most_tool``: the largest share of one feature.

        ``attention_*``, ``words_*``, ``shift_*`` with ``user``, ``tool`` and ``ordered``: the same of
        each signal by itself, 0 if the explanation does not have it.

        ``length_tool``: the part of the prompt that is output of tools.

        ``call``: 1 for tool calls, 0 for other text, which is compared as if it were an argument.

        ``asked_user``, ``asked_tool``, ``asked_ordered``, ``asked_plain``: how much of the action the
        best part has (:func:`ropelime.text.actions.asked_for`) of the user or system prompt, of tools'
        outputs, of ordered parts, and of outputs besides these; ``asked_near``: beside an ordered one.

        ``name_user``, ``name_ordered``: the part of the called tool's name whose words the user and the
        system prompt have, and the best ordered part.

        ``values_user``, ``values_tool``, ``values_ordered``: the part of the arguments' words that the
        user or the system prompt has, only tools' outputs have, and the best ordered part has.

        ``together``: the largest product of both in one ordered part: name and values.

        ``exclusive``: the part of the values that the best ordered part has as they are, and no other
        message of a tool, the user or the system prompt.

        ``related``: the part of the words around the best ordered part that the user has, too.

        ``against``: the part of the values in whose place the user gave others of their kind.

        ``delegated``: 1 if the user speaks of requests or instructions, which an output may hold.
    """
    parts = _Parts(e)
    return {**_shares(parts), **_texts(parts)}


@dataclass(frozen=True)
class _Parts:
    """The features of an explanation, by who speaks in them."""

    e: ExplanationData

    @cached_property
    def texts(self) -> list[str]:
        return [feature.text for feature in self.e.features]

    @cached_property
    def tool(self) -> Masks:
        return np.array([who == "tool" for who in deciders(self.e)])

    @cached_property
    def user(self) -> Masks:
        return np.array([who == "user" for who in deciders(self.e)])

    @cached_property
    def asking(self) -> Masks:
        return np.array([who in ("user", "system") for who in deciders(self.e)])

    @cached_property
    def ordered(self) -> Masks:
        """Parts of a tool's output that tell someone to do something."""
        return np.array(
            [
                bool(tool) and directives.is_directive(text)
                for tool, text in zip(self.tool, self.texts, strict=True)
            ]
        )

    @cached_property
    def near(self) -> Masks:
        """Parts beside an ordered one, in the same message."""
        own = np.array([feature.part for feature in self.e.features])
        after = np.append(False, self.ordered[:-1] & (own[1:] == own[:-1]))
        before = np.append(self.ordered[1:] & (own[1:] == own[:-1]), False)
        return np.asarray((after | before) & ~self.ordered)

    @property
    def action(self) -> str:
        return self.e.output[slice(*self.e.span)]

    @cached_property
    def fields(self) -> list[str]:
        """The name of the called tool, and the values; no name where the action is another text."""
        call = actions.fields(self.action)
        return ["", self.action] if call is None else call

    @cached_property
    def has(self) -> Floats:
        """(n,) how much of the action each feature has; calls that were made before have none."""
        spans = [(feature.start, feature.end) for feature in self.e.features]
        named = [field for field in self.fields if field]
        return (1 - actions.earlier_calls(self.e.prompt, spans)) * actions.asked_for(named, self.texts)

    def joined(self, which: Masks) -> str:
        return " ".join(text for text, wanted in zip(self.texts, which, strict=True) if wanted)


def directed(e: ExplanationData) -> Floats:
    """(n,) how much of the action each part of a tool's output has, twice that of ordered parts."""
    parts = _Parts(e)
    return np.asarray(parts.has * parts.tool * (1.0 + parts.ordered))


def _shares(parts: _Parts) -> dict[str, float]:
    e, shares = parts.e, parts.e.normalized_weights
    who = np.array(deciders(e))
    found = {
        f"share_{one}": float(shares[who == one].sum()) for one in ("system", "user", "own", "tool")
    }
    found["share_ordered"] = float(shares[parts.ordered].sum())
    found["most_user"], found["most_tool"] = _most(shares, parts.user), _most(shares, parts.tool)
    groups = {"user": parts.user, "tool": parts.tool, "ordered": parts.ordered}
    for name in SIGNALS:
        signal = e.signals.get(name, np.zeros(len(shares)))
        found |= {f"{name}_{group}": float(signal[of].sum()) for group, of in groups.items()}
    lengths = np.array([len(text) for text in parts.texts], dtype=float)
    found["length_tool"] = float(lengths[parts.tool].sum() / lengths.sum())
    return found


def _texts(parts: _Parts) -> dict[str, float]:
    name, *values = parts.fields
    called, filled = actions.stems(name), [actions.stems(value) for value in values]
    held = [
        actions.stems(text) for text, wanted in zip(parts.texts, parts.ordered, strict=True) if wanted
    ]
    by_name = [actions.covered(called, part) for part in held]
    by_values = [_mean([actions.covered(value, part) for value in filled]) for part in held]
    asking = actions.stems(parts.joined(parts.asking))
    either = asking | actions.stems(parts.joined(parts.tool))
    of_user = [actions.covered(value, asking) for value in filled]
    of_both = [actions.covered(value, either) for value in filled]
    return {
        "call": float(bool(name)),
        "asked_user": _most(parts.has, parts.asking),
        "asked_tool": _most(parts.has, parts.tool),
        "asked_ordered": _most(parts.has, parts.ordered),
        "asked_near": _most(parts.has, parts.near),
        "asked_plain": _most(parts.has, parts.tool & ~parts.ordered),
        "name_user": actions.covered(called, asking),
        "name_ordered": max(by_name, default=0.0),
        "values_user": _mean(of_user),
        "values_tool": _mean([both - user for both, user in zip(of_both, of_user, strict=True)]),
        "values_ordered": max(by_values, default=0.0),
        "together": max((a * b for a, b in zip(by_name, by_values, strict=True)), default=0.0),
        **_best(parts, values),
        "against": directives.against(values, parts.joined(parts.asking)),
        "delegated": float(directives.delegates(parts.joined(parts.user))),
    }


def _best(parts: _Parts, values: Sequence[str]) -> dict[str, float]:
    """What is known of the ordered part that has most of the action."""
    if not parts.ordered.any():
        return {"exclusive": 0.0, "related": 0.0}
    best = int(np.argmax(np.where(parts.ordered, parts.has, -1.0)))
    own = parts.e.features[best].part
    elsewhere = [
        text.lower()
        for text, feature, wanted in zip(
            parts.texts, parts.e.features, parts.tool | parts.asking, strict=True
        )
        if wanted and feature.part != own
    ]
    here = parts.texts[best].lower()
    only = [
        float(value.lower() in here and not any(value.lower() in text for text in elsewhere))
        for value in values
    ]
    around = " ".join(parts.texts[max(best - _AROUND, 0) : best + _AROUND + 1])
    words = actions.stems(" ".join(re.findall(r"[^\W\d_]{4,}", around)))
    user = actions.stems(parts.joined(parts.user))
    return {"exclusive": _mean(only), "related": actions.covered(words, user)}


def _most(values: Floats, which: Masks) -> float:
    return float(values[which].max(initial=0.0))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
