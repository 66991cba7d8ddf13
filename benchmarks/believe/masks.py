"""Whether the intervals of fitted weights hold the weights that many more masks give.

A preset that fits weights to masks is run as anybody would run it. Then the same prompt is scored
exactly under many more masks, all of them where there are few parts, and fitted once more. A row keeps
the scores of the preset and not its intervals: the page fits them again, so that it shows today's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.hotpot import entries_of
from benchmarks.store import Row, Store
from ropelime.errors import InputError
from ropelime.explain import Explanation, explain_many
from ropelime.method.attribution import Attribution, Recipe, fit
from ropelime.method.samplers import Exhaustive, resolve_sampler
from ropelime.method.scores import Scores
from ropelime.options import PRESETS, Granularity, Options, PresetName
from ropelime.steps import Task
from ropelime.surrogate import Ablation, Surrogate
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, from_context
from ropelime.text.segmentation import sentences
from ropelime.typing import Floats, Masks

FITTED: tuple[PresetName, ...] = ("faithful", "paper")  # presets whose weights are fitted to masks
_UNSEEN = 700  # HotpotQA's examples before this one were learnt from, or judge something else
_SET_BY = 170  # prompts were seen before widths were set; the others judge them
_ALL = 8  # parts: so few are scored under every mask
# Which text of an example is shown, what is a part of it, and how many parts it may have. Prompts are
# short, because each is scored under hundreds of masks.
Shape = tuple[str, Granularity, int, int]
_FEW: Shape = ("paragraph", "sentence", 2, 8)
_SOME: Shape = ("line", "word", 11, 20)
_MANY: Shape = ("paragraph", "word", 41, 90)
_BOTH: Shape = ("both", "sentence", 4, 16)
_SHORT: Shape = ("shortest", "word", 4, 10)
_EIGHT = (_FEW, _SOME, _FEW, _FEW, _SOME, _FEW, _FEW, _SOME)
_SHAPES = (*_EIGHT * 5, _MANY, _MANY)
_JUDGING = (*(_FEW, _BOTH, _SOME, _SHORT) * 10, _MANY)  # more of those with four to ten parts


@dataclass(frozen=True)
class Masked:
    """A prompt whose weights are fitted twice.

    Attributes:
        id: Its name.
        prompt: The prompt.
        features: How it is cut.
        output: The answer.
        fit: Whether the width of intervals is set by it; otherwise it judges them.
    """

    id: str
    prompt: Prompt
    features: Granularity
    output: str
    fit: bool


def prompts(path: Path) -> Iterator[Masked]:
    """Prompts of 2 to 200 parts with the reference answers."""
    number = 0
    for entry in list(entries_of(path))[_UNSEEN:]:
        shapes = _SHAPES if number < _SET_BY else _JUDGING
        shown, features, least, most = shapes[number % len(shapes)]
        titles = {title for title, _ in entry["supporting_facts"]}
        gold = ["".join(text).strip() for title, text in entry["context"] if title in titles]
        shortest = min(gold, key=len)
        lines = [text[first:last] for text in (shortest, *gold) for first, last in sentences(text)]
        context = {
            "both": gold,
            "paragraph": [shortest],
            "line": lines[:1],
            "shortest": [min(lines, key=len)],
        }[shown]
        prompt = from_context(context, entry["question"])
        try:
            count = len(split(prompt, features))
        except InputError:  # a single part
            continue
        if least <= count <= most:
            fitted = number < _SET_BY
            number += 1
            yield Masked(f"masks-{entry['_id']}", prompt, features, entry["answer"], fitted)


def run(
    items: Sequence[Masked],
    surrogate: Surrogate,
    store: Store,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Fit every prompt that the store does not hold yet, by every preset."""
    for number, item in enumerate(items):
        if progress:
            progress(number, len(items))
        if item.id not in store.done:
            store.add(item.id, [_row(item, preset, surrogate) for preset in FITTED])
    if progress:
        progress(len(items), len(items))


def _row(item: Masked, preset: PresetName, surrogate: Surrogate) -> Row:
    options = Options(preset=preset, features=item.features)
    (e,) = explain_many([Task(item.prompt, item.output, options)], [surrogate])
    assert isinstance(e, Explanation)
    aim = reference(e, preset, surrogate)
    return {
        "example": item.id, "method": preset, "fit": item.fit, "kind": item.features,
        "features": len(e.features), **_packed(e.surrogate_scores.fitted(), options.recipe),
        "aim": np.round(aim.weights, 5).tolist(),
        "aim_half": np.round(aim.half_width, 5).tolist(),
    }  # fmt: skip


def reference(e: Explanation, preset: PresetName, surrogate: Surrogate) -> Attribution:
    """The weights that exact scores of many masks give, of all masks where there are few parts."""
    n, own = len(e.features), PRESETS[preset]
    recipe = Recipe.of(own.target, own.kernel, "wls")
    scorer = surrogate.prepare(e.prompt, e.features, e.output, ablation=Ablation())
    space = recipe.kernel.space
    scores = scorer.score(
        np.concatenate([np.ones((1, n), dtype=bool), _reference_masks(preset, n)]),
        kl=recipe.target.needs_kl,
        spaces=() if space is None else (space,),
    )
    found = fit(scores, recipe, tokens=False)
    return replace(found, half_width=np.zeros(n)) if n <= _ALL else found


def reference_half(row: Row) -> Floats:
    """(n,) half the width of the reference's own intervals.

    A sampler draws masks of some sizes only. The fewer of them the reference has left out, the less its
    weights depend on which it drew: they are those of a sample without replacement.
    """
    n = row["features"]
    masks = np.unique(_reference_masks(row["method"], n), axis=0)
    sizes = np.unique(masks.sum(1)).tolist()
    drawn = len(masks) / sum(math.comb(n, size) for size in sizes)
    return np.array(row["aim_half"]) * math.sqrt(1.0 - drawn)


def _reference_masks(preset: PresetName, n: int) -> Masks:
    """(N, n) masks beside the full prompt."""
    sampler = Exhaustive() if n <= _ALL else resolve_sampler(PRESETS[preset].exact_sampler)
    budget = None if n <= _ALL else max(120, 4 * n)
    return sampler.sample(n, budget=budget, rng=np.random.default_rng([17, n])).masks


def _packed(scores: Scores, recipe: Recipe) -> dict[str, Any]:
    """Scores as the target reads them."""
    space = recipe.kernel.space
    return {
        "masks": [np.packbits(mask).tobytes().hex() for mask in scores.masks],
        "exact": np.packbits(scores.exact).tobytes().hex(),
        "values": np.round(recipe.target.values(scores), 5).tolist(),
        "distances": None if space is None else np.round(scores.distances[space], 5).tolist(),
    }


def unpacked(row: Row) -> Attribution:
    """The preset's own fit of a row, with today's intervals."""
    preset, n, count = PRESETS[row["method"]], row["features"], len(row["masks"])
    recipe = Recipe.of(preset.target, preset.kernel, preset.regressor)
    masks = np.array([_bits(mask, n) for mask in row["masks"]])
    values: Floats = np.array(row["values"])[:, None]
    space = recipe.kernel.space
    scores = Scores(
        masks=masks, logprob=-values, kl=values, tokens=np.ones(count, dtype=np.int64), tokens_run=0,
        seconds=0.0, exact=_bits(row["exact"], count),
        distances={} if space is None else {space: np.array(row["distances"], dtype=float)},
    )  # fmt: skip
    return fit(scores, recipe, tokens=False)


def _bits(packed: str, count: int) -> Any:
    return np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8), count=count).astype(bool)
