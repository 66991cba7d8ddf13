"""Logs of Inspect: JSON, the samples of an ``.eval`` file, or a list of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ropelime.traces.exchange import read_answer
from ropelime.traces.messages import read_messages
from ropelime.traces.runs import message_steps
from ropelime.traces.steps import Step, ToolCall
from ropelime.traces.values import Problems, TooMuch, first, items, mapping, record, text, when

_POINTERS = ("attachment://", "tc://")  # to texts that are stored once
_DEEPEST = 100  # levels of events within events
_MESSAGE = 500  # bytes of a message that an event has out of the pool
_LOOKED = 32  # characters that are looked through in the time that a byte of memory is worth
_LONGEST = 16_000_000  # characters that the pointers of one event stand for: no model reads more


def is_inspect(data: Mapping[str, Any]) -> bool:
    """Whether data is a log, one of its samples, or the events of one."""
    if isinstance(data.get("eval"), Mapping) and ("samples" in data or "plan" in data):
        return True
    events = data.get("events")
    if isinstance(events, list) and any(isinstance(mapping(e).get("event"), str) for e in events):
        return True
    return "epoch" in data and (isinstance(data.get("messages"), list) or "events" in data)


def read_inspect(data: Mapping[str, Any], problems: Problems, where: str) -> Iterator[Step]:
    """The model calls, tool calls and agents of every sample."""
    if not isinstance(data.get("eval"), Mapping):
        yield from _sample(data, problems, where, "")
        return
    samples = items(data.get("samples"))
    if not samples:
        problems.add(where, "the log has no samples; it was written without them or has failed")
    model = text(mapping(data["eval"]).get("model"))
    for i, sample in enumerate(samples):
        place = f"{where} samples[{i}]".strip()
        with problems.at(place):
            yield from _sample(record(sample), problems, place, model)


def _sample(sample: Mapping[str, Any], problems: Problems, where: str, model: str) -> Iterator[Step]:
    transcript = mapping(sample.get("transcript"))
    stored = {**mapping(transcript.get("content")), **mapping(sample.get("attachments"))}
    pool = first(sample, "message_pool") or first(mapping(sample.get("events_data")), "messages")
    run = _Sample(where, _run_id(sample), stored, items(pool), problems)
    steps = list(run.steps(items(first(sample, "events") or transcript.get("events")), where, "", 0))
    if any(step.kind == "model" for step in steps) or not sample.get("messages"):
        yield from steps
    else:  # a log without events: what the sample holds in the end
        messages = run.resolved(sample.get("messages"))
        yield from message_steps(messages, problems, f"{where} messages", model, run.trace_id)


def _run_id(sample: Mapping[str, Any]) -> str:
    if "id" not in sample:
        return ""
    epoch = sample.get("epoch")
    return f"sample {text(sample['id'])}" + (f", epoch {text(epoch)}" if epoch is not None else "")


class _Sample:
    """What the events of a sample refer to."""

    def __init__(
        self,
        where: str,
        trace_id: str,
        stored: Mapping[str, Any],
        pool: list[Any],
        problems: Problems,
    ) -> None:
        self.where, self.trace_id, self.problems = where, trace_id, problems
        self._stored = {name: text(value) for name, value in stored.items()}
        self._known = {id(stored) for stored in self._stored.values()}
        self._pool, self._pointed = pool, 0

    def steps(self, events: list[Any], where: str, parent: str, depth: int) -> Iterator[Step]:
        """The events that are steps, and those inside tools and subtasks."""
        if depth > _DEEPEST:
            self.problems.add(where, "events are nested too deeply; the inner ones are left out")
            return
        for i, each in enumerate(events):
            place = f"{where} events[{i}]".strip()
            event: Mapping[str, Any] = {}
            with self.problems.at(place):
                event, self._pointed = record(each), 0
                step = self._step(event, place, parent)
                if step is not None:
                    self._count(step)
                    yield step
            inner = items(event.get("events"))
            yield from self.steps(inner, place, text(first(event, "uuid")) or place, depth + 1)

    def _step(self, event: Mapping[str, Any], where: str, parent: str) -> Step | None:
        common: dict[str, Any] = {
            "started": when(event.get("timestamp")),
            "ended": when(event.get("completed")),
            "parent": text(first(event, "span_id")) or parent,
            "trace_id": self.trace_id,
            "where": where,
        }
        name = text(first(event, "uuid")) or where
        kind = event.get("event")
        if kind == "model":
            answer = read_answer(self.resolved(event.get("output")), self.problems, where)
            return Step(
                name,
                "model",
                model=text(event.get("model")),
                messages=read_messages(self._input(event), self.problems, f"{where} input"),
                text=answer.content,
                calls=answer.tool_calls,
                reasoning=answer.reasoning,
                **common,
            )
        if kind == "tool":
            tool = text(event.get("function"))
            call = ToolCall(text(event.get("id")), tool, text(self.resolved(event.get("arguments"))))
            result = first(event, "result") or first(mapping(event.get("error")), "message")
            written = read_answer(self.resolved(result), Problems()).content if result else ""
            shown = written or text(self.resolved(result))
            return Step(name, "tool", name=tool, calls=(call,), text=shown, **common)
        if kind == "span_begin" and event.get("type") == "agent":
            common["parent"] = text(first(event, "parent_id"))
            return Step(text(event.get("id")), "agent", name=text(event.get("name")), **common)
        return None

    def _input(self, event: Mapping[str, Any]) -> list[Any]:
        """The prompt of a model call; newer logs refer to ranges of a pool of messages."""
        given = list(items(event.get("input")))
        for reference in items(event.get("input_refs")):
            start, end = reference
            referred = self._pool[int(start) : int(end)]
            self.problems.take(_MESSAGE * len(referred))
            given += referred
        return list(self.resolved(given))

    def _count(self, step: Step) -> None:
        """Count the texts of a step that were put together; one that is stored is only referred to."""
        texts = [step.text, step.reasoning, *(call.arguments for call in step.calls)]
        texts += [each for message in step.messages for each in (message.content, message.reasoning)]
        self.problems.take(sum(len(each) for each in texts if id(each) not in self._known))

    def resolved(self, value: Any, depth: int = 0) -> Any:
        """The same data with pointers replaced by the texts that they stand for."""
        if isinstance(value, str) and value.startswith(_POINTERS):
            name = value.partition("://")[2]
            if name not in self._stored:
                self.problems.add(self.where, f"the text of {value[:60]!r} is not in the file")
            found = self._stored.get(name) or text(value)
            self._pointed += len(found)
            self.problems.take(len(found) // _LOOKED)
            if self._pointed > _LONGEST:
                raise TooMuch(f"an event refers to more than {_LONGEST:,} characters")
            return found
        if depth > _DEEPEST:
            return value
        if isinstance(value, list):
            return [self.resolved(each, depth + 1) for each in value]
        if isinstance(value, Mapping):
            return {key: self.resolved(each, depth + 1) for key, each in value.items()}
        return value
