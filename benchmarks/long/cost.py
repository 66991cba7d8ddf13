"""What a prompt takes by ours and by the peers: measured where it fits the window, counted beyond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.closed.peers import TRACLLM, tracllm
from benchmarks.hardware import Hardware
from benchmarks.long.needles import Case
from benchmarks.long.run import bm25_of
from benchmarks.names import CONTEXTCITE, LEAVE_ONE_OUT_EXACT
from benchmarks.store import Row
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


def measuring(surrogate: LocalSurrogate, seed: int) -> Callable[[Case], Row]:
    """What counts, and where the prompt fits measures, what a case takes.

    Args:
        surrogate: The model that scores.
        seed: Seed of the peers' masks.
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
        words = bm25_of(case, case.answer, features)  # which stand for scores where it does not
        by: Score = partial(_by_model, surrogate, case, features) if fits else partial(_by_words, words)
        for name, search in _peers(len(features), seed).items():
            score = _Recorded(by)
            took = _took(hardware, partial(search, score))
            calls = [np.unique(masks, axis=0) for masks in score.asked]  # no call runs a mask twice
            ran = np.concatenate(calls)
            tokens, passed = (
                int((masks @ lengths.features + rest).sum()) for masks in (np.unique(ran, axis=0), ran)
            )
            ways[name] = {"tokens": tokens}
            if fits:  # what a search asks for again is paid for once, at the same pace
                ways[name] |= {key: round(value * tokens / passed, 2) for key, value in took.items()}
        return {
            "kind": "cost",
            "size": case.size,
            "features": len(features),
            "tokens": int(lengths.features.sum()) + rest,
            "ways": ways,
        }

    return make


class _Recorded:
    """A way to score masks that keeps what it was asked for."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self.asked: list[Masks] = []

    def __call__(self, masks: Masks) -> Floats:
        self.asked.append(masks)
        return self._score(masks)


def _by_model(
    surrogate: LocalSurrogate, case: Case, features: tuple[Feature, ...], masks: Masks
) -> Floats:
    """Scores by the model, which is prepared anew: nothing is remembered."""
    scorer = surrogate.prepare(case.prompt, features, case.answer, ablation=Ablation())
    return np.asarray(scorer.score(masks, kl=False).output_logprob)


def _by_words(words: Floats, masks: Masks) -> Floats:
    """Scores by what the parts share with question and answer."""
    return np.asarray(masks @ words)


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
