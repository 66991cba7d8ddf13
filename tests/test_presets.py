"""The presets: what each one answers, what it reads, and what it says about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelime import Explanation, ModelError, explain, load
from ropelime.options import PRESETS
from ropelime.surrogate.local import LocalSurrogate
from toy import COEF, OUTPUT, PROMPT, additive

Make = Callable[..., LocalSurrogate]
CONTEXT = [
    "Paris is the capital of France. It lies on the Seine.",
    "The Louvre is a museum. A picture hangs there.",
]
QUESTION = "Who painted the picture?"
ANSWER = "The painter was Leonardo."


def question(surrogate: Any, **options: Any) -> Explanation:
    """The explanation of an answer to a question about two chunks."""
    return explain(
        context=CONTEXT,
        question=QUESTION,
        output=ANSWER,
        surrogate=surrogate,
        progress=False,
        **options,
    )


def plain(surrogate: Any, **options: Any) -> Explanation:
    """The same without anything between the last feature and the answer."""
    return explain(" ".join(CONTEXT), ANSWER, surrogate=surrogate, progress=False, **options)


def notes(e: Explanation) -> str:
    return " ".join(e.diagnostics.notes)


@pytest.fixture(scope="module")
def llama(tiny: Make) -> LocalSurrogate:
    return tiny("llama")


def test_the_default_is_evidence_and_says_what_it_did(llama: LocalSurrogate) -> None:
    e = question(llama)
    assert (e.config["preset"], e.config["scoring"]) == ("evidence", "cached")
    assert e.config["sampler"] == {"name": "leave-one-out-first"}
    assert (e.config["budget"], e.config["masks"]) == ("auto", {"cached": len(e.features)})
    assert e.config["target"] == {"name": "evidence", "question": 1.0, "floor": 0.2}
    assert "Scoring is cached" in notes(e)
    assert "and, as much, for its effect on the question before it" in notes(e)
    assert e.surrogate_scores.question is not None
    assert e.cost.masks == len(e.features) + 2
    assert np.all(e.weights >= -1e-9), "a shift has no direction"
    assert e.weights.sum() == pytest.approx(2 * len(e.features)), "each shift by its mean"
    assert e.intervals is not None
    assert e.trust is not None
    assert "the first part is evidence" in e.trust.text


def test_without_a_question_evidence_is_the_shift_of_the_answer(llama: LocalSurrogate) -> None:
    ours, shift = plain(llama), plain(llama, target="shift")
    assert ours.surrogate_scores.question is None
    assert "question" not in notes(ours)
    assert np.allclose(ours.normalized_weights, shift.normalized_weights)
    assert ours.weights.sum() == pytest.approx(len(ours.features))


def test_a_question_that_counts_for_nothing_is_not_read(llama: LocalSurrogate) -> None:
    none, shift = question(llama, target="evidence:0"), question(llama, target="shift")
    assert none.surrogate_scores.question is None
    assert "question" not in notes(none)
    assert np.allclose(none.normalized_weights, shift.normalized_weights)
    assert none.cost == shift.cost


def test_the_question_is_added_by_its_weight(llama: LocalSurrogate) -> None:
    none, half, one = (question(llama, target=f"evidence:{share}") for share in (0, 0.5, 1))
    assert np.allclose(half.weights - none.weights, (one.weights - none.weights) / 2)
    assert "and, times 0.5, for its effect on the question" in notes(half)


def test_the_question_shifts_the_same_whatever_the_answer(llama: LocalSurrogate) -> None:
    def moved(answer: str) -> Any:
        options: dict[str, Any] = {"surrogate": llama, "progress": False}
        both, alone = (
            explain(context=CONTEXT, question=QUESTION, output=answer, target=target, **options)
            for target in ("evidence", "evidence:0")
        )
        return both.weights - alone.weights

    assert np.allclose(moved(ANSWER), moved("It lies on the Seine."), atol=1e-3)


def test_a_span_of_the_answer_keeps_the_question(llama: LocalSurrogate, tmp_path: Path) -> None:
    e = question(llama)
    e.save(tmp_path / "why.json")
    again = load(tmp_path / "why.json")
    assert again == e
    assert again.trust == e.trust
    assert again.surrogate_scores.question is not None
    assert e.surrogate_scores.question is not None
    assert np.array_equal(
        again.surrogate_scores.question.kl, e.surrogate_scores.question.kl, equal_nan=True
    )
    assert again.for_output(0, 11) == e.for_output(0, 11)
    assert e.for_output(0, 11).weights.sum() == pytest.approx(2 * len(e.features))


def test_a_model_that_cannot_look_back_is_read_exactly_and_it_is_said(tiny: Make) -> None:
    e = question(tiny("mistral-window"))
    assert e.config["scoring"] == "exact"
    assert e.surrogate_scores.exact.all()
    assert "The surrogate has no cached scoring of this prompt" in notes(e)
    assert "Scoring is cached" not in notes(e)
    with pytest.raises(ModelError, match="Use scoring='exact'"):
        question(tiny("mistral-window"), scoring="cached")


@pytest.mark.parametrize("ablation", ["in-place", "placeholder:..."])
def test_other_removals_are_read_exactly_and_it_is_said(llama: LocalSurrogate, ablation: str) -> None:
    e = question(llama, ablation=ablation)
    assert (e.config["scoring"], e.config["ablation"]) == ("exact", ablation)
    assert e.surrogate_scores.exact.all()
    assert f"With ablation={ablation!r} there is no cached scoring" in notes(e)


def test_readings_that_were_asked_for_win_over_the_preset(llama: LocalSurrogate) -> None:
    exact = question(llama, scoring="exact")
    assert exact.config["scoring"] == "exact"
    assert "cached" not in notes(exact)
    assert question(llama, preset="faithful", scoring="cached").config["scoring"] == "cached"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_explains_and_names_itself(llama: LocalSurrogate, preset: str) -> None:
    e = question(llama, preset=preset)
    assert e.config["preset"] == preset
    assert e.config["scoring"] == PRESETS[preset].scoring
    assert e.normalized_weights.sum() == pytest.approx(1)
    assert e.normalized_intervals is not None
    assert np.isfinite(e.normalized_intervals).all()


def test_faithful_gives_back_the_coefficients_of_a_function() -> None:
    options: dict[str, Any] = {"features": "word", "surrogate": additive(), "progress": False}
    e = explain(PROMPT, OUTPUT, preset="faithful", **options)
    assert np.allclose(e.weights, COEF.sum(1), atol=0.01)
    assert np.allclose(e.token_weights, COEF, atol=0.01)
    assert e.trust is not None
    assert e.trust.value > 0.8
    assert e.diagnostics.warnings == ()
    with pytest.raises(ModelError, match="Use preset='faithful' with it"):
        explain(PROMPT, OUTPUT, **options)


def test_a_function_in_another_preset_is_told_that_it_was_read_exactly() -> None:
    e = explain(PROMPT, OUTPUT, features="word", surrogate=additive(), target="nll", progress=False)
    assert "The surrogate has no cached scoring" in notes(e)
