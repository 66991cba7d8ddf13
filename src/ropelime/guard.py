"""Ask who decided on an action of an agent, before it acts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ropelime.errors import InputError
from ropelime.explain import Explanation, explain
from ropelime.integrations.messages import as_messages
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.results.decisions import Decision, decide, decide_alone
from ropelime.surrogate.base import Surrogate
from ropelime.text.features import Feature, split
from ropelime.text.integrations import as_dict
from ropelime.text.prompt import CALLS, Prompt, answer_text, check_text, read_prompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CUT = ("message", "paragraph", "sentence", "word")  # features that need no tokenizer


@takes_options
def guard(
    messages: Sequence[Mapping[str, Any] | Any],
    action: str | Mapping[str, Any] | Any,
    *,
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    **options: Unpack[OptionKeywords],
) -> Decision:
    """Say who decided on an action: the user, or the output of a tool.

    It takes one pass of the surrogate over the messages, so that an agent can ask before it acts; none
    where the messages have one sentence only, which then has the whole share.

    Args:
        messages: What the model was given, as in :func:`ropelime.explain`.
        action: The tool call that it wants to make: a call or a message of OpenAI's API,
            ``{"name": ..., "arguments": {...}}``, or the call as a text.
        surrogate: See :func:`ropelime.explain`.
        **options: See :class:`ropelime.options.Options`; the preset is ``"instant"`` if not given.
    """
    chat = as_messages(messages)
    text = check_text("output", action_text(action))
    chosen: dict[str, Any] = {"preset": "instant", **options}
    prompt, features = read_prompt(messages=chat), Options.of(chosen, caller="guard").features
    if (only := _only_part(prompt, features)) is not None:
        return decide_alone(prompt, only, text, tools=tool_names(chat))
    why = explain(messages=chat, output=text, surrogate=surrogate, progress=False, **chosen)
    assert isinstance(why, Explanation)
    return decide(why, tools=tool_names(chat))


def _only_part(prompt: Prompt, features: Any) -> Feature | None:
    """The part of a prompt that has only one, so that there is nothing to rank; else None."""
    if len(prompt.parts) > 1 or not isinstance(features, str) or features not in _CUT:
        return None
    try:
        split(prompt, features)
    except InputError:  # it needs two
        start, end = prompt.parts[0]
        (message,) = (i for i, m in enumerate(prompt.messages) if m.start <= start and end <= m.end)
        return Feature(prompt.text[start:end], start, end, message)
    return None


def action_text(action: Any) -> str:
    """An action as text: a line of JSON for each tool call."""
    if isinstance(action, str):
        return action
    given = as_dict(action)
    if given is None:
        raise InputError(
            "action is a tool call, such as {'name': ..., 'arguments': {...}}, a message with tool "
            f"calls, or a text; not {type(action).__name__}.",
            field="action",
        )
    if isinstance(given.get("name"), str) and "role" not in given:
        return _line(given["name"], given.get("arguments", given.get("input")))
    for kind, key in CALLS.items():
        if isinstance(body := given.get(kind), Mapping) and isinstance(body.get("name"), str):
            return _line(body["name"], body.get(key))
    calls = given.get("tool_calls") or []
    text = [given["content"]] if isinstance(given.get("content"), str) and given["content"] else []
    if calls:
        return "\n".join([*text, *map(action_text, calls)])
    return answer_text(given)


def tool_names(messages: Sequence[Any]) -> dict[int, str]:
    """The name of the tool whose output each message is, by the index of the message."""
    names: dict[str, str] = {}
    found: dict[int, str] = {}
    for number, message in enumerate(messages):
        for call in message.get("tool_calls") or []:
            bodies = (call[kind] for kind in CALLS if isinstance(call.get(kind), Mapping))
            names[str(call.get("id"))] = str(next(bodies, {"name": ""}).get("name") or "")
        if message.get("role") in ("tool", "function"):
            name = message.get("name") or names.get(str(message.get("tool_call_id")))
            found |= {number: str(name)} if name else {}
    return found


def _line(name: str, arguments: Any) -> str:
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments or "{}")
    call = {"name": name, "arguments": {} if arguments is None else arguments}
    return json.dumps(call, ensure_ascii=False)
