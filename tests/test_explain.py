"""The whole method on a surrogate whose coefficients are known, and every input that is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime import InputError, ModelError, RopeLimeError, explain
from ropelime.typing import Floats, Masks
from toy import COEF, OUTPUT, PROMPT, additive, toy

SAMPLERS = [
    "leave-one-out",
    "one-at-a-time",
    "exhaustive",
    "bernoulli:24",
    "shapley:24",
    "mixed",
    "mixed:leave-one-out+sparse-k/2/M/kept/8",
]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kernel", ["uniform", "hamming", "cosine:1"])
def test_an_additive_surrogate_gives_back_its_coefficients(sampler: str, kernel: str) -> None:
    e = toy(sampler=sampler, kernel=kernel)
    assert np.allclose(e.weights, COEF.sum(1), atol=1e-9)
    assert np.allclose(e.token_weights, COEF, atol=1e-9)
    assert e.diagnostics.r2 == pytest.approx(1)


@settings(max_examples=25, deadline=None)
@given(
    coef=st.lists(st.floats(-5, 5), min_size=2, max_size=9),
    sampler=st.sampled_from(["leave-one-out", "exhaustive", "one-at-a-time"]),
    seed=st.integers(0, 99),
)
def test_whatever_they_are(coef: list[float], sampler: str, seed: int) -> None:
    prompt = " ".join(f"w{i}" for i in range(len(coef)))
    e = toy(prompt, surrogate=additive(coef, -50), sampler=sampler, seed=seed)
    assert np.allclose(e.weights, coef, atol=1e-7)
    assert np.all(e.normalized_weights >= 0)
    assert e.normalized_weights.sum() == pytest.approx(1)
    assert np.allclose(e.token_weights.sum(1), e.weights, atol=1e-7)


def test_positive_supports_and_negative_opposes() -> None:
    for target in ("nll", "logit"):
        e = toy(surrogate=additive([3.0, -2.0, 0, 0, 0], -8), target=target, sampler="exhaustive")
        assert e.weights[0] > 0.5
        assert e.weights[1] < -0.5
        assert [share.index for share in e.top(2)] == [0, 1], "ranked by size and not by sign"


def test_an_answer_that_depends_on_nothing_says_so() -> None:
    e = toy(surrogate=additive(np.zeros((5, 3))))
    assert e.normalized_weights.tolist() == [0.2] * 5
    assert any("hardly depends on these features" in warning for warning in e.diagnostics.warnings)
    assert any("Every weight is zero" in warning for warning in e.diagnostics.warnings)


def test_diagnostics_and_cost() -> None:
    e = toy(sampler="bernoulli:9", seed=3)
    assert e.diagnostics.logprob_full == pytest.approx(-3 + COEF.sum() / 3)
    assert e.diagnostics.logprob_empty == pytest.approx(-3)
    assert e.diagnostics.effective_samples == pytest.approx(10)
    assert (e.diagnostics.masks_requested, e.diagnostics.masks_scored) == (9, 9)
    assert e.cost.masks == 11, "the masks, the full prompt and the empty one"
    assert e.cost.seconds is not None


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"surrogate": additive(base=-20)}, "very unlikely even with the whole prompt"),
        ({"surrogate": additive(-COEF, -1)}, "no less likely without any feature"),
        ({"sampler": "bernoulli", "budget": 3}, "4 scores for 5 features"),
        ({"sampler": "exhaustive", "kernel": "cosine:0.01"}, "about 1.0 of 32 scores count"),
        ({"sampler": "exhaustive", "surrogate": lambda z: z.sum(1) % 2 - 3.0}, "accounts for only"),
    ],
)
def test_warnings(options: dict[str, Any], warning: str) -> None:
    assert any(warning in line for line in toy(**options).diagnostics.warnings)


def test_a_good_explanation_has_no_warnings() -> None:
    found = toy(sampler="exhaustive").diagnostics
    assert (found.notes, found.warnings) == ((), ())


def test_a_fit_without_slack_says_that_r2_means_nothing() -> None:
    (note,) = toy(sampler="leave-one-out").diagnostics.notes
    assert "as many scores as unknowns" in note


def test_a_budget_over_mixed_masks_reaches_every_part() -> None:
    words = " ".join(f"w{i}" for i in range(40))
    e = toy(words, surrogate=lambda z: z[:, 35] - 3.0, sampler="mixed", budget=30)
    assert e.surrogate_scores.masks[2:].any(0).all(), "every feature is kept somewhere"
    assert not e.surrogate_scores.masks[2:].all(0).any(), "and removed somewhere"


def test_a_function_refuses_what_it_cannot_give_before_it_is_called() -> None:
    with pytest.raises(ModelError, match=r"target='nll'.*kernel='uniform'"):
        toy(target=None, kernel=None)


def test_features_know_their_message() -> None:
    messages = [
        {"role": "system", "content": ""},
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": "Two."},
    ]
    e = toy(None, messages=messages, features="message", surrogate=lambda z: z.sum(1) - 3.0)
    assert [feature.part for feature in e.features] == [1, 2]


def test_what_was_done_differently_is_noted() -> None:
    (note,) = toy(sampler="leave-one-out", budget=3).diagnostics.notes
    assert "the budget allowed 3" in note


def test_the_same_seed_gives_the_same_bytes() -> None:
    def json(seed: int) -> str:
        return toy(sampler="bernoulli:12", seed=seed).to_json()

    assert json(7) == json(7)
    assert json(7) != json(8)


def test_config_says_what_was_chosen() -> None:
    config = toy(
        sampler="sparse-k:2:M", kernel="cosine", regressor="ridge:0.1", budget=6, seed=5
    ).config
    assert config["sampler"] == {"name": "sparse-k", "k": 2, "c": "M", "active": "kept", "masks": None}
    assert config["kernel"] == {"name": "cosine", "width": 0.25}
    assert config["regressor"] == {"name": "ridge", "alpha": 0.1}
    assert config["target"] == {"name": "nll"}
    assert (config["unit"], config["budget"], config["seed"]) == ("nats", "6 masks", 5)


def test_context_and_messages() -> None:
    options: dict[str, Any] = {"sampler": "leave-one-out", "target": "nll", "kernel": "uniform"}
    surrogate = additive([1.0, 2.0])
    e = explain(
        context=["One.", "Two."], question="Q?", output="A", features="document", surrogate=surrogate,
        **options,
    )  # fmt: skip
    assert [f.text for f in e.features] == ["One.", "Two."]
    assert np.allclose(e.weights, [1, 2])
    chat = [{"role": "user", "content": "Hi."}, {"role": "user", "content": "Why?"}]
    e = explain(messages=chat, output="A", features="message", surrogate=surrogate, **options)
    assert [f.text for f in e.features] == ["Hi.", "Why?"]
    assert np.allclose(e.weights, [1, 2])


def test_spans() -> None:
    e = toy(features=[(0, 3), (10, 14)], surrogate=additive([1.0, 2.0]))
    assert [f.text for f in e.features] == ["red", "blue"]
    assert np.allclose(e.weights, [1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"output": " "}, "output is empty"),
        ({"output": None}, "output must be a string"),
        ({"prompt": "a\0b c"}, "prompt has a NUL"),
        ({"output": "a\ud800"}, "output has a lone surrogate"),
        ({"prompt": "word"}, "1 feature and"),
        ({"features": []}, "0 features"),
        ({"features": [(0, 4), (3, 6)]}, "overlaps"),
        ({"features": [(0, 4), (5, 600)]}, "does not lie in the prompt"),
        ({"features": "wrod"}, "Did you mean 'word'"),
        ({"budget": 0}, "budget must be at least 1, not 0"),
        ({"budget": 2.5}, "budget must be 'auto', a number of masks"),
        ({"budget": True}, "budget must be 'auto', a number of masks"),
        ({"budget": "much"}, "budget must be 'auto'"),
        ({"budget": "3 tokens"}, "A budget of 3 tokens is too small"),
        ({"seed": -1}, "seed must be a whole number that is not negative"),
        ({"seed": "one"}, "seed must be a whole number"),
        ({"preset": "papper"}, "Unknown preset 'papper'. Did you mean 'paper'"),
        ({"sampler": "leave-one"}, "Did you mean 'leave-one-out'"),
        ({"sampler": ""}, "Unknown sampler ''"),
        ({"target": "nil"}, "Did you mean 'nll'"),
        ({"kernel": "uniformm"}, "Did you mean 'uniform'"),
        ({"regressor": "laso"}, "Did you mean 'lasso'"),
        ({"ablation": "blank"}, "Unknown ablation 'blank'. Known: delete, in-place, placeholder"),
        ({"ablation": 3}, "ablation must be a name"),
        ({"progress": "maybe"}, "progress must be 'auto', True, False or a function"),
        ({"surrogate": 5}, "surrogate must be a name, a path, an address, a function of masks"),
        ({"surrogate": "smollm3"}, "Did you mean 'smollm2'"),
        (
            {"context": ["a", "b"]},
            "exactly one of prompt, context and messages; got prompt and context",
        ),
        ({"prompt": None}, "got none of them"),
        ({"question": "Why?"}, r"question goes with context=\[...\]"),
        ({"prompt": None, "context": "One."}, r"one for each chunk. Of one text: context=\[text\]"),
        ({"output": "ab"}, "3 log-probabilities for an output of 2 characters"),
        ({"regressor": "lasso-cv"}, "at least 10 scored masks, not 6"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        toy(**options)


def broken(value: float) -> Any:
    return lambda masks: np.where(masks.all(1), -1.0, value)


@pytest.mark.parametrize(
    ("surrogate", "message"),
    [
        (broken(np.nan), "NaN or infinite"),
        (broken(-np.inf), "NaN or infinite"),
        (lambda masks: np.zeros(3), r"1 masks and gave back an array of shape \(3, 1\)"),
        (lambda masks: np.zeros((len(masks), 0)), r"shape \(1, 0\)"),
        (lambda masks: np.zeros((len(masks), 1, 1)), r"\(N,\) or \(N, T\) is needed"),
    ],
)
def test_a_surrogate_that_cannot_be_trusted(surrogate: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        toy(surrogate=surrogate)


@pytest.mark.parametrize("options", [{"target": "kl"}, {"kernel": "rope-rwmd"}])
def test_a_function_has_no_divergence_and_no_rotary_space(options: dict[str, str]) -> None:
    with pytest.raises(ModelError, match=r"preset='faithful' with it, or target='nll'"):
        toy(**options)


def test_bad_input_is_told_before_the_surrogate_is_asked() -> None:
    def never(masks: Masks) -> Floats:
        raise AssertionError("asked")

    for options in ({"budget": 0}, {"sampler": "nonsense"}, {"output": ""}, {"regressor": "ols"}):
        with pytest.raises(RopeLimeError):
            toy(surrogate=never, **options)


def test_an_interrupt_and_an_error_of_the_surrogate_come_through() -> None:
    for error in (KeyboardInterrupt, ZeroDivisionError):

        def fail(masks: Masks, error: type[BaseException] = error) -> Floats:
            raise error

        with pytest.raises(error):
            toy(surrogate=fail)


def test_progress_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    toy(progress="auto")
    assert capsys.readouterr() == ("", "")


def test_one_line_call() -> None:
    e = explain(PROMPT, OUTPUT, features="word", surrogate=additive(), target="nll", kernel="hamming")
    assert e.top(1)[0].text == "red "
