"""The steps of a run: what each was given, what came out, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from ropelime.errors import InputError
from ropelime.text.display import shorten
from ropelime.text.prompt import Span
from ropelime.traces.values import text

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["model", "tool", "retrieval", "agent", "other"]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool: the id that its result refers to, its name, and its arguments as JSON text."""

    id: str
    name: str
    arguments: str = ""

    def __str__(self) -> str:
        """The call as one line of JSON, with arguments that are not JSON as a text."""
        given: Any = {}
        if self.arguments.strip():
            given = self.arguments
            with suppress(ValueError, RecursionError):
                given = json.loads(self.arguments)
        with suppress(RecursionError):
            return text({"name": self.name, "arguments": given})
        return text({"name": self.name, "arguments": self.arguments})


@dataclass(frozen=True)
class Document:
    """A retrieved document; ``id``, ``source`` and ``score`` where they are known."""

    text: str
    id: str = ""
    source: str = ""
    score: float | None = None


@dataclass(frozen=True)
class Message:
    """One message of a prompt.

    Attributes:
        role: Who wrote it.
        content: Its text; what is not text is named in brackets, as ``[image]``.
        tool_calls: The calls in a message of the assistant.
        reasoning: What the assistant wrote before its text and its calls, where that was stored.
        name: The tool that a result comes from.
        tool_call_id: The call that a result belongs to.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    name: str = ""
    tool_call_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The message as the Chat Completions API has it, for ``explain(messages=...)``."""
        data: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            data["reasoning_content"] = self.reasoning
        if self.tool_calls:
            data["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        if self.name:
            data["name"] = self.name
        if self.tool_call_id:
            data["tool_call_id"] = self.tool_call_id
        return data


@dataclass(frozen=True)
class Step:
    """One step of a run.

    Attributes:
        id: Its id in the file, such as a span id; a place where it has none.
        kind: ``"model"`` for a call of a model; only these have messages and can be explained.
        name: What the file calls it.
        model: The model that was called.
        messages: The prompt, as the model was given it.
        text: What the model wrote, what a tool returned, or what an agent answered.
        calls: The tool calls that the model made, or the one call that a tool answers.
        reasoning: What the model wrote before its text and its calls.
        documents: What a retrieval found.
        started: When it began.
        ended: When it ended.
        parent: The id of the step around it.
        trace_id: The run that it belongs to, where a file holds several.
        where: Its place in the file, for messages about it.
        number: Its place in the trace, counted from 1.
    """

    id: str
    kind: Kind
    name: str = ""
    model: str = ""
    messages: tuple[Message, ...] = ()
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    documents: tuple[Document, ...] = ()
    started: datetime | None = None
    ended: datetime | None = None
    parent: str = ""
    trace_id: str = ""
    where: str = ""
    number: int = 0

    @property
    def output(self) -> str:
        """The text, then one line of JSON for each tool call that a model made."""
        calls = self.calls if self.kind == "model" else ()
        return "\n".join([*filter(None, [self.text]), *map(str, calls)])

    @property
    def call_spans(self) -> tuple[Span, ...]:
        """Where each tool call is in :attr:`output`."""
        spans: list[Span] = []
        end = len(self.output)
        for call in reversed(self.calls if self.kind == "model" else ()):
            spans.append((end - len(str(call)), end))
            end -= len(str(call)) + 1
        return tuple(reversed(spans))

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        if self.started is None or self.ended is None:
            return None
        return (self.ended - self.started).total_seconds()

    def prompt(self) -> list[dict[str, Any]]:
        """The messages as ``explain(messages=...)`` takes them."""
        return [message.to_dict() for message in self.messages]

    def __repr__(self) -> str:
        by = f" of {self.model}" if self.model else ""
        return f"<Step {self.number}: {self.kind}{by}, {shorten(self.output, 60)!r}>"


@dataclass(frozen=True)
class TraceData:
    """The steps of a run, or of all runs in a file, in the order of time.

    Attributes:
        name: The name of the file, or of the run.
        form: What the file is, such as ``"OpenInference spans"``.
        steps: The steps.
        problems: What could not be read, each with its line or span.
    """

    name: str
    form: str
    steps: tuple[Step, ...]
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbered = (replace(step, number=i) for i, step in enumerate(self.steps, start=1))
        object.__setattr__(self, "steps", tuple(numbered))

    @property
    def model_steps(self) -> tuple[Step, ...]:
        """The calls of models."""
        return tuple(step for step in self.steps if step.kind == "model")

    def source(self, step: Step, number: int) -> int | None:
        """The number of the earlier step that wrote a message, or made the call whose result it is.

        Args:
            step: The step that was given the message.
            number: The message, counted from 0; after those of the prompt comes what the model wrote
                before its output.
        """
        if number >= len(step.messages):  # it was written in this step
            return None
        message = step.messages[number]
        ids = {message.tool_call_id, *(call.id for call in message.tool_calls)} - {""}
        if message.role == "tool" and not ids:  # the call is in the message before the results
            writers = [i for i in range(number) if step.messages[i].role == "assistant"]
            return self.source(step, writers[-1]) if writers else None
        wrote = message.content.strip() if message.role == "assistant" else ""
        keys = [("call", each) for each in ids] + ([("text", wrote)] if wrote else [])
        made = [at for key in keys for at in self._made.get((step.trace_id, *key), ())]
        return max((at for at in made if at < step.number), default=None)

    @cached_property
    def _made(self) -> dict[tuple[str, str, str], list[int]]:
        """The numbers of models' steps, by the ids of their calls and by their text."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for step in self.model_steps:
            for key in [("text", step.text.strip()), *(("call", call.id) for call in step.calls)]:
                found.setdefault((step.trace_id, *key), []).append(step.number)
        return found

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, step: int | str) -> Step:
        """The step of that number, counted from 1, or of that id."""
        if isinstance(step, int) and not isinstance(step, bool):
            if 1 <= step <= len(self.steps):
                return self.steps[step - 1]
            raise InputError(f"There is no step {step}: {self.name} has steps 1 to {len(self.steps)}.")
        if not isinstance(step, str):
            raise InputError(f"A step is a number or an id, not {type(step).__name__}.")
        matching = [each for each in self.steps if each.id == step]
        if len(matching) == 1:
            return matching[0]
        if matching:
            numbers = ", ".join(str(each.number) for each in matching[:10])
            raise InputError(f"Several steps have the id {step!r}: name one by its number ({numbers}).")
        raise InputError(f"No step has the id {step!r}. `ropelime trace` lists the steps.")
