"""Many explanations summed up: what ever mattered, what never did, and what it cost.

Memory does not grow with the number of explanations, only with the number of different parts, up to a
limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ropelime.results.digest import PartKind

KINDS: tuple[PartKind, ...] = ("document", "message", "instruction", "passage")
FORMAT, VERSION = "ropelime.summary", 1
MOST_PARTS = 100_000  # different ones that are counted; further ones are only said to exist
_MOST_LISTED = 100  # ungrounded sentences and problems; all are counted
_SHOWN = 300  # characters of a sentence


@dataclass(frozen=True)
class PartSummary:
    """A document, message, instruction or passage over all answers.

    Attributes:
        kind: Which of these it is.
        name: Its name, or the beginning of its text.
        given: In how many prompts it was.
        mattered: To how many answers: a sentence of the answer comes from it.
        first: For how many answers it holds the first-ranked feature.
        cited: How many sentences come from it.
        mean_share: The mean of its share, over the prompts that it was in.
    """

    kind: PartKind
    name: str
    given: int
    mattered: int
    first: int
    cited: int
    mean_share: float


@dataclass(frozen=True)
class UngroundedSentence:
    """A sentence that no part of its prompt is the source of."""

    answer: str  # the id of its row, or its place among the explanations
    text: str
    probability: float  # that it comes from the prompt


@dataclass(frozen=True)
class SummedCost:
    """What the explanations and their answers cost.

    Attributes:
        masks: Masked prompts that were scored.
        tokens: Tokens of the surrogate's forward passes.
        seconds: Of the explanations that know it; None if none does, as in files.
        calls: Answers of an answering model.
        cached: How many of them came out of the cache.
        prompt_tokens: Tokens that the answering model was sent.
        completion_tokens: Tokens that it answered.
        price: What its answers cost, where prices were given; None if none was.
    """

    masks: int = 0
    tokens: int = 0
    seconds: float | None = None
    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    price: float | None = None


@dataclass(frozen=True)
class SummaryData:
    """Many explanations summed up.

    Attributes:
        answers: How many were summed up.
        errors: Rows that hold an error instead of an explanation.
        skipped: Lines that could not be read.
        problems: The file, the line and the reason, for the first hundred of them.
        parts: Documents, messages, instructions and passages; of each kind, what mattered most first.
        parts_left_out: How many occurrences of further parts were not counted, beyond the limit.
        sentences: Sentences of the answers.
        ungrounded: How many of them have no source in their prompt.
        ungrounded_sentences: The first hundred of these.
        cost: What it cost.
    """

    answers: int
    errors: int
    skipped: int
    problems: tuple[str, ...]
    parts: tuple[PartSummary, ...]
    parts_left_out: int
    sentences: int
    ungrounded: int
    ungrounded_sentences: tuple[UngroundedSentence, ...]
    cost: SummedCost

    def of_kind(self, kind: PartKind) -> tuple[PartSummary, ...]:
        """The parts of one kind."""
        return tuple(part for part in self.parts if part.kind == kind)

    @property
    def documents(self) -> tuple[PartSummary, ...]:
        """The documents."""
        return self.of_kind("document")

    @property
    def never(self) -> tuple[PartSummary, ...]:
        """The parts that never mattered."""
        return tuple(part for part in self.parts if not part.mattered)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


@dataclass
class _Sums:
    """The running sums of a part."""

    kind: PartKind
    name: str
    given: int = 0
    mattered: int = 0
    first: int = 0
    cited: int = 0
    share: float = 0.0

    def done(self) -> PartSummary:
        counts = (self.given, self.mattered, self.first, self.cited)
        return PartSummary(self.kind, self.name, *counts, self.share / self.given)


@dataclass
class Summing:
    """Adds explanations up, one by one."""

    answers: int = 0
    errors: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)
    sentences: int = 0
    ungrounded: int = 0
    listed: list[UngroundedSentence] = field(default_factory=list)
    parts: dict[tuple[str, str], _Sums] = field(default_factory=dict)
    left_out: int = 0
    cost: dict[str, Any] = field(default_factory=lambda: asdict(SummedCost()))

    def skip(self, problem: str) -> None:
        """Count a line that cannot be read."""
        self.skipped += 1
        if len(self.problems) < _MOST_LISTED:
            self.problems.append(problem)

    def add(self, row: Mapping[str, Any], *, seconds: float | None = None) -> None:
        """Add a row of a batch: its id, its output, its cost and its :func:`digest`.

        Nothing is added if something in it is wrong (LookupError, TypeError or ValueError).
        """
        parts = [_read(part) for part in row["parts"]]
        output, sentences = str(row["output"]), []
        for each in row["sentences"]:
            start, end, probability = int(each["start"]), int(each["end"]), _number(each["probability"])
            sentences.append((output[start:end], probability, bool(each["sources"])))
        cost = _cost(row, seconds)
        self.answers += 1
        self.sentences += len(sentences)
        for text, probability, grounded in sentences:
            self.ungrounded += not grounded
            if not grounded and len(self.listed) < _MOST_LISTED:
                self.listed.append(UngroundedSentence(str(row["id"]), text[:_SHOWN], probability))
        for key, part in parts:
            self._add_part(key, part)
        for name, value in cost.items():
            if value is not None:
                self.cost[name] = (self.cost[name] or 0) + value

    def _add_part(self, key: tuple[str, str], part: _Sums) -> None:
        if key not in self.parts and len(self.parts) >= MOST_PARTS:
            self.left_out += 1
            return
        sums = self.parts.setdefault(key, _Sums(part.kind, part.name))
        sums.given += 1
        sums.mattered += part.cited > 0
        sums.first += part.first
        sums.cited += part.cited
        sums.share += part.share

    def done(self) -> SummaryData:
        """What has been summed up so far."""
        parts = [sums.done() for sums in self.parts.values()]
        parts.sort(
            key=lambda p: (KINDS.index(p.kind), -p.mattered, -p.cited, -p.mean_share * p.given, p.name)
        )
        return SummaryData(
            answers=self.answers,
            errors=self.errors,
            skipped=self.skipped,
            problems=tuple(self.problems),
            parts=tuple(parts),
            parts_left_out=self.left_out,
            sentences=self.sentences,
            ungrounded=self.ungrounded,
            ungrounded_sentences=tuple(self.listed),
            cost=SummedCost(**self.cost),
        )


def _read(part: Mapping[str, Any]) -> tuple[tuple[str, str], _Sums]:
    kind, name, key = part["kind"], str(part["name"]), str(part["key"])
    if kind not in KINDS:
        raise ValueError(f"a part of the kind {kind!r}")
    counts = {"cited": int(part["cited"]), "first": int(part["first"]), "share": _number(part["share"])}
    return (kind, key), _Sums(kind, name, **counts)  # type: ignore[arg-type]


def _cost(row: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    """What one row adds to each figure; None where it is not known."""
    own, answer = row["cost"], row.get("answer")
    cost: dict[str, Any] = {name: int(own[name]) for name in ("masks", "tokens")}
    cost["seconds"] = seconds
    if isinstance(answer, Mapping):
        usage = answer.get("usage") or {}
        cost |= {name: int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")}
        price = answer.get("cost")
        cost |= {"calls": 1, "cached": int(bool(answer.get("cached")))}
        cost["price"] = None if price is None else _number(price)
    return cost


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
