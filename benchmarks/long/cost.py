"""What a prompt takes by ours and by the peers: measured where it fits the window, counted beyond."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.closed.peers import TRACLLM, tracllm
from benchmarks.hardware import Hardware
from benchmarks.long.needles import Case
from benchmarks.long.run import bm25_of, in_turn
from benchmarks.names import CONTEXTCITE, LEAVE_ONE_OUT_EXACT
from benchmarks.store import Row, Store
from ropelime.explain import explain_many
from ropelime.method.samplers import resolve_sampler
from ropelime.options import Options, PresetName
from ropelime.steps import Task
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import Feature, split
from ropelime.typing import Floats, Masks

_PRESETS: tuple[PresetName, ...] = ("evidence", "instant")
Score = Callable[[Masks], Floats]  # (N,) log-probabilities of the answer for (N, n) masks


def run(
    found: Sequence[Case],
    surrogate: LocalSurrogate,
    store: Store,
    *,
    seed: int,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Count, and where it fits measure, what every prompt takes that the store does not hold yet.

    Args:
        found: The prompts.
        surrogate: The model that scores.
        store: Where the rows go.
        seed: Seed of the peers' masks.
        seconds: Stop before the next prompt when these have passed.
        progress: Called with the prompts done and in all.
    """
    hardware = Hardware(surrogate)

    def make(case: Case) -> Row:
        features = split(case.prompt, "sentence", token_spans=surrogate.token_spans)
        lengths = surrogate.lengths(case.prompt, features, case.answer)
        rest = lengths.pinned + lengths.output
        ways: dict[str, Row] = {
            preset: _explained(case, surrogate, hardware, preset) for preset in _PRESETS
        }
        fits = surrogate.fits(case.prompt, case.answer)
        for name, search in _peers(len(features), seed).items():
            score = _Scored(surrogate, case, features) if fits else _Guessed(case, features)
            took = _took(hardware, partial(search, score))
            calls = [np.unique(masks, axis=0) for masks in score.asked]  # no call runs a mask twice
            ran = np.concatenate(calls)
            tokens, passed = (
                int((masks @ lengths.features + rest).sum()) for masks in (np.unique(ran, axis=0), ran)
            )
            ways[name] = {"tokens": tokens}
            if fits:  # our scorer wants the full prompt in every call, which a peer would not pay for
                ways[name] |= {key: round(value * tokens / passed, 2) for key, value in took.items()}
        return {
            "kind": "cost",
            "size": case.size,
            "features": len(features),
            "tokens": int(lengths.features.sum()) + rest,
            "ways": ways,
        }

    in_turn(found, store, make, seconds, progress)


class _Scored:
    """Scores of masks by the model; what was asked for is kept."""

    def __init__(self, surrogate: LocalSurrogate, case: Case, features: tuple[Feature, ...]) -> None:
        self._made = (surrogate, case.prompt, features, case.answer)
        self.asked: list[Masks] = []

    def __call__(self, masks: Masks) -> Floats:
        surrogate, prompt, features, output = self._made  # prepared anew: nothing is remembered
        scorer = surrogate.prepare(prompt, features, output, ablation=Ablation())
        self.asked.append(masks)
        return np.asarray(scorer.score(masks, kl=False).output_logprob)


class _Guessed:
    """What stands for scores where a prompt does not fit: words shared with question and answer."""

    def __init__(self, case: Case, features: tuple[Feature, ...]) -> None:
        self._words = bm25_of(case, case.answer, features)
        self.asked: list[Masks] = []

    def __call__(self, masks: Masks) -> Floats:
        self.asked.append(masks)
        return np.asarray(masks @ self._words)


def _peers(n: int, seed: int) -> Mapping[str, Callable[[Score], object]]:
    """What asks for the scores of masks, by name; the first mask of each call is the full prompt."""
    full = np.ones((1, n), dtype=bool)
    drawn = resolve_sampler("bernoulli:64").sample(n, budget=None, rng=np.random.default_rng(seed))

    def search(score: Score) -> Floats:
        # A scorer wants the full prompt first; it is charged to nobody twice.
        return tracllm(
            lambda masks: score(np.concatenate([full, masks]))[1:], n, np.random.default_rng(seed)
        )

    return {
        CONTEXTCITE: lambda score: score(np.concatenate([full, drawn.masks])),
        LEAVE_ONE_OUT_EXACT: lambda score: score(np.concatenate([full, ~np.eye(n, dtype=bool)])),
        TRACLLM: search,
    }


def _explained(case: Case, surrogate: LocalSurrogate, hardware: Hardware, preset: PresetName) -> Row:
    made: list[Any] = []
    task = Task(case.prompt, case.answer, Options(preset=preset, features="sentence"))
    took = _took(hardware, lambda: made.extend(explain_many([task], [surrogate])))
    return {**took, "tokens": int(made[0].cost.tokens)}


def _took(hardware: Hardware, run: Callable[[], object]) -> Row:
    took = hardware.measure(run)
    return {"seconds": round(took.seconds, 2)}
