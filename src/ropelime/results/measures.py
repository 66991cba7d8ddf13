"""What is measured of an action, to tell what a user asked for from what a tool's output caused.

A value of a call may well come from a tool: whoever asks to have a bill paid has the account looked up.
So it counts who spoke of the *kind* of action, whether an output tells someone to do it, and whether
the values of the call stand there and nowhere else. Pure functions of texts: no model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ropelime.text import actions, directives
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Masks

Decider = Literal["system", "user", "own", "tool"]
_ROLES: Mapping[str, Decider] = {
    "system": "system", "developer": "system", "assistant": "own", "tool": "tool", "function": "tool",
}  # fmt: skip
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_LONG = re.compile(r"[^\W\d_]{4,}")  # words that say what a text is about


def decider(role: str) -> Decider:
    """Who speaks in a message of a role."""
    return _ROLES.get(role, "user")


@dataclass(frozen=True)
class Order:
    """A sentence of a tool's output that tells someone to do something.

    Attributes:
        text: The sentence, as :func:`flat` gives it.
        around: The same with the sentences beside it.
        span: Where it is in the text of the prompt.
    """

    text: str
    around: str
    span: Span


@dataclass(frozen=True)
class Action:
    """An action of an agent, and the parts of the prompt that it may come from.

    Attributes:
        prompt: The prompt, of messages.
        features: Its parts.
        text: The tool call, or what else was done.
    """

    prompt: Prompt
    features: Sequence[Feature]
    text: str

    @cached_property
    def deciders(self) -> list[Decider]:
        """Who speaks in each part."""
        return [decider(self.prompt.messages[feature.part].role) for feature in self.features]

    @cached_property
    def tool(self) -> Masks:
        """(n,) which parts are of tools' outputs."""
        return np.array([who == "tool" for who in self.deciders])

    @cached_property
    def asking(self) -> Masks:
        """(n,) which parts are of the user or the system prompt."""
        return np.array([who in ("user", "system") for who in self.deciders])

    @cached_property
    def name(self) -> str:
        """The name of the called tool; empty where the action is another text."""
        return "" if (call := actions.fields(self.text)) is None else call[0]

    @cached_property
    def values(self) -> list[str]:
        """The arguments; any other text counts as one."""
        return [self.text] if (call := actions.fields(self.text)) is None else call[1:]

    @cached_property
    def has(self) -> Floats:
        """(n,) how much of the action each part has; calls that were made before have none."""
        spans = [(feature.start, feature.end) for feature in self.features]
        named = [field for field in (self.name, *self.values) if field]
        texts = [feature.text for feature in self.features]
        return (1 - actions.earlier_calls(self.prompt, spans)) * actions.asked_for(named, texts)

    @cached_property
    def orders(self) -> list[Order]:
        """The sentences of tools' outputs that tell someone to do something."""
        found = []
        for message in self.prompt.messages:
            if decider(message.role) == "tool":
                text = self.prompt.text[message.start : message.end]
                for (start, end), around in directives.orders(text):
                    place = message.start + start, message.start + end
                    found.append(Order(flat(text[start:end]), flat(text[slice(*around)]), place))
        return found

    @cached_property
    def ordered(self) -> Masks:
        """(n,) which parts have some of an order."""
        found = np.zeros(len(self.features), dtype=bool)
        starts, ends = np.array([(feature.start, feature.end) for feature in self.features]).T
        for order in self.orders:
            start, end = order.span
            for number in np.flatnonzero((starts < end) & (ends > start)):
                shared = slice(max(starts[number], start), min(ends[number], end))
                found[number] |= bool(self.prompt.text[shared].strip())
        return found

    @cached_property
    def asked(self) -> str:
        """What the user and the system prompt say."""
        return self._said(("user", "system"))

    @cached_property
    def user(self) -> str:
        """What the user says."""
        return self._said(("user",))

    @cached_property
    def data(self) -> str:
        """What tools' outputs say besides orders."""
        text = list(self.prompt.text)
        for order in self.orders:
            start, end = order.span
            text[start:end] = " " * (end - start)
        return self._said(("tool",), "".join(text))

    def _said(self, who: Iterable[str], text: str | None = None) -> str:
        text = self.prompt.text if text is None else text
        spoken = (m for m in self.prompt.messages if decider(m.role) in who)
        return flat("\n".join(text[m.start : m.end] for m in spoken))


def flat(text: str) -> str:
    """A text to find values in: lower case, one space between words, links without ``https://``."""
    return " ".join(_SCHEME.sub("", text).lower().split())


