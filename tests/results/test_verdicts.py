"""Verdicts: known values, what moves each, what lowers them, and their summary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.method.attribution import Attribution
from ropelime.method.learnt import chance
from ropelime.results.grounding import Measures
from ropelime.results.verdicts import VERDICTS, WARNED, Name, Trust, inputs, judge
from ropelime.typing import Floats, Masks
from toy import additive, scoring, toy

N = 40
SINGLE = np.vstack([np.ones((1, N), bool), ~np.eye(N, dtype=bool)])


def measures(gain: float = 2.0, explained: float = 0.8, covered: float = 0.9) -> Measures:
    """Two sentences, of three tokens and one; the second owes nothing to the prompt."""
    return Measures(
        *(np.array(v, dtype=float) for v in ([3, 1], [gain, 0], [explained, 0], [covered, 0]))
    )


def fitted(share: float, *, from_masks: bool = True) -> Attribution:
    """A fit in which the first feature has a share, and the others the rest in equal parts."""
    weights = np.array([share, *[(1 - share) / (N - 1)] * (N - 1)])
    return Attribution(
        weights, weights, weights[:, None], 1.0, 4.0, np.zeros(N), 0.5, from_masks=from_masks
    )


def said(masks: np.ndarray = SINGLE) -> Floats:
    return np.asarray(-1.0 - 0.5 * ~masks[:, :1])


def trust(share: float = 0.6, measured: Measures | None = None, warned: Name | None = None) -> Trust:
    about = {} if warned is None else {warned: "a warning"}
    return judge(scoring(SINGLE, said()), fitted(share), measured or measures(), about)


def test_known_values() -> None:
    known = inputs(fitted(0.6), measures())
    assert known == {
        "gain": pytest.approx(np.log1p(1.5)),
        "gain_most": pytest.approx(np.log1p(2.0)),
        "gain_sum": pytest.approx(np.log1p(6.0)),
        "covered_most": 0.9,
        "first": pytest.approx(np.log(0.6)),
    }
    found = {verdict.name: verdict.probability for verdict in trust().verdicts}
    assert tuple(found) == VERDICTS
    assert found["rests"] == pytest.approx(chance("rests", known))
    assert found["understood"] == pytest.approx(chance("understood", known))
    measured = {"explained": 0.8, "covered": 0.9, "answer_explained": 0.6, "answer_covered": 0.675}
    grounded = chance("grounded", {**measured, "foreign": 0.0})
    assert found["cause"] == pytest.approx(grounded * chance("cause", known))


def test_trust_is_the_least_of_them() -> None:
    found = trust()
    least = min(found.verdicts, key=lambda verdict: verdict.probability)
    assert (found.value, found.text) == (least.probability, least.text)


def test_a_clear_case_and_a_hopeless_one() -> None:
    clear, hopeless = trust(0.8), trust(0.8, measures(0.0, 0.0, 0.0))
    assert clear.value > 0.7
    assert hopeless.value < 0.05
    assert "very likely be different" in clear.verdicts[0].text
    assert "No sign was found" in hopeless.verdicts[0].text
    assert hopeless.text == hopeless.verdicts[0].text, "the reason of all the others"


def test_a_cause_of_an_answer_that_may_be_given_without_the_prompt() -> None:
    by_heart = measures(0.05, 0.9, 1.0)  # all of it stands in the prompt, and would be said without it
    rests, cause, _ = trust(0.9, by_heart).verdicts
    assert rests.probability < 0.4 < 0.6 <= cause.probability
    assert cause.text.startswith("What the prompt adds to the answer")
    assert trust(0.9).verdicts[1].text.startswith("The first part is")


@pytest.mark.parametrize("name", VERDICTS)
def test_a_warning_lowers_its_verdict(name: Name) -> None:
    before, after = trust(0.9), trust(0.9, warned=name)
    for old, new in zip(before.verdicts, after.verdicts, strict=True):
        expected = min(old.probability, WARNED) if old.name == name else old.probability
        assert new.probability == expected


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.floats(0.03, 1.0), min_size=2, max_size=2),
    gains=st.lists(st.floats(0, 20), min_size=2, max_size=2),
    covered=st.lists(st.floats(0, 1), min_size=2, max_size=2),
)
def test_chances_rise_with_what_they_are_made_of(
    shares: list[float], gains: list[float], covered: list[float]
) -> None:
    (low, high), (less, more), (few, many) = sorted(shares), sorted(gains), sorted(covered)
    weak, strong = trust(low, measures(less, 0.5, few)), trust(high, measures(more, 0.5, many))
    assert 0 <= weak.value <= strong.value <= 1


def test_parts_that_were_never_removed() -> None:
    some = SINGLE[:10]
    found = judge(scoring(some, said(some)), fitted(0.9), measures(), {})
    assert found.value <= 0.1
    assert found.text == "31 of 40 parts were never removed: the ranking is a guess about them."


def test_ablations_that_move_nothing() -> None:
    found = judge(scoring(SINGLE, np.full((N + 1, 1), -1.0)), fitted(0.9), measures(), {})
    assert found.text == "No ablation moved the answer: the ranking means nothing."
    still = judge(scoring(SINGLE[:1], said()[:1]), fitted(0.9, from_masks=False), measures(), {})
    assert still.value > 0.5, "no ablation was needed"


def test_an_answer_that_depends_on_nothing_is_not_trusted() -> None:
    nothing = toy(surrogate=additive(np.zeros(5))).trust
    something = toy(surrogate=additive([3.0, 0, 0, 0, 0])).trust
    assert nothing is not None
    assert something is not None
    assert nothing.value <= 0.1 < something.value


def test_warnings_of_an_explanation_lower_its_verdicts() -> None:
    words = " ".join(f"w{i}" for i in range(80))
    e = toy(
        words, surrogate=additive(np.eye(80)[0] * 9, -20), sampler="hadamard", regressor="bayes-ridge"
    )
    assert any("leave the fit underdetermined" in warning for warning in e.diagnostics.warnings)
    assert {v.name: v.probability <= WARNED for v in e.verdicts}["cause"]


@settings(max_examples=60, deadline=None)
@given(
    coef=st.lists(st.floats(-6, 6), min_size=2, max_size=7),
    together=st.floats(-6, 6),
    sampler=st.sampled_from(["leave-one-out", "hadamard:6", "hadamard", "sparse-k-best", "exhaustive"]),
    regressor=st.sampled_from(["wls", "bayes-ridge"]),
)
def test_no_interval_from_nothing_to_everything_beside_a_high_trust(
    coef: list[float], together: float, sampler: str, regressor: str
) -> None:
    def score(masks: Masks) -> Floats:
        return np.asarray(masks @ np.array(coef) + together * masks[:, 0] * masks[:, 1] - 20)[:, None]

    text = " ".join(f"w{i}" for i in range(len(coef)))
    e = toy(text, "w0", surrogate=score, sampler=sampler, regressor=regressor)
    assert e.trust is not None
    assert e.normalized_intervals is not None
    low, high = e.normalized_intervals.T
    if ((low <= 0) & (high >= 1)).any():
        assert e.trust.value <= WARNED


def test_an_interval_that_leaves_everything_open_lowers_the_first_part() -> None:
    known = replace(fitted(0.6), half_width=np.full(N, 0.1))
    unknown = replace(known, half_width=np.full(N, 2.0))
    sure, unsure = (judge(scoring(SINGLE, said()), each, measures(), {}) for each in (known, unknown))
    assert sure.verdicts[1].probability > WARNED
    assert unsure.verdicts[1].probability == WARNED
    assert unsure.verdicts[::2] == sure.verdicts[::2]
