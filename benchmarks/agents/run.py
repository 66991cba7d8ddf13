"""One row for each step: its parts, every ranking of them, and how each fares."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.agents import parts, rankings
from benchmarks.agents.items import Item
from benchmarks.agents.rankings import Ranking, Step
from benchmarks.names import INSTANT
from benchmarks.store import Row, Store
from ropelime.errors import InputError
from ropelime.explain import Explanation, explain_many
from ropelime.options import Options
from ropelime.steps import Task
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_messages
from ropelime.typing import Floats

STEP = "step"
_NOTHING = 1e-5
_DERIVED = (rankings.RANDOM, rankings.LONGEST, rankings.OTHERS, rankings.SHARED)  # from what is stored


def run(
    items: Sequence[Item],
    surrogate: LocalSurrogate,
    store: Store,
    *,
    only: Collection[str],
    together: int = 8,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> bool:
    """Rank the parts of every step that the store does not hold yet.

    Args:
        items: The steps.
        surrogate: The model that explains.
        store: Where the rows go.
        only: The rankings that are made.
        together: So many steps are scored in the same forward passes.
        seconds: Stop after the steps that are under way then.
        progress: Called with the steps done and in all.

    Returns:
        Whether every step has a row.
    """
    start = time.monotonic()
    left = (item for _, item in store.left(items, progress))
    while some := list(islice(left, together)):
        for row in _rows(some, surrogate, only):
            store.add(row["example"], [row])
        if seconds is not None and time.monotonic() - start > seconds:
            return all(item.id in store.done for item in items)
    return True


def _rows(items: Sequence[Item], surrogate: LocalSurrogate, only: Collection[str]) -> list[Row]:
    """The rows of some steps, scored together."""
    rows = [_begun(item) for item in items]
    steps: list[tuple[Row, Step]] = []
    for item, row in zip(items, rows, strict=True):
        try:
            steps += [(row, step) for step in _steps(item, row, surrogate)]
        except InputError as error:
            row["skipped"] = str(error)
    presets = [name for name in rankings.PRESETS if name in only]
    tasks = [
        Task(step.prompt, step.output, Options(preset=preset))  # type: ignore[arg-type]
        for _, step in steps
        for preset in presets
    ]
    made = iter(explain_many(tasks, [surrogate], forgive=(InputError,)) if tasks else ())
    for row, step in steps:
        explained = [next(made) for _ in presets]
        try:
            found = _rankings(step, dict(zip(presets, explained, strict=True)), surrogate, only)
        except InputError as error:  # longer than the surrogate's window
            row["skipped"] = str(error)
            continue
        row["outputs"].append(_figures(found, step, row["parts"]) | {"of": row["targets"][step.output]})
    for row in rows:
        row.pop("targets")
    return rows


def _begun(item: Item) -> Row:
    """A row with what is known before anything is scored."""
    targets: dict[str, list[str]] = {}
    for target, texts in item.outputs.items():
        for text in texts:
            targets.setdefault(text, []).append(target)
    return {
        "example": item.id,
        "method": STEP,
        "form": item.form,
        "kind": item.kind,
        "case": "/".join(item.case),
        "model": item.model,
        "variant": item.variant,
        "split": item.split,
        "targets": targets,
        "outputs": [],
    }


def _steps(item: Item, row: Row, surrogate: LocalSurrogate) -> list[Step]:
    """The texts of a step that are explained, each once; describes the parts in the row."""
    prompt = from_messages(item.messages)
    spans = surrogate.token_spans(prompt)
    features = split(prompt, Options().features, token_spans=lambda _: spans)
    row["parts"] = parts.describe(item, prompt, features, spans)
    texts = (text for text in row["targets"] if text.strip())
    return [Step(prompt, features, text) for text in texts]


def _rankings(
    step: Step,
    explained: Mapping[str, Explanation | Exception],
    surrogate: LocalSurrogate,
    only: Collection[str],
) -> dict[str, Ranking]:
    """Every ranking of one step, in the order of the tables."""
    found = rankings.without_model(step, only) | rankings.by_surrogate(step, surrogate, only)
    for preset, e in explained.items():
        if isinstance(e, Exception):
            raise e
        found[preset] = rankings.of_preset(preset, e)
    if rankings.GUARD in only:
        instant = explained.get(INSTANT)
        assert not isinstance(instant, Exception)
        found[rankings.GUARD] = rankings.of_guard(step, instant)
    return {name: found[name] for name in rankings.ORDER if name in found}


def _figures(found: Mapping[str, Ranking], step: Step, known: Mapping[str, Any]) -> Row:
    """How each ranking fares, and all signals that were computed, for learning from them."""
    figures, signals = {}, {}
    for name, ranking in found.items():
        shares = ranking.shares(step.messages)
        figures[name] = {**parts.measure(ranking.weights, shares, known), **ranking.known}
        if not ranking.names:
            figures[name] = {k: v for k, v in figures[name].items() if k not in ("first", "goal")}
        if ranking.score is not None:
            figures[name]["score"] = round(ranking.score, 4)
        if name not in _DERIVED:
            signals[name] = _rounded(ranking.weights)
        signals |= {f"{name}/{signal}": _rounded(v) for signal, v in ranking.signals.items()}
    return {"rankings": figures, "signals": signals}


def trimmed(row: Row) -> Row:
    """A row without its parts and signals; rankings by words that it lacks are made first."""
    outputs = []
    for each in row.get("outputs", ()):
        figures = dict(each["rankings"])
        if {"words", "words/shared"} <= each.get("signals", {}).keys():
            matching, shared = (np.array(each["signals"][k], float) for k in ("words", "words/shared"))
            own = [role == "a" for role in row["parts"]["role"]]
            for name, ranking in rankings.by_words(matching, shared, own).items():
                known = parts.measure(ranking.weights, ranking.weights, row["parts"])
                figures.setdefault(name, known)
        outputs.append({"of": each["of"], "rankings": figures})
    return {key: value for key, value in row.items() if key != "parts"} | {"outputs": outputs}


def _rounded(values: Floats) -> list[float]:
    """Short numbers: three significant digits, and nothing where there is next to nothing."""
    short = [float(f"{v:.3g}") if abs(v) > _NOTHING else 0.0 for v in values]
    return [int(v) if v == int(v) else v for v in short]