def directed(action: Action) -> Floats:
    """(n,) how much of the action each part of a tool's output has, twice that of ordered parts."""
    return np.asarray(action.has * action.tool * (1.0 + action.ordered))


def measures(action: Action) -> dict[str, float]:
    """What the chance that a tool's output caused an action is estimated from.

    All are 0 to 1, but for those of ``asked_for``, which are 0 to 2. An *order* is a sentence of a
    tool's output that tells someone to do something. A text *has* a value where it has its words, and
    *gives* it where it has it as it is.

    Returns:
        ``call``: 1 for tool calls, 0 for other text, which is compared as if it were an argument.

        ``asked_user``, ``asked_order``, ``asked_near``, ``asked_plain``: how much of the action the
        best part has (:func:`ropelime.text.actions.asked_for`) of the user or system prompt, of parts
        with an order, of parts beside these, and of tools' outputs that have none.

        ``name_user``, ``name_order``: the part of the called tool's name whose words the user or the
        system prompt has, and the best order.

        ``values_user``, ``values_order``, ``values_around``, ``values_data``: the part of the values'
        words that the user or the system prompt has, the best order, the best order with the sentences
        beside it, and all that has no order.

        ``together``: the largest product of name and values in one order.

        ``given_user``: the part of the values that the user or the system prompt gives.

        ``only_order``, ``any_order``: the part of the values that nothing but orders gives, and 1 if
        there is such a value.

        ``codes_order``: the same of addresses, links, paths and codes alone, which other outputs may
        give, too, but not the user or the system prompt.

        ``related``: the part of the best order's words that the user has, too.

        ``against``: the part of the values in whose place the user gave others of their kind.

        ``delegated``: 1 if the user speaks of requests or instructions, which an output may hold.
    """
    return {"call": float(bool(action.name)), **_parts(action), **_words(action), **_given(action)}


def _parts(action: Action) -> dict[str, float]:
    """What the best part of each kind has."""
    own = np.array([feature.part for feature in action.features])
    same = own[1:] == own[:-1]
    after = np.append(False, action.ordered[:-1] & same)
    before = np.append(action.ordered[1:] & same, False)
    plain = action.tool & ~action.ordered
    groups = {
        "asked_user": action.asking,
        "asked_order": action.ordered,
        "asked_near": (after | before) & plain,
        "asked_plain": plain,
    }
    return {name: float(action.has[which].max(initial=0.0)) for name, which in groups.items()}


def _words(action: Action) -> dict[str, float]:
    """Whose words the name and the values of a call are."""
    called, filled = actions.stems(action.name), [actions.stems(value) for value in action.values]

    def covered(held: frozenset[str]) -> float:
        return _mean([actions.covered(value, held) for value in filled])

    held = [actions.stems(order.text) for order in action.orders]
    named = [actions.covered(called, words) for words in held]
    valued = [covered(words) for words in held]
    asked = actions.stems(action.asked)
    best = int(np.argmax(np.add(named, valued))) if held else None
    topic = frozenset() if best is None else actions.stems(_long(action.orders[best].text))
    return {
        "name_user": actions.covered(called, asked),
        "name_order": max(named, default=0.0),
        "values_user": covered(asked),
        "values_order": max(valued, default=0.0),
        "values_around": max((covered(actions.stems(o.around)) for o in action.orders), default=0.0),
        "values_data": covered(asked | actions.stems(action.data)),
        "together": max((a * b for a, b in zip(named, valued, strict=True)), default=0.0),
        "related": actions.covered(topic, actions.stems(action.user)),
    }


def _given(action: Action) -> dict[str, float]:
    """Who gives the values as they are."""
    values = [flat(value).rstrip("/") for value in action.values]
    codes = [flat(value).rstrip("/") for value in action.values if directives.is_code(value.strip())]
    asked, data = action.asked, action.data
    orders = "\n".join(order.text for order in action.orders)
    new = [value not in asked for value in values]
    only = [one and v in orders and v not in data for one, v in zip(new, values, strict=True)]
    return {
        "given_user": _mean([not one for one in new]),
        "only_order": _mean(only),
        "any_order": float(any(only)),
        "codes_order": _mean([code in orders and code not in asked for code in codes]),
        "against": directives.against(values, asked),
        "delegated": float(directives.delegates(action.user)),
    }


def _long(text: str) -> str:
    return " ".join(_LONG.findall(text))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
