"""One row for each item: what its explanation measured and said, and what is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import lexical
from benchmarks.believe import attempts
from benchmarks.believe.items import Item
from benchmarks.evaluation import spearman
from benchmarks.store import Row, Store
from ropelime.errors import InputError
from ropelime.explain import Explanation, explain_many
from ropelime.method.attribution import fit
from ropelime.options import Options
from ropelime.results.citations import measure_sentences
from ropelime.results.explanation import fit_span
from ropelime.results.grounding import measure
from ropelime.results.verdicts import inputs
from ropelime.steps import Task
from ropelime.surrogate import Surrogate
from ropelime.text.features import split
from ropelime.text.lexical import bm25, pinned, shared_words, words
from ropelime.text.prompt import Span
from ropelime.typing import Floats

ITEM = "item"


def run(
    items: Sequence[Item],
    surrogate: Surrogate | None,
    store: Store,
    *,
    preset: str,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Explain every item that the store does not hold yet.

    Args:
        items: The items.
        surrogate: The model that explains; None to look at words alone.
        store: Where the rows go.
        preset: The preset.
        progress: Called with the items done and in all.
    """
    for _, item in store.left(items, progress):
        row: Row = {"example": item.id, "method": ITEM, "fit": item.fit, "kind": item.kind}
        try:
            row |= _by_words(item) if surrogate is None else _row(item, surrogate, preset)
        except InputError as error:  # longer than the surrogate's window
            row["skipped"] = str(error)
        store.add(item.id, [row])


def _row(item: Item, surrogate: Surrogate, preset: str) -> Row:
    options = Options(preset=preset, features=item.features)  # type: ignore[arg-type]
    (e,) = explain_many([Task(item.prompt, item.output, options)], [surrogate])
    assert isinstance(e, Explanation)
    first = int(np.argmax(e.normalized_weights))
    row: Row = {
        "features": len(e.features),
        "rests": item.rests,
        "cause": item.cause(first),
        "lds": None,
        "inputs": _inputs(e),
        "verdicts": {v.name: round(v.probability, 5) for v in e.verdicts},
        "covered": _coverage(item.output, e),
    }
    if item.masks is not None and item.lost is not None:
        row["lds"] = spearman(item.masks @ e.weights, item.logprob)
        assert e.intervals is not None
        row["lost"] = np.round(item.lost, 4).tolist()
        row["intervals"] = np.round(e.intervals, 4).tolist()
    if item.labels:
        row["sentences"] = _sentences(item, e)
    if item.sources:
        row["sources"] = [_found(e, span, right) for span, right in item.sources]
    return row


def _inputs(e: Explanation) -> dict[str, float]:
    recipe = e.strategies()
    matching = shared_words(e.prompt, e.features, e.output) if recipe.uses_words else None
    fitted = fit(e.surrogate_scores.fitted(), recipe, words=matching, tokens=False)
    known = (e.output, e.output_sentences, e.output_spans, e.features, e.surrogate_scores)
    found = inputs(fitted, measure(*known, asked=pinned(e.prompt, e.features)))
    return {name: round(value, 5) for name, value in found.items()}


def _sentences(item: Item, e: Explanation) -> list[dict[str, Any]]:
    spans = [span for span, _ in item.labels]
    kept = [i for i, (a, b) in enumerate(spans) if any(s < b and t > a for s, t in e.output_spans)]
    measured = measure_sentences(e, [spans[i] for i in kept])
    return [
        {
            "label": item.labels[i][1],
            "inputs": {name: round(value, 5) for name, value in known.items()},
            "covered": _coverage(item.output[slice(*spans[i])], e),
            "common": _common(item.output[slice(*spans[i])], e),
            "tried": attempts.token_measures(e, spans[i]),
        }
        for i, known in zip(kept, measured.inputs, strict=True)
    ]


def _coverage(text: str, e: Explanation) -> float:
    """The part of the words of a text that the features have: the baseline."""
    known = {word for feature in e.features for word in words(feature.text)}
    own = words(text)
    return round(float(np.mean([word in known for word in own])) if own else 0.0, 5)


def _common(text: str, e: Explanation) -> float:
    """The longest run of its words that a feature has, relative to all of them: another baseline."""
    found = lexical.longest_common(text, [feature.text for feature in e.features])
    return round(float(found.max() / max(len(words(text)), 1)), 5)


def _found(e: Explanation, span: Span, right: Sequence[int]) -> Row:
    """Whether the first source is right, by the explanation of the span, by BM25 and by others."""
    own = fit_span(e, *span, tokens=False)
    baseline = bm25(e.output[slice(*span)], [feature.text for feature in e.features])
    return {
        "ours": int(np.argmax(own.weights)) in right,
        "bm25": int(np.argmax(baseline)) in right,
        "tried": _first(attempts.mixtures(e, own), right),
    }


def _first(rankings: Mapping[str, Floats], right: Sequence[int]) -> dict[str, bool]:
    return {name: int(np.argmax(weights)) in right for name, weights in rankings.items()}


def _by_words(item: Item) -> Row:
    """What words alone tell of an item: no model is asked."""
    features = split(item.prompt, item.features)
    tried = attempts.ByWords(item.prompt, features, item.output)
    row: Row = {"features": len(features)}
    if item.labels:
        row["sentences"] = [
            {"label": label, "tried": tried.measures(span)} for span, label in item.labels
        ]
    if item.sources:
        row["sources"] = []
        for span, right in item.sources:
            rankings = tried.rankings(span)
            best = int(np.argmax(rankings["stems covered"]))
            literal = tried.literal(span, best, right)
            row["sources"].append({"tried": _first(rankings, right), "literal": literal})
    return row
