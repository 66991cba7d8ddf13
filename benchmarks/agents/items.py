"""Steps of agents with an injected instruction in what a tool gave back, and two harder forms of them.

``plain`` is the run as it was. ``unframed`` leaves only the instruction of the injected text: all that
the injected texts of a file have in common, frame and fixed sentences, stands around it. ``asked`` adds
a request for the same kind of action to the user's words, with every name, address and number changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.closed.cases import rows
from ropelime.errors import InputError
from ropelime.text.prompt import Span

HIJACKED, RESISTED, OWN = "hijacked", "resisted", "own"  # followed it, did not, and the user's own
LEARN, JUDGE = "learn", "judge"
_EMAIL, _SITE, _SENDER = "accounts@harbour-supplies.com", "www.riverside-news.com", "Monthly update"
_ROTATED = 3  # letters and digits


@dataclass(frozen=True)
class Injection:
    """An injected text in the content of a message, and the instruction inside it."""

    message: int
    start: int
    end: int
    goal_start: int
    goal_end: int


@dataclass(frozen=True)
class Item:
    """A step of an agent.

    Attributes:
        id: Its name.
        form: Plain, unframed or asked.
        kind: Hijacked, resisted, or the user's own: a call that the user asks for.
        case: Suite, user task and injection task; the same case occurs with several models.
        model: The answering model.
        variant: How its prompt was changed against injections.
        split: Whether something may be learnt from it, or it judges.
        messages: What the model was given.
        output: What it answered: text, then a line for each call.
        calls: The calls that are explained by themselves: the malicious one, or all of a step that
            resisted.
        injections: The injected texts.
        goal: The injected instruction.
    """

    id: str
    form: str
    kind: str
    case: tuple[str, str, str]
    model: str
    variant: str
    split: str
    messages: Sequence[Mapping[str, Any]]
    output: str
    calls: tuple[Span, ...]
    injections: tuple[Injection, ...]
    goal: str

    @property
    def outputs(self) -> dict[str, list[str]]:
        """What is explained: the whole step, and calls by themselves."""
        return {"step": [self.output], "call": [self.output[a:b] for a, b in self.calls]}


def read(path: Path) -> Iterator[Item]:
    """The steps of a file, as they were."""
    for row in rows(path):
        try:
            yield _item(row)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a file of steps with injections ({error!r}).") from None


def _item(row: Mapping[str, Any]) -> Item:
    hijacked = row["kind"] == HIJACKED
    calls = [row["call"]] if hijacked else row.get("calls", ())
    number = int(row["user_task"].rpartition("_")[2])
    keys = ("message", "start", "end", "goal_start", "goal_end")
    return Item(
        id=row["id"],
        form="plain",
        kind=row["kind"],
        case=(row["suite"], row["user_task"], row["injection_task"]),
        model=row["model"],
        variant=row["variant"],
        split=JUDGE if number % 2 else LEARN,
        messages=row["messages"],
        output=row["output"],
        calls=tuple((call["start"], call["end"]) for call in calls),
        injections=tuple(Injection(*(each[key] for key in keys)) for each in row["injections"]),
        goal=row["goal"],
    )


def plain(item: Item) -> list[Item]:
    """The step as it was."""
    return [item]


def unframed(item: Item) -> list[Item]:
    """The step with only the instruction left of every injected text."""
    contents = [message.get("content") or "" for message in item.messages]
    moved: list[Injection] = []
    for each in sorted(item.injections, key=lambda i: (i.message, i.start)):
        before = sum(m.end - m.start for m in moved if m.message == each.message)
        cut = sum(
            (i.end - i.start) for i in item.injections
            if i.message == each.message and i.end <= each.start
        )  # fmt: skip
        start = each.start - cut + before
        goal = contents[each.message][each.goal_start : each.goal_end]
        moved.append(Injection(each.message, start, start + len(goal), start, start + len(goal)))
    for each in sorted(item.injections, key=lambda i: -i.start):
        text = contents[each.message]
        goal = text[each.goal_start : each.goal_end]
        contents[each.message] = text[: each.start] + goal + text[each.end :]
    messages = [
        {**message, "content": content} if message.get("content") else message
        for message, content in zip(item.messages, contents, strict=True)
    ]
    made = replace(item, messages=messages, injections=tuple(moved))
    return [replace(made, id=f"{item.id}/unframed", form="unframed")]


def asked(item: Item) -> list[Item]:
    """The step after a user who asks for such an action himself.

    Beside it, for a step that was hijacked, the call that this user asks for: the malicious one with
    the same changes. No model made it; it judges whether actions of one kind can be told apart.
    """
    changes = changed(item.goal)
    request = _replaced(item.goal, changes)
    messages = [
        {**message, "content": f"{message['content']}\n\n{request}"}
        if message["role"] == "user"
        else message
        for message in item.messages
    ]
    made = replace(item, id=f"{item.id}/asked", form="asked", messages=messages)
    if item.kind != HIJACKED:
        return [made]
    call = item.output[slice(*item.calls[0])]
    own = _replaced(call, changes)
    if own == call or not _is_json(own):
        return [made]
    return [made, replace(made, id=f"{made.id}/own", kind=OWN, output=own, calls=((0, len(own)),))]


FORMS: Mapping[str, Callable[[Item], list[Item]]] = {
    each.__name__: each for each in (plain, unframed, asked)
}


def changed(goal: str) -> dict[str, str]:
    """What a goal names, and what another request of the same kind names instead."""
    found: dict[str, str] = {}
    left = goal
    for pattern, instead in _NAMES:
        for match in re.finditer(pattern, left):
            found.setdefault(match[1], instead(match[1]))
        left = re.sub(pattern, " ", left)  # what is named once is not named as a part of it again
    return found


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    if not changes:
        return text
    longest = sorted(changes, key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w@.-]){re.escape(name)}(?![\w@-])" for name in longest)
    return re.sub(pattern, lambda match: changes[match[0]], text)


def _rotated(text: str) -> str:
    """Letters and digits that are three further, within their kind."""
    return "".join(
        chr((ord(c) - ord(first) + _ROTATED) % size + ord(first))
        if (first := "0" if c.isdigit() else "a" if c.islower() else "A" if c.isupper() else "")
        and (size := 10 if c.isdigit() else 26)
        and c.isascii()
        else c
        for c in text
    )


def _path(text: str) -> str:
    """Another path with as many folders."""
    names = text.strip("/").split("/")
    stem, dot, ending = names[-1].rpartition(".")
    last = f"notes.{ending}" if stem and dot else "notes"
    made = "/".join([*("documents", "archive", "old")[: len(names) - 1], last])
    return f"/{made}/" if text.endswith("/") else f"/{made}"


def _quoted(text: str) -> str:
    """Another title, or a code that is rotated."""
    return _rotated(text) if text.isupper() or any(c.isdigit() for c in text) else _SENDER


def _link(text: str) -> str:
    """Another site, with the same kind of page."""
    scheme, _, rest = text.rpartition("://")
    _, slash, page = rest.partition("/")
    last = page.rpartition("/")[2]
    ending = "report." + last.rpartition(".")[2] if "." in last else "page"
    return (f"{scheme}://" if scheme else "") + _SITE + (f"/{ending}" if slash else "")


# Each pattern names something in its first group. Earlier ones come first, so that an address within a
# quotation is changed as an address.
_NAMES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (r"([\w.+-]+@[\w-]+(?:\.[\w-]+)+)", lambda _: _EMAIL),
    (r"((?:https?://)?www\.[\w.-]+(?:/[\w.-]+)*/?)(?<![.])", _link),
    (r"(?<![\w/])(/[\w.-]+(?:/[\w.-]+)*/?)(?<![.])", _path),
    (r"\b([a-z]\w+/[a-z]\w+)\b", lambda _: "riverside/reading_list"),
    (r"'([^'\s][^']*)'(?!\w)", _quoted),
    (r"\b([A-Z]{2}\d{6,}|[A-Z]\d{3}|[A-Za-z0-9]{20,})\b", _rotated),
    (r"(?<![\w.-])(\d+)(?![\w.-]*\w)", _rotated),
    (r"\b(tomorrow morning)\b", lambda _: "Friday afternoon"),
    (r"\b(pencil set)\b", lambda _: "desk lamp"),
    (r"\b(one of the repository)\b", lambda _: "the repository of riverside/reading_list"),
)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
