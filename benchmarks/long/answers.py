"""Long answers after many parts: groups against leave-one-out in full, and against one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hardware import Hardware
from benchmarks.store import Row, rows
from ropelime.errors import InputError
from ropelime.explain import Explanation, explain_many
from ropelime.options import Options
from ropelime.steps import Task
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, from_context, from_messages
from ropelime.typing import Floats

_CHARACTERS = 4  # of a token, about
_GROUPED = "in groups"  # what the note says where features were grouped


@dataclass(frozen=True)
class Step:
    """A prompt with a long answer.

    Attributes:
        id: Its name.
        prompt: The prompt.
        output: The answer.
        gold: Texts that the answer follows, of which a part should be first; empty if not labelled.
    """

    id: str
    prompt: Prompt
    output: str
    gold: tuple[str, ...] = ()


def steps(path: Path | None, limit: int, most: int | None = None) -> Iterator[Step]:
    """The steps of agents, or answers to questions with documents, that cost most; longest first.

    Args:
        path: The file.
        limit: How many.
        most: The most tokens of an answer, about.
    """
    if path is None:
        raise InputError("--data FILE is needed: runs of agents (agentdyn) or long answers (lfqa).")
    found = [_step(row) for row in rows(path)]
    if most is not None:
        found = [step for step in found if len(step.output) <= _CHARACTERS * most]
    distinct = {(step.prompt.text, step.output): step for step in found}.values()
    order = sorted(distinct, key=lambda s: -len(s.prompt.text) * len(s.output))
    yield from order[:limit]


def _step(row: dict[str, Any]) -> Step:
    if "messages" in row:
        injected = row.get("injections", ()) if row.get("kind") == "hijacked" else ()
        gold = tuple(row["messages"][i["message"]]["content"][i["start"] : i["end"]] for i in injected)
        return Step(str(row["id"]), from_messages(row["messages"]), row["output"], gold)
    texts = [document["text"] for document in row["documents"]]
    return Step(str(row["id"]), from_context(texts, row["question"]), row["answer"])


def comparing(surrogate: LocalSurrogate) -> Callable[[Step], Row]:
    """What explains a step in both ways."""
    hardware = Hardware(surrogate)

    def make(step: Step) -> Row:
        try:
            return _row(step, surrogate, hardware)
        except InputError as error:  # fewer than two parts
            return {"skipped": str(error)}

    return make


def _row(step: Step, surrogate: LocalSurrogate, hardware: Hardware) -> Row:
    features = split(step.prompt, "sentence", token_spans=surrogate.token_spans)
    scorer = surrogate.prepare(step.prompt, features, step.output, ablation=Ablation())
    everything = np.ones((1, len(features)), dtype=bool)
    scorer.score(everything, kl=False)  # the first pass of a process takes longer
    plain = hardware.measure(lambda: scorer.score(everything, kl=False))
    made: dict[str, Explanation] = {}

    def explain(name: str, **options: Any) -> None:
        task = Task(step.prompt, step.output, Options(**options))
        (e,) = explain_many([task], [surrogate])
        assert isinstance(e, Explanation)
        made[name] = e

    ours = hardware.measure(lambda: explain("ours"))
    full = hardware.measure(lambda: explain("full", sampler="leave-one-out"))
    instant = hardware.measure(lambda: explain("instant", preset="instant"))
    e, other = made["ours"], made["full"]
    return {
        "grouped": any(_GROUPED in note for note in e.diagnostics.notes),
        "features": len(features),
        "tokens": len(scorer.tokenized.ids),
        "answer": len(scorer.output_spans),
        **{name: _agreement(made[name], other) for name in ("ours", "instant")},
        "true": {name: _finds(e, step.gold) for name, e in made.items()} if step.gold else None,
        "scored": {"ours": e.cost.tokens, "full": other.cost.tokens, "plain": plain.tokens},
        "seconds": {
            name: round(took.seconds, 3)
            for name, took in (("ours", ours), ("full", full), ("plain", plain), ("instant", instant))
        },
        "processor": {
            name: round(took.processor, 3)
            for name, took in (("ours", ours), ("full", full), ("plain", plain), ("instant", instant))
        },
    }


def _finds(e: Explanation, gold: Sequence[str]) -> bool:
    """Whether the first part of a ranking is one that the answer follows."""
    first = e.top(1)[0].text.strip()
    return any(first in text for text in gold)


def _agreement(e: Explanation, other: Explanation) -> dict[str, float | None]:
    """How far two rankings agree."""
    first, second = (np.argsort(-x.normalized_weights, kind="stable")[:3].tolist() for x in (e, other))
    apart = float(np.abs(e.normalized_weights - other.normalized_weights).sum() / 2)
    return {
        "rank correlation": _correlation(e.normalized_weights, other.normalized_weights),
        "same first": float(first[0] == second[0]),
        "first in three": float(second[0] in first),
        "same three": len({*first} & {*second}) / len(second),
        "shares apart": round(apart, 5),
    }


def _correlation(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation, by numpy alone; equal values share their mean rank."""

    def ranks(values: Floats) -> Floats:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]

    with np.errstate(invalid="ignore"):
        return float(np.nan_to_num(np.corrcoef(ranks(x), ranks(y))[0, 1]))
