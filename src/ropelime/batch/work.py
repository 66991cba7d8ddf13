"""What a worker does: lines in, rows out, all of them read together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from ropelime.answering import AnsweringModel, GivenAnswer
from ropelime.batch.lines import FORMS, OPTIONS, Line
from ropelime.clients.pool import Pool
from ropelime.errors import FORGIVEN, DeclinedError, InputError, worded
from ropelime.explain import Explanation, check, explain_many
from ropelime.files import Row, dump, significant
from ropelime.options import Options
from ropelime.results.digest import digest
from ropelime.steps import Task
from ropelime.surrogate import Surrogate, load_surrogate
from ropelime.text.prompt import Prompt, check_text, read_prompt

MOST_CHARACTERS = 1_000_000  # of a prompt or an output; work on a longer one takes gigabytes
MOST_PARTS = 10_000  # chunks or messages, or parts of them
_GIVE_UP = 20  # questions in a row that are not answered: then the server is gone for good


@dataclass(frozen=True)
class Settings:
    """Everything that a row depends on besides its line."""

    options: Options = field(default_factory=Options)  # a line may have options of its own
    surrogates: tuple[str, ...] = ("smollm2",)
    device: str | None = None
    dtype: str | None = None
    allow_pickle: bool = False
    answering: AnsweringModel | None = None  # called where a line has no output
    full: bool = False  # whether rows hold the whole explanation, or what most people need of it
    top: int | None = None  # how many features a short row lists; all of them if None
    concurrency: int = 8  # calls of the answering model at once

    def describe(self) -> dict[str, Any]:
        """What the rows depend on, as plain data."""
        return {
            **self.options.describe(),
            "surrogate": list(self.surrogates),
            "dtype": self.dtype,
            "full": self.full,
            "top": self.top,
            "answering": self.answering and self.answering.describe(),
        }

    def load(self, say: Any = None) -> list[Surrogate]:
        """The models, loaded."""
        how: dict[str, Any] = {"device": self.device, "dtype": self.dtype, "say": say}
        how["allow_pickle"] = self.allow_pickle
        return [load_surrogate(name, **how) for name in self.surrogates]


@dataclass(frozen=True)
class Item:
    """A line that is being explained, or why it is not."""

    line: Line
    task: Task | None = None
    awaited: Future[GivenAnswer] | None = None
    answer: GivenAnswer | None = None
    error: Exception | None = None  # why there is no task


@dataclass(frozen=True)
class Done:
    """The rows of a group."""

    lines: bytes  # of JSON
    rows: int
    errors: int  # rows that hold an error
    gone: str = ""  # why no more can be done; the lines that are left have no rows


class Worker:
    """Explains groups of lines with models that were loaded once."""

    def __init__(self, settings: Settings, models: Sequence[Surrogate]) -> None:
        self._settings, self._models = settings, models
        self._asking = Pool(settings.concurrency) if settings.answering else None
        self._unanswered = 0  # questions in a row

    def close(self) -> None:
        """Ask nothing more."""
        if self._asking:
            self._asking.close()

    def begin(self, lines: Sequence[Line]) -> list[Item]:
        """Make lines ready; what has to be asked is being asked from now on."""
        items = []
        for line in lines:
            try:
                items.append(self._item(line))
            except FORGIVEN as error:
                items.append(Item(line, error=error))
        return items

    def finish(self, items: Sequence[Item]) -> Done:
        """Explain what was made ready."""
        answered, gone = self._all_answered(items)
        tasks = [item.task for item in answered if item.task is not None]
        found = iter(explain_many(tasks, self._models, forgive=FORGIVEN))
        rows = [self._row(item, item.error if item.task is None else next(found)) for item in answered]
        errors = sum(row["error"] is not None for row in rows)
        return Done(b"".join(map(dump, rows)), len(rows), errors, gone)

    def _item(self, line: Line) -> Item:
        if line.error:
            raise InputError(line.error)
        own = {name: line.data[name] for name in OPTIONS if name in line.data}
        options = replace(self._settings.options, **own) if own else self._settings.options
        prompt = _read(line)
        task = Task(prompt, line.data.get("output") or "", options)
        if line.data.get("output") is None:
            return Item(line, task, self._ask(prompt, line, options))
        check_text("output", line.data["output"])
        return Item(line, task)

    def _ask(self, prompt: Prompt, line: Line, options: Options) -> Future[GivenAnswer]:
        """Call the answering model for a line without an output, if it can be explained at all."""
        answering = self._settings.answering
        if answering is None or self._asking is None:
            raise InputError("There is no output, and no model to ask for one (--model NAME).")
        check(prompt, options, self._models)
        call = answering.call(prompt, line.data.get("messages"))
        return self._asking.submit(partial(answering.known_or_answer, call))

    def _all_answered(self, items: Sequence[Item]) -> tuple[list[Item], str]:
        """The items with their answers, up to where the server was gone for good; and why it is."""
        answered: list[Item] = []
        there = 0  # items up to the last that was answered
        for item in items:
            answered.append(self._answered(item))
            if self._unanswered >= _GIVE_UP:
                return answered[:there], (
                    f"The last {_GIVE_UP} questions were not answered, the last one because: "
                    f"{answered[-1].error} The same command continues with the lines that have no row "
                    "yet, and with --retry-errors with those whose row is an error too."
                )
            if not self._unanswered:
                there = len(answered)
        return answered, ""

    def _answered(self, item: Item) -> Item:
        """The item with the answer that it waited for."""
        if item.awaited is None or item.task is None:
            return item
        try:
            answer = item.awaited.result()
        except FORGIVEN as error:
            self._unanswered = 0 if isinstance(error, DeclinedError) else self._unanswered + 1
            return Item(item.line, error=error)
        self._unanswered = 0
        return Item(item.line, replace(item.task, output=answer.text), answer=answer)

    def _row(self, item: Item, result: Explanation | Exception | None) -> Row:
        if not isinstance(result, Explanation):
            return {"id": item.line.id, "error": worded(result)}
        e = item.answer.into(result) if item.answer else result
        whole = e.to_dict() if self._settings.full else short(e, self._settings.top)
        return {"id": item.line.id, "error": None, **whole}


def _read(line: Line) -> Prompt:
    """The prompt of a line, unless it is too large: before anything is cut or tokenised."""
    for form in ("context", "messages"):
        _check_size(form, line.data.get(form), MOST_PARTS, "parts")
    _check_size("output", line.data.get("output"), MOST_CHARACTERS, "characters")
    prompt = read_prompt(*(line.data.get(form) for form in FORMS))
    _check_size(prompt.kind, prompt.parts, MOST_PARTS, "parts")
    _check_size(prompt.kind, prompt.text, MOST_CHARACTERS, "characters")
    return prompt


def _check_size(what: str, given: Any, most: int, unit: str) -> None:
    if isinstance(given, (str, list, tuple)) and len(given) > most:
        raise InputError(
            f"{what} has {len(given):,} {unit} and a batch takes at most {most:,}. Shorten it."
        )


def short(e: Explanation, top: int | None = None) -> Row:
    """What most people need of an explanation."""
    row: Row = {
        "output": e.output,
        "features": [
            {
                "start": e.features[share.index].start,
                "end": e.features[share.index].end,
                "part": e.features[share.index].part,
                "text": share.text,
                "rank": share.rank,
                "normalized_weight": significant(share.normalized_weight),
                "weight": significant(share.weight),
                "interval": share.interval and [significant(end) for end in share.interval],
                **({"verified": e.verified.alone(share.index)} if e.verified is not None else {}),
            }
            for share in e.top(top)
        ],
        "trust": e.trust and {"value": significant(e.trust.value), "text": e.trust.text},
        "verdicts": {each.name: significant(each.probability) for each in e.verdicts},
        "warnings": list(e.diagnostics.warnings),
        "notes": list(e.diagnostics.notes),
        "cost": {"masks": e.cost.masks, "tokens": e.cost.tokens},
        **digest(e),
    }
    if e.interactions:
        row["interactions"] = [asdict(pair) for pair in e.interactions]
    if "answer" in e.config:
        row["answer"] = e.config["answer"]
    if e.also is not None:
        row["also"] = short(e.also, top)
    return row
