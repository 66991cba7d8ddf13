"""Groups of features: what a grid of them tells about each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import byte_level, tiny_model
from ropelime import explain, load
from ropelime.method import schedule
from ropelime.method.attribution import Recipe, fit
from ropelime.method.groups import divided, grid, has_groups
from ropelime.method.scores import Scores
from ropelime.surrogate.local import LocalSurrogate

EVEN = np.ones(30) / 30


@settings(max_examples=80, deadline=None)
@given(n=st.integers(2, 200), count=st.integers(6, 80), seed=st.integers(0, 9))
def test_every_feature_is_removed_and_few_masks_are_needed(n: int, count: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(n)
    masks = grid(order, count)
    assert len(masks) <= max(count, 1)
    assert not masks.all(0).any(), "every feature is removed at least once"
    assert not masks.all(1).any()
    assert has_groups(masks) == (count < n)
    assert len(np.unique(masks, axis=0)) == len(masks)


def test_a_grid_names_a_single_cause_whatever_the_prior() -> None:
    for cause in range(30):
        masks = grid(np.arange(30), 16)
        effect = np.zeros(30)
        effect[cause] = 4.0
        found = divided(masks, ~masks @ effect, EVEN)
        assert int(np.argmax(found)) == cause
        assert found[cause] == pytest.approx(4.0, rel=0.05)


def test_what_was_removed_alone_has_its_own_value() -> None:
    masks = grid(np.arange(30)[::-1], 16)
    effect = np.random.default_rng(0).random(30)
    found = divided(masks, ~masks @ effect, EVEN)
    alone = [int(np.flatnonzero(~mask)[0]) for mask in masks if (~mask).sum() == 1]
    assert alone
    np.testing.assert_allclose(found[alone], effect[alone])


def test_additive_effects_that_are_the_prior_come_back() -> None:
    effect = np.random.default_rng(1).dirichlet(np.ones(30))
    masks = grid(np.arange(30), 16)
    both = np.column_stack([~masks @ effect, ~masks @ (2 * effect)])
    np.testing.assert_allclose(divided(masks, both, effect)[:, 0], effect, atol=0.02)
    np.testing.assert_allclose(divided(masks, both, effect)[:, 1], 2 * effect, atol=0.04)


def test_nothing_is_known_of_what_was_never_removed() -> None:
    masks = ~np.eye(4, dtype=bool)[:2]
    np.testing.assert_allclose(divided(masks, np.array([1.0, 2.0]), np.ones(4) / 4), [1, 2, 0, 0])


@pytest.fixture
def long_answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The keyword arguments of an explanation that is made of groups."""
    monkeypatch.setattr(schedule, "_IN_FULL", 100)
    monkeypatch.setattr(schedule, "_IN_FULL_TIMES", 0.5)
    monkeypatch.setattr(schedule, "_GROUPED_TIMES", 1.0)
    model = tiny_model("llama", max_position_embeddings=4096).model
    context = [f"The {word} stands near the river. It is old." for word in "abcdefghijklmnopqrst"]
    return {
        "context": context,
        "question": "Which one?",
        "output": "It is the one that stands near the river. " * 2,
        "surrogate": LocalSurrogate(model, byte_level("chatml"), name="tiny"),
        "progress": False,
    }


def test_a_long_answer_costs_a_few_forward_passes(long_answer: Any, tmp_path: Any) -> None:
    e = explain(**long_answer)
    full = explain(**long_answer, sampler="leave-one-out")
    assert "in groups" in " ".join(e.diagnostics.notes)
    assert e.diagnostics.masks_scored < len(e.features) == full.diagnostics.masks_scored
    assert e.cost.tokens < full.cost.tokens
    assert e.weights.sum() == pytest.approx(1)
    assert not any("underdetermined" in warning for warning in e.diagnostics.warnings)
    e.save(tmp_path / "e.json")
    again = load(tmp_path / "e.json")
    first = e.for_output(0, 20)
    assert first == again.for_output(0, 20)
    assert first.weights.sum() == pytest.approx(1)
    assert e.cite().sentences
    more = e.extend(60, surrogate=long_answer["surrogate"])
    assert more.diagnostics.masks_scored > e.diagnostics.masks_scored


def test_a_given_sampler_or_budget_is_never_grouped(long_answer: Any) -> None:
    for given_one in ({"budget": 12}, {"sampler": "leave-one-out-first"}, {"scoring": "exact"}):
        e = explain(**{**long_answer, **given_one})
        assert "in groups" not in " ".join(e.diagnostics.notes)


@pytest.mark.parametrize("target", ["nll", "kl", "shift"])
def test_attention_that_another_target_needed_changes_no_fit(target: str) -> None:
    rng = np.random.default_rng(0)
    masks = np.concatenate([np.ones((1, 5), dtype=bool), rng.random((40, 5)) < 0.5])
    logprob = -(~masks @ np.arange(1.0, 6.0))[:, None]
    known: dict[str, Any] = {"tokens": np.ones(41, dtype=np.int64), "tokens_run": 0, "seconds": 0.0}
    scores = Scores(
        masks=masks, logprob=logprob, kl=-logprob, exact=np.ones(41, dtype=bool), distances={}, **known
    )
    recipe = Recipe.of(target, "uniform", "wls")
    alone = fit(scores, recipe)
    beside = fit(replace(scores, attention=np.full((1, 5), 0.2)), recipe)
    assert np.array_equal(beside.weights, alone.weights)
    assert not beside.grouped
