"""One row for each prompt: where its needles are ranked, what was read, and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.data import hotpotqa
from benchmarks.hardware import Hardware
from benchmarks.long.needles import Case
from benchmarks.store import Named, Row, Store
from ropelime.explain import Explanation, explain_many
from ropelime.options import Options
from ropelime.steps import Task
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import Feature, split
from ropelime.text.lexical import bm25, shared_words
from ropelime.text.passages import reduced
from ropelime.text.prompt import Prompt, Span, from_text
from ropelime.typing import Floats, Ints

METHOD = "explained"
HOTPOTQA = "hotpotqa"
_MOST = 32  # tokens of an answer
_ANSWERED = 6000  # tokens of the prompt that the answering model is given at least
_Item = TypeVar("_Item", bound=Named)


def sentences(path: Path | None, sizes: Sequence[int], limit: int) -> Iterator[Case]:
    """HotpotQA with all ten paragraphs (about 42 sentences), and among so many sentences."""
    for size in (42, *sizes):
        context = "all" if size == 42 else str(size)
        for example in hotpotqa(path, context=context, limit=limit):
            gold = tuple(s for s, is_gold in zip(example.spans, example.gold, strict=True) if is_gold)
            end = example.spans[-1][1]
            prompt = from_text(example.prompt)
            parts = (*_paragraphs(example.prompt[:end]), (end, len(example.prompt)))
            prompt = Prompt(prompt.text, prompt.messages, parts, "prompt")
            name = f"{HOTPOTQA}-{size}-{example.id}"
            known = (example.question, example.answer, gold, example.spans)
            yield Case(name, HOTPOTQA, size, prompt, *known)


def _paragraphs(text: str) -> list[Span]:
    """Where the paragraphs of a text lie."""
    found, at = [], 0
    for piece in text.split("\n\n"):
        found.append((at, at + len(piece)))
        at += len(piece) + 2
    return [span for span in found if span[0] < span[1]]


def in_turn(
    items: Sequence[_Item],
    store: Store,
    make: Callable[[_Item], Row],
    *,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Make the row of each item that the store does not hold yet.

    Args:
        items: What the rows are about.
        store: Where they go.
        make: Gives the row of an item, without its name.
        seconds: Stop before the next item when these have passed.
        progress: Called with the items done and in all.
    """
    start = time.monotonic()
    for _, item in store.left(items, progress):
        if seconds is not None and time.monotonic() - start > seconds:
            return
        store.add(item.id, [{"example": item.id, "method": METHOD, **make(item)}])


def explaining(
    surrogate: LocalSurrogate, preset: str, answering: LocalSurrogate | None = None
) -> Callable[[Case], Row]:
    """What explains a case.

    Args:
        surrogate: The model that explains.
        preset: The preset.
        answering: The model that answers; the given answers are explained if None.
    """
    hardware = Hardware(surrogate)

    def make(case: Case) -> Row:
        output = case.answer if answering is None else _answered(case, answering)
        return _row(case, output, surrogate, hardware, preset)

    return make


def by_words(case: Case) -> Row:
    """Where the needles of a case are ranked by words alone."""
    features = split(case.prompt, "sentence")
    gold = _owners(features, case.gold)
    shared = shared_words(case.prompt, features, case.answer)
    return {
        "kind": case.kind,
        "size": case.size,
        "features": len(features),
        "gold": gold.tolist(),
        "words": _places(shared, gold),
        "bm25": _places(bm25_of(case, case.answer, features), gold),
    }


def _row(case: Case, output: str, surrogate: LocalSurrogate, hardware: Hardware, preset: str) -> Row:
    features: Any = case.spans or "sentence"
    options = Options(preset=preset, features=features)  # type: ignore[arg-type]
    made: list[Explanation] = []

    def explain() -> None:
        (e,) = explain_many([Task(case.prompt, output, options)], [surrogate])
        assert isinstance(e, Explanation)
        made.append(e)

    took = hardware.measure(explain)
    (e,) = made
    gold = _owners(e.features, case.gold)
    read = e.config.get("read")
    inside = None if read is None else [int(i) for i in gold if i in set(read["features"])]
    tokens = len(surrogate.token_spans(case.prompt))
    return {
        "kind": case.kind,
        "size": case.size,
        "output": output,
        "features": len(e.features),
        "tokens": tokens,
        "gold": gold.tolist(),
        "places": _places(e.normalized_weights, gold),
        "bm25": _places(bm25_of(case, output, e.features), gold),
        "read": inside,
        "closely": None if read is None else read["tokens"],
        "overlooked": None if read is None else read["overlooked"],
        "scored": e.cost.tokens,
        "masks": e.cost.masks,
        "seconds": round(took.seconds, 3),
        "processor": round(took.processor, 3),
        "memory": took.memory,
    }


def _answered(case: Case, model: LocalSurrogate) -> str:
    """The model's answer to the prompt, of which it is given what fits, the needles among it."""
    from benchmarks.closed.answering import LocalConversation  # which needs the openai SDK

    features = split(case.prompt, "sentence", token_spans=model.token_spans)
    prompt, most = case.prompt, (model.window or 10**9) - 2 * _MOST
    if not model.fits(prompt, "x" * _MOST):
        sizes = model.lengths(prompt, features, "x").features
        gold = _owners(features, case.gold)
        order = np.concatenate([gold, np.setdiff1d(np.arange(len(features)), gold)])
        fits = np.cumsum(sizes[order]) <= min(most, max(_ANSWERED, most // 2))
        prompt, features = reduced(prompt, features, np.sort(order[fits]).tolist())
    spans = [(feature.start, feature.end) for feature in features]
    talk = LocalConversation(model, prompt, spans, most=_MOST)
    return (
        talk.answers(np.ones((1, len(talk.features)), dtype=bool))[0] or "?"
    )  # no answer is not right


def bm25_of(case: Case, output: str, features: Sequence[Feature]) -> Floats:
    """(n,) what the features share with the question and twice the answer."""
    return bm25(f"{case.question} {output} {output}", [feature.text for feature in features])


def _owners(features: Sequence[Feature], gold: Sequence[Span]) -> Ints:
    """The features that hold most of each labelled span."""
    ends = np.array([(f.start, f.end) for f in features])
    shared = [np.minimum(ends[:, 1], end) - np.maximum(ends[:, 0], start) for start, end in gold]
    return np.unique([int(np.argmax(each)) for each in shared])


def _places(weights: Floats, gold: Ints) -> list[int]:
    """Where the labelled features stand in a ranking, from 1; ties by the order of the text."""
    place = np.empty(len(weights), dtype=np.int64)
    place[np.argsort(-weights, kind="stable")] = np.arange(1, len(weights) + 1)
    return [int(place[i]) for i in gold]
