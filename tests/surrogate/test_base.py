"""What a surrogate must have, what it may leave out, and what else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ropelime
from ropelime.errors import InputError
from ropelime.surrogate import (
    Ablation,
    FunctionSurrogate,
    Scorer,
    ScoreRequest,
    Surrogate,
    resolve_surrogate,
)
from ropelime.surrogate.base import OutputScorer, Progress
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import Feature, split
from ropelime.text.prompt import Prompt, from_text
from ropelime.typing import Floats, Ints, Masks
from scoring import prepare

PROMPT = from_text("One is here. Two is there. Three.")
WEIGHTS = {"yes": np.array([1.0, 0.0, 3.0]), "no": np.array([0.0, 2.0, 0.0])}


class Smallest(Surrogate):
    """Only what must be there."""

    name = "smallest"
    only_output = True

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        function = FunctionSurrogate(lambda masks: masks @ WEIGHTS[output] - 5.0)
        return function.prepare(prompt, features, output, ablation=ablation)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def masks() -> Masks:
    return np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0]], dtype=bool)


def test_capabilities_have_defaults() -> None:
    assert (Surrogate.only_output, Surrogate.sees_output) == (False, True)
    assert (Scorer.has_question, Scorer.supports_cached) == (False, False)
    function = FunctionSurrogate(len)
    assert (function.only_output, function.sees_output) == (True, False)


def test_what_must_be_there() -> None:
    class Nothing(Surrogate):
        name = "nothing"

    with pytest.raises(TypeError, match=r"abstract methods? '?describe'?, '?prepare'?"):
        Nothing()  # type: ignore[abstract]
    with pytest.raises(TypeError, match=r"abstract methods? '?cost'?, '?score'?"):
        Scorer()  # type: ignore[abstract]


def test_the_smallest_surrogate_explains() -> None:
    e = ropelime.explain(
        PROMPT.text, "yes", surrogate=Smallest(), preset="faithful", instead_of="no",
        regressor="wls", progress=False,
    )  # fmt: skip
    assert np.allclose(e.weights, WEIGHTS["yes"] - WEIGHTS["no"])
    with pytest.raises(InputError, match=r"smallest has no tokenizer. Use features='word'"):
        ropelime.explain(PROMPT.text, "yes", surrogate=Smallest(), features="token", preset="faithful")


def test_requests_are_scored_one_after_the_other() -> None:
    surrogate, features = Smallest(), split(PROMPT, "sentence")
    scorers = [surrogate.prepare(PROMPT, features, o, ablation=Ablation()) for o in ("yes", "no")]
    requests = [ScoreRequest(scorers[0], masks()), ScoreRequest(scorers[1], masks()[:2])]
    yes, no = surrogate.score_all(requests)
    assert yes.output_logprob.tolist() == [-1.0, -2.0, -4.0]
    assert no.output_logprob.tolist() == [-3.0, -3.0]
    assert surrogate.score_all([]) == []


class Counted(OutputScorer):
    """Reports ten tokens for each scorer."""

    output_spans = ((0, 1),)

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        return np.full(len(masks), 5)

    def logprob(self, masks: Masks, progress: Progress | None = None) -> tuple[Floats, int]:
        assert progress is not None
        for done in (0, 5, 10):
            progress(done, 10)
        return np.zeros((len(masks), 1)), 10


def test_progress_of_requests_is_that_of_all_together() -> None:
    seen: list[tuple[int, int]] = []
    requests = [ScoreRequest(Counted(), masks()[:2]) for _ in range(3)]
    Smallest().score_all(requests, progress=lambda *now: seen.append(now))
    assert seen == [(done, 30) for done in (0, 5, 10, 10, 15, 20, 20, 25, 30)]


def test_only_surrogates_are_surrogates() -> None:
    surrogate = Smallest()
    assert resolve_surrogate(surrogate) is surrogate

    class Alike:
        name = "alike"
        prepare = Smallest.prepare
        describe = Smallest.describe

    with pytest.raises(InputError, match=r"a subclass of ropelime.surrogate.Surrogate, not Alike"):
        resolve_surrogate(Alike())


def test_a_model_scores_only_what_it_has_prepared(tiny: Callable[..., LocalSurrogate]) -> None:
    ours, other = tiny("llama"), tiny("qwen3")
    assert ours.score_all([]) == []
    for surrogate in (other, Smallest()):
        scorer = prepare(surrogate, PROMPT, "sentence", "yes")
        with pytest.raises(InputError, match="scores only what it has prepared"):
            ours.score_all([ScoreRequest(scorer, masks())])
