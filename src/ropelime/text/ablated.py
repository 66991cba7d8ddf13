"""A prompt without some of its features, as chat messages that an answering model can be sent.

Characters are removed as the ablation ``"delete"`` removes tokens. Messages keep their roles and tool
calls, and the request stays valid:

- A message of which nothing is left is dropped. Where none of the user is left, the last is sent empty.
- A tool call keeps its name. Arguments that are no longer JSON become ``{}``.
- A tool call and its result stay together: one of which nothing is left is sent without arguments, or
  empty, as long as there is something left of the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.text.features import Feature, character_owners
from ropelime.text.prompt import CALLS, TOOL_RESULT, Prompt, call_text, from_messages

_RESULTS = ("tool", "function")  # roles that servers take only with the name or id of a call
Chat = list[dict[str, Any]]
_Cut = Callable[[int, int], str]  # what is left of a span of the prompt


def messages_of(prompt: Prompt, given: Sequence[Mapping[str, Any]] | None = None) -> Chat:
    """The messages of a prompt: those ``given`` if they are the same prompt, else made out of its text.

    The text of a prompt does not say which tool call a result belongs to. Where the messages are not
    given, calls are written out and results are the user's.
    """
    if prompt.kind != "messages":
        if given is not None:
            raise InputError(
                f"messages=[...] go with an explanation of messages; this is a {prompt.kind}."
            )
        return [{"role": "user", "content": prompt.text}]
    if given is not None:
        if from_messages(given) != prompt:
            raise InputError(
                "These messages are not those that were explained. Pass them as they were."
            )
        return [dict(message) for message in given]
    return [{"role": message.role, "content": prompt.content(message)} for message in prompt.messages]


def ablated(
    prompt: Prompt, features: Sequence[Feature], removed: Iterable[int], messages: Chat
) -> Chat:
    """The messages without the features of these indices."""
    gone = np.isin(character_owners(features, prompt.text), list(removed))

    def cut(start: int, end: int) -> str:
        edges = np.flatnonzero(np.diff(gone[start:end], prepend=True, append=True)) + start
        return "".join(prompt.text[a:b] for a, b in edges.reshape(-1, 2).tolist())

    if prompt.kind != "messages":
        return [{"role": "user", "content": cut(0, len(prompt.text))}]
    left = [
        _cut_message(message, placed.start, cut, touched=bool(gone[placed.start : placed.end].any()))
        for message, placed in zip(messages, prompt.messages, strict=True)
    ]
    return _valid(left)


@dataclass
class _Left:
    """What is left of a message."""

    message: dict[str, Any]
    empty: bool = False  # nothing of its content is left, and there was something
    calls: list[tuple[Any, bool]] = field(default_factory=list)  # each tool call; whether it is gone


def _cut_message(message: Mapping[str, Any], start: int, cut: _Cut, *, touched: bool) -> _Left:
    """A message with what is left of its texts, which follow each other as in :func:`from_messages`."""
    at, new = start, dict(message)
    calls = message.get("tool_calls") or []
    if not touched:
        return _Left(new, calls=[(call, False) for call in calls])

    def take(text: str) -> tuple[str, int]:
        nonlocal at
        begin, at = at, at + len(text) + 1
        return cut(begin, begin + len(text)), begin

    key = "refusal" if message.get("content") is None and message.get("refusal") else "content"
    content = message.get(key)
    if isinstance(content, str) and (content or not (calls or message.get("function_call"))):
        new[key] = take(content)[0]
    elif content is not None and not isinstance(content, str):
        names = ["text" if isinstance(part.get("text"), str) else "refusal" for part in content]
        texts = [take(part[name])[0] for part, name in zip(content, names, strict=True)]
        parts = zip(content, names, texts, strict=True)
        new[key] = [{**part, name: text} for part, name, text in parts if text.strip()]
    left = []
    for call in calls:
        text, begin = take(call_text("A message", call))
        left.append((_cut_call(call, begin, cut), not text.strip()))
    if message.get("function_call"):  # it has no result that refers to it
        wrapped = {"function": message["function_call"]}
        text, begin = take(call_text("A message", wrapped))
        new["function_call"] = _cut_call(wrapped, begin, cut)["function"]
        if not text.strip():
            del new["function_call"]
    body = new.get(key)
    return _Left(new, empty=not (body.strip() if isinstance(body, str) else body), calls=left)


def _cut_call(call: Mapping[str, Any], start: int, cut: _Cut) -> dict[str, Any]:
    """A tool call with what is left of its arguments."""
    kind, key = next((kind, key) for kind, key in CALLS.items() if isinstance(call.get(kind), Mapping))
    body, whole = call[kind], call_text("A message", call)
    if cut(start, start + len(whole)) == whole:
        return dict(call)
    left = cut(start + len(body["name"]) + 1, start + len(whole) - 1)
    if kind == "function":
        try:
            json.loads(left)
        except ValueError:
            left = "{}"
    return {**call, kind: {**body, key: left}}


def _valid(left: Sequence[_Left]) -> Chat:
    """The messages that make a request: without empty ones, and no result without its call."""
    results = {m.message["tool_call_id"]: m for m in left if m.message.get("tool_call_id")}
    called = {call.get("id") for m in left for call, gone in m.calls if not gone}
    sent: list[dict[str, Any] | None] = []
    for m in left:
        message, name = m.message, m.message.get("tool_call_id")
        if m.calls:
            calls = [call for call, gone in m.calls if not gone or _stays(results.get(call.get("id")))]
            message["tool_calls"] = calls
            if not calls:
                del message["tool_calls"]
            elif m.empty:
                message["content"] = None
        said = not m.empty or bool(message.get("tool_calls") or message.get("function_call"))
        if not said and name in called:
            message, said = {**message, "content": ""}, True
        sent.append(message if said else None)
    users = [i for i, m in enumerate(left) if m.message.get("role") == "user"]
    if users and all(sent[i] is None for i in users):
        sent[users[-1]] = {**left[users[-1]].message, "content": ""}
    return [_sendable(message) for message in sent if message is not None]


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    """A message that servers take: the result of a tool without the id of its call is the user's."""
    if message["role"] not in _RESULTS or message.keys() & {"tool_call_id", "name"}:
        return message
    role, lead = TOOL_RESULT
    return {"role": role, "content": f"{lead}{message['content']}"}


def _stays(result: _Left | None) -> bool:
    return result is not None and not result.empty
