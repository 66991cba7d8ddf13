"""One contract for every target, and known values of each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.errors import InputError, ModelError
from ropelime.method import learnt
from ropelime.method.scores import QuestionScores
from ropelime.method.targets import (
    KL,
    NLL,
    TARGETS,
    Evidence,
    Instant,
    Logit,
    Shift,
    SqrtKL,
    dependence,
    resolve_target,
)
from ropelime.typing import Floats
from toy import scoring

MASKS = [[1, 1], [1, 0], [0, 0]]


def log(*rows: list[float]) -> Floats:
    return np.asarray(np.log(rows))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 5), seed=st.integers(0, 999), certain=st.booleans())
def test_contract(name: str, tokens: int, seed: int, certain: bool) -> None:
    rng = np.random.default_rng(seed)
    kl = np.vstack([np.zeros(tokens), rng.exponential(size=(2, tokens)) - 1e-7])
    logprob = np.zeros((3, tokens)) if certain else -rng.exponential(5, size=(3, tokens))
    scores, target = scoring(MASKS, logprob, kl), resolve_target(name)
    scores = replace(scores, alternative=-rng.exponential(5, size=(3, 2)))
    assert target.values(scores).shape == (3,)
    assert target.token_values(scores).shape == (3, tokens)
    assert np.isfinite(target.values(scores)).all()
    assert np.isfinite(target.token_values(scores)).all()
    assert target.values(scores)[0] == 0, "row 0 is the unmasked prompt"
    assert not target.token_values(scores)[0].any()
    assert target.unit


def test_kl_is_the_mean_over_tokens() -> None:
    scores = scoring(MASKS, kl=np.array([[0, 0], [1, 3], [4, -1e-9]]))
    assert KL().values(scores).tolist() == [0, 2, 2]
    assert KL().token_values(scores).tolist() == [[0, 0], [1, 3], [4, 0]]


def test_sqrt_kl_is_its_root() -> None:
    scores = scoring(MASKS, kl=[[0, 0], [1, 7], [18, 0]])
    assert SqrtKL().values(scores).tolist() == [0, 2, 3]


def test_shift_is_the_root_of_the_divergence_and_the_drop_where_it_was_sure() -> None:
    scores = scoring(MASKS, log([0.8, 0.3], [0.4, 0.6], [0.8, 0.3]), kl=[[0, 0], [1, 4], [9, 0]])
    tokens = Shift().token_values(scores)
    assert np.allclose(tokens, np.array([[0.0, 0.0], [1 + math.log(2), 2.0], [3.0, 0.0]]))
    assert np.allclose(Shift().values(scores), tokens @ np.array([1.0, 0.5]) / 1.5)  # .8 + .2, .3 + .2


def test_evidence_is_the_root_mean_square_shift_by_what_the_prompt_does_for_each_token() -> None:
    scores = scoring(MASKS, log([0.8, 0.3], [0.4, 0.6], [0.8, 0.3]), kl=[[0, 0], [1, 4], [9, 0]])
    first = 1 + math.log(2)
    assert np.allclose(Evidence().token_values(scores), np.array([[0.0, 0], [first, 2], [3, 0]]))
    assert np.allclose(dependence(scores), [0.5, 0.5]), "nothing is known about the empty prompt"
    expected = [0, math.sqrt((first**2 + 4) / 2), math.sqrt(9 / 2)]
    assert np.allclose(Evidence().values(scores), expected)
    # The prompt adds 0.9 nats to the first token; it takes some from the second, which counts as 0.
    known = replace(scores, without_features=scores.logprob[0] - [0.9, -1.0])
    assert np.allclose(dependence(known), [10 / 11, 1 / 11])
    expected = [0, math.sqrt((10 * first**2 + 4) / 11), math.sqrt(90 / 11)]
    assert np.allclose(Evidence().values(known), expected)


def test_the_shift_of_the_question_is_its_mean_over_likely_tokens() -> None:
    scores = scoring(MASKS, log([0.8], [0.4], [0.8]), kl=[[0], [1], [9]])
    assert Evidence().question_values(scores) is None, "nothing was asked"
    question = QuestionScores(
        log([0.8, 0.3], [0.4, 0.6], [0.8, 0.3]), np.array([[0.0, 0], [1, 0], [0, 4]])
    )
    both = replace(scores, question=question)
    moved = np.array([[0.0, 0.0], [1 + math.log(2), 0.0], [0.0, 2.0]]) @ np.array([1.0, 0.5]) / 1.5
    found = Evidence().question_values(both)
    assert found is not None
    assert np.allclose(found, moved)
    assert Evidence(1, 1, 0).question_values(both) is None
    assert np.allclose(Evidence().values(both), Evidence().values(scores)), "a signal by itself"


def test_a_mask_that_cut_into_the_question_counts_as_nothing_moved() -> None:
    scores = scoring(MASKS, log([0.8], [0.4], [0.2]), kl=[[0], [1], [4]])
    nan = np.nan
    cut = QuestionScores(np.array([[-1.0], [nan], [-2]]), np.array([[0.0], [nan], [4]]))
    found = Evidence().question_values(replace(scores, question=cut))
    assert found is not None
    assert np.allclose(found, [0, 0, 3])  # root of 4, and a drop of 1


def test_evidence_where_nothing_moved_is_zero() -> None:
    still = scoring(MASKS, log([0.5], [0.5], [0.5]), kl=[[0], [0], [0]])
    still = replace(still, question=QuestionScores(np.full((3, 2), -1.0), np.zeros((3, 2))))
    assert not Evidence().values(still).any()
    assert not Evidence().token_values(still).any()
    asked = Evidence().question_values(still)
    assert asked is not None
    assert not asked.any()


def test_the_weights_of_signals_are_those_that_were_learnt() -> None:
    assert Evidence().signals == dict(learnt.EVIDENCE)
    assert Instant().signals == dict(learnt.INSTANT)
    for counts in (learnt.EVIDENCE, learnt.INSTANT):
        assert min(counts.values()) >= 0
        assert sum(counts.values()) == pytest.approx(1, abs=2e-3), "rounded"


@pytest.mark.parametrize("spec", ["evidence:0:0:0", "instant:0:0"])
def test_some_signal_must_count(spec: str) -> None:
    with pytest.raises(InputError, match=r"needs a signal that counts: .* above 0"):
        resolve_target(spec)


@pytest.mark.parametrize("spec", ["evidence:-1", "evidence:nan", "evidence:1:inf", "evidence:much"])
def test_wrong_parameters_of_evidence(spec: str) -> None:
    with pytest.raises(InputError, match="of evidence must be a number from 0 on"):
        resolve_target(spec)


@pytest.mark.parametrize(
    "given", ["shift:-1", "shift:nan", "shift:inf", "shift:", "shift:x", "shift:none", "shift:true"]
)
def test_wrong_parameters_of_shift(given: str) -> None:
    with pytest.raises(InputError, match="floor of shift must be a number from 0 on"):
        resolve_target(given)


def test_nll_is_the_drop_of_the_log_probability_in_nats() -> None:
    scores = scoring(MASKS, log([0.5, 0.8], [0.25, 0.8], [0.5, 0.1]))
    assert np.allclose(NLL().values(scores), [0, math.log(2), math.log(8)])
    assert np.allclose(NLL().token_values(scores).sum(1), NLL().values(scores))


def test_logit_is_the_log_odds_of_the_whole_output() -> None:
    scores = scoring(MASKS, log([0.5, 0.5], [0.5, 1.0], [0.1, 1.0]))  # odds 1/3, 1, 1/9
    assert np.allclose(Logit().values(scores), [0, math.log(3), -math.log(3)])
    tokens = Logit().token_values(scoring(MASKS, log([0.5], [0.8], [0.2])))  # odds 1, 4, 1/4
    assert np.allclose(tokens[:, 0], [0, math.log(4), -math.log(4)])


@pytest.mark.parametrize("name", TARGETS)
def test_a_worse_reading_has_the_opposite_sign_of_support(name: str) -> None:
    scores = scoring(MASKS, log([0.9], [0.5], [0.1]), kl=np.array([[0], [0.5], [2]]))
    scores = replace(scores, alternative=log([0.2], [0.2], [0.2]))
    target = resolve_target(name)
    assert np.all(np.diff(target.support * target.values(scores)) < 0)


@pytest.mark.parametrize("name", [name for name in TARGETS if resolve_target(name).needs_kl])
def test_a_surrogate_without_divergences_is_told_what_it_can_use(name: str) -> None:
    with pytest.raises(ModelError, match="target='nll' or 'logit'"):
        resolve_target(name).values(scoring(MASKS))


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="Did you mean 'sqrt-kl'"):
        resolve_target("sqrtkl")
