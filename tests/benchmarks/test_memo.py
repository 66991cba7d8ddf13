"""The memory of the benchmarks: the same scores as the model's, each computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench_toy import example
from benchmarks.memo import Memo, MemoScorer
from benchmarks.method import First
from ropelime.errors import InputError
from ropelime.method.attribution import Recipe
from ropelime.method.samplers import Bernoulli
from ropelime.method.scores import Scores
from ropelime.surrogate import Ablation, FunctionSurrogate, Surrogate
from ropelime.surrogate.base import ScoreRequest
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_text
from ropelime.typing import Masks

EVIDENCE = Recipe.of("evidence", "rope-rwmd", "wls")
NLL = Recipe.of("nll", "uniform", "wls")
PROMPT = "red green blue black white is the flag?"


def ready(memo: Surrogate, output: str = "yes") -> Any:
    spans = example(prompt="red green blue black white").spans
    prompt = from_text(PROMPT)
    features = split(prompt, spans, token_spans=memo.token_spans)
    return memo.prepare(prompt, features, output, ablation=Ablation())


def masks_of(*rows: str) -> Masks:
    return np.array([[c == "1" for c in row] for row in rows])


def check_equal(got: Scores, expected: Scores) -> None:
    np.testing.assert_array_equal(got.masks, expected.masks)
    np.testing.assert_array_equal(got.tokens, expected.tokens)
    np.testing.assert_array_equal(got.exact, expected.exact)
    np.testing.assert_allclose(got.logprob, expected.logprob, atol=1e-5)
    assert got.kl is not None
    assert expected.kl is not None
    np.testing.assert_allclose(got.kl, expected.kl, atol=1e-5)
    assert got.distances.keys() == expected.distances.keys()
    for space, distance in expected.distances.items():
        np.testing.assert_allclose(got.distances[space], distance, atol=1e-4)
    assert got.question is not None
    assert expected.question is not None
    np.testing.assert_allclose(got.question.logprob, expected.question.logprob, atol=1e-5)


@pytest.mark.parametrize("cached", [False, True])
def test_scores_are_those_of_the_model(tiny: Callable[..., LocalSurrogate], cached: bool) -> None:
    surrogate = tiny("llama")
    memo = Memo(surrogate, [EVIDENCE, NLL])
    scorer = ready(memo)
    first, second = masks_of("11111", "01111", "10111"), masks_of("11111", "10111", "00000")
    for masks in (first, second, first):
        (got,) = memo.score_all([ScoreRequest(scorer, masks, cached=cached)])
        spaces = [EVIDENCE.kernel.space] if EVIDENCE.kernel.space else []
        expected = ready(surrogate).score(masks, kl=True, spaces=spaces, cached=cached, question=True)
        check_equal(got, expected)
        assert got.tokens_run == expected.tokens.sum()
        assert got.seconds == pytest.approx(got.tokens_run * scorer.seconds_per_token(cached))


def test_each_mask_is_scored_once() -> None:
    scored: list[bytes] = []

    def function(masks: Masks) -> Any:
        scored.extend(mask.tobytes() for mask in masks if not mask.all())
        return masks.sum(1) - 9.0

    memo = Memo(FunctionSurrogate(function), [NLL])
    scorer = ready(memo)
    requests = [
        ScoreRequest(scorer, masks_of("11111", "01111", "00111")),
        ScoreRequest(scorer, masks_of("11111", "00111", "00011")),
    ]
    for _ in range(2):
        found = memo.score_all(requests)
        assert [s.logprob.sum(1).tolist() for s in found] == [[-4, -5, -6], [-4, -6, -7]]
    np.testing.assert_array_equal(scorer.logprob(masks_of("00001", "01111", "11111")), [-8, -5, -4])
    assert len(scored) == len(set(scored)) == 4


def test_an_example_is_prepared_once() -> None:
    memo = Memo(FunctionSurrogate(lambda masks: masks.sum(1) - 9.0), [NLL])
    one = ready(memo)
    assert isinstance(one, MemoScorer)
    assert ready(memo, "no") is not one
    assert ready(memo) is one


def test_it_describes_itself_as_the_model() -> None:
    inner = FunctionSurrogate(lambda masks: masks.sum(1) - 9.0, name="sum")
    memo = Memo(inner, [NLL])
    assert (memo.name, memo.only_output, memo.sees_output) == ("sum", True, False)
    assert memo.describe() == inner.describe()


def test_divergences_are_not_made_up(tiny: Callable[..., LocalSurrogate]) -> None:
    memo = Memo(tiny("llama"), [EVIDENCE])
    scorer, masks = ready(memo), masks_of("11111", "01111")
    scorer.logprob(masks)
    with pytest.raises(InputError, match="scored without divergences: explain first"):
        memo.score_all([ScoreRequest(scorer, masks, kl=True)])


def test_first_takes_the_masks_that_are_drawn_first() -> None:
    def drawn(sampler: Any) -> Masks:
        return np.asarray(sampler.sample(6, budget=None, rng=np.random.default_rng(3)).masks)

    np.testing.assert_array_equal(drawn(First(Bernoulli(20), 7)), drawn(Bernoulli(20))[:7])
