"""The presets: what each one answers, what it reads, and what it says about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ropelime import Explanation, InputError, ModelError, explain, load
from ropelime.explain import explain_many
from ropelime.method.learnt import EVIDENCE, INSTANT
from ropelime.options import PRESETS, Options, PresetName
from ropelime.results.serialization import from_dict
from ropelime.steps import Task
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.prompt import from_context
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
    e: Explanation = explain(
        context=CONTEXT,
        question=QUESTION,
        output=ANSWER,
        surrogate=surrogate,
        progress=False,
        **options,
    )
    return e


def plain(surrogate: Any, **options: Any) -> Explanation:
    """The same without anything between the last feature and the answer."""
    e: Explanation = explain(" ".join(CONTEXT), ANSWER, surrogate=surrogate, progress=False, **options)
    return e


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
    assert e.config["target"] == {"name": "evidence", **EVIDENCE}
    assert "Scoring is cached" in notes(e)
    assert e.surrogate_scores.question is not None
    assert e.cost.masks == len(e.features) + 2
    assert np.all(e.weights >= 0)
    assert e.weights.sum() == pytest.approx(1)
    assert np.allclose(e.weights, e.normalized_weights)
    assert list(e.signals) == ["shift", "words", "question"]
    assert np.allclose(e.weights, sum(EVIDENCE[name] * e.signals[name] for name in EVIDENCE))
    assert e.config["unit"] == "share of the prompt's effect on the answer"
    assert e.intervals is not None
    assert e.trust is not None
    assert [verdict.name for verdict in e.verdicts] == ["rests", "cause", "understood"]


def test_without_a_question_evidence_is_the_shift_and_the_words(llama: LocalSurrogate) -> None:
    e = plain(llama)
    assert e.surrogate_scores.question is None
    assert list(e.signals) == ["shift", "words"]
    both = EVIDENCE["shift"] * e.signals["shift"] + EVIDENCE["words"] * e.signals["words"]
    assert np.allclose(e.weights, both / (EVIDENCE["shift"] + EVIDENCE["words"]))
    assert np.all((e.signals["words"] > 0) == [True, True, True, False]), "they have 'the'"


def test_a_question_that_counts_for_nothing_is_not_read(llama: LocalSurrogate) -> None:
    none, shift = question(llama, target="evidence:1:0:0"), question(llama, target="shift")
    assert none.surrogate_scores.question is None
    assert list(none.signals) == ["shift"]
    assert np.array_equal(none.weights, none.signals["shift"])
    assert np.array_equal(np.argsort(none.weights), np.argsort(none.signals["shift"]))
    assert none.cost == shift.cost


def test_the_question_is_mixed_in_by_its_weight(llama: LocalSurrogate) -> None:
    none, half, one = (question(llama, target=f"evidence:1:0:{count}") for count in (0, 0.5, 1))
    asked = one.signals["question"]
    assert np.allclose(half.weights, (none.weights + 0.5 * asked) / 1.5)
    assert np.allclose(one.weights, (none.weights + asked) / 2)


def test_the_question_shifts_the_same_whatever_the_answer(llama: LocalSurrogate) -> None:
    options: dict[str, Any] = {"surrogate": llama, "progress": False}
    first, second = (
        explain(context=CONTEXT, question=QUESTION, output=answer, **options).signals["question"]
        for answer in (ANSWER, "It lies on the Seine.")
    )
    assert np.allclose(first, second, atol=1e-3)


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
    assert {name: share.tolist() for name, share in again.signals.items()} == {
        name: share.tolist() for name, share in e.signals.items()
    }
    part = e.for_output(0, 11)
    assert again.for_output(0, 11) == part
    assert part.weights.sum() == pytest.approx(1)
    assert np.allclose(part.signals["question"], e.signals["question"]), "it is the same question"
    name = e.for_output(16, 24)
    assert e.output[16:24] == "Leonardo"
    assert name.signals["words"][0] < e.signals["words"][0], "the answer's 'The' is not in it"


def test_an_ensemble_has_the_mean_of_each_signal(tiny: Make, tmp_path: Path) -> None:
    one, two = (question(tiny(name)) for name in ("llama", "qwen3"))
    both = question([tiny("llama"), tiny("qwen3")])
    assert list(both.signals) == list(one.signals)
    for name, share in both.signals.items():
        assert np.allclose(share, (one.signals[name] + two.signals[name]) / 2)
    assert np.allclose(both.weights, (one.weights + two.weights) / 2)
    both.save(tmp_path / "why.json")
    assert load(tmp_path / "why.json") == both
    assert both.for_output(0, 11).weights.sum() == pytest.approx(1)


def test_an_explanation_of_an_older_target_says_that_it_must_be_made_again(
    llama: LocalSurrogate,
) -> None:
    data = question(llama).to_dict()
    data["config"]["target"] = {"name": "evidence", "question": 1.0, "floor": 0.2}
    del data["signals"]
    old = Explanation.of(from_dict(data))
    assert old.signals == {}
    with pytest.raises(InputError, match="cannot be built by this release; make it again"):
        old.for_output(0, 11)


class TestInstant:
    """One pass: no mask is scored besides the full prompt and the one with no feature."""

    def test_it_says_what_it_did(self, llama: LocalSurrogate) -> None:
        e = question(llama, preset="instant")
        assert e.config["sampler"] == {"name": "none"}
        assert e.config["target"] == {"name": "instant", **INSTANT}
        assert (e.cost.masks, len(e.surrogate_scores.masks)) == (2, 2)
        assert e.cost.tokens < question(llama).cost.tokens
        assert list(e.signals) == ["attention", "words"]
        assert np.allclose(e.weights, sum(INSTANT[name] * e.signals[name] for name in INSTANT))
        assert e.weights.min() >= 0
        assert e.weights.sum() == pytest.approx(1)
        assert np.allclose(e.token_weights.sum(1), e.signals["attention"])
        assert np.allclose(e.signals["words"], question(llama).signals["words"])
        assert e.trust is not None
        assert e.verdicts[1].text.endswith("No part was removed to test it.")
        said = " ".join((*e.diagnostics.warnings, *e.diagnostics.notes))
        assert "underdetermined" not in said
        assert "cached" not in said
        assert np.isnan(e.diagnostics.r2)

    @pytest.mark.parametrize("budget", ["20000 tokens", "1 token", "5 seconds", "0.001 seconds", 7])
    def test_a_budget_changes_nothing(self, llama: LocalSurrogate, budget: Any) -> None:
        free, bound = (
            question(llama, preset="instant"),
            question(llama, preset="instant", budget=budget),
        )
        assert bound.config["budget"] != "auto"
        assert np.array_equal(bound.weights, free.weights)
        assert bound.cost == free.cost

    @pytest.mark.parametrize("how", [{"scoring": "exact"}, {"ablation": "in-place"}])
    def test_it_is_the_same_however_masks_would_be_scored(
        self, llama: LocalSurrogate, how: Any
    ) -> None:
        free, other = question(llama, preset="instant"), question(llama, preset="instant", **how)
        assert np.allclose(free.weights, other.weights, atol=1e-5)
        assert "scored exactly" not in notes(other)

    def test_a_span_of_the_answer_and_a_file(self, llama: LocalSurrogate, tmp_path: Path) -> None:
        e = question(llama, preset="instant")
        e.save(tmp_path / "why.json")
        again = load(tmp_path / "why.json")
        assert again == e
        assert e.surrogate_scores.attention is not None
        assert again.surrogate_scores.attention is not None
        assert np.array_equal(again.surrogate_scores.attention, e.surrogate_scores.attention)
        part = e.for_output(0, 11)
        assert again.for_output(0, 11) == part
        first, last = e.tokens_in(0, 11)
        seen = e.surrogate_scores.attention[first:last].sum(0)
        assert np.allclose(part.signals["attention"], seen / seen.sum())
        assert part.weights.sum() == pytest.approx(1)

    def test_more_masks_are_refused_with_a_cure(self, llama: LocalSurrogate) -> None:
        with pytest.raises(InputError, match=r"not fitted to masks.*preset='evidence' or 'faithful'"):
            question(llama, preset="instant").extend(5, surrogate=llama)

    @pytest.mark.parametrize("target", ["evidence", "nll", "kl"])
    def test_a_target_that_needs_masks_is_refused_with_a_cure(self, target: str) -> None:
        with pytest.raises(InputError, match=f"target='{target}' is fitted to masks.*'leave-one-out'"):
            Options(preset="instant", target=target)
        with pytest.raises(InputError, match="sampler='none' draws none"):
            Options(sampler="none", target=target)
        with pytest.raises(InputError, match="target='contrast' is fitted to masks"):
            Options(preset="instant", instead_of="Rome")
        with pytest.raises(InputError, match="sampler='none' draws none"):
            Options(target=target, also="instant")
        assert Options(preset="instant", target=target, sampler="leave-one-out").sampler is not None

    def test_masks_that_were_asked_for_have_no_say(self, llama: LocalSurrogate) -> None:
        masked = question(llama, target="instant")
        assert len(masked.surrogate_scores.masks) == len(masked.features) + 2
        assert np.allclose(masked.weights, question(llama, preset="instant").weights, atol=1e-5)
        said = " ".join((*masked.diagnostics.warnings, *masked.diagnostics.notes))
        assert "fit" not in said
        assert "kernel" not in said

    def test_beside_another_preset_with_interactions_and_in_an_ensemble(self, tiny: Make) -> None:
        one, two = tiny("llama"), tiny("qwen3")
        e = question([one, two], also="instant")
        assert e.also is not None
        each = [question(model, preset="instant") for model in (one, two)]
        assert np.allclose(e.also.weights, (each[0].weights + each[1].weights) / 2)
        assert list(e.also.signals) == ["attention", "words"]
        pairs = question(one, preset="instant", interactions=True)
        assert np.allclose(pairs.weights, each[0].weights)
        assert pairs.cost.masks == 2 + 6, "three features by themselves, and in pairs"

    def test_several_answers_in_the_same_passes(self, llama: LocalSurrogate) -> None:
        answers = (ANSWER, "It lies on the Seine.")
        prompt, options = from_context(CONTEXT, QUESTION), Options(preset="instant")
        together = explain_many([Task(prompt, answer, options) for answer in answers], [llama])
        for answer, e in zip(answers, together, strict=True):
            assert isinstance(e, Explanation)
            given: dict[str, Any] = {"context": CONTEXT, "question": QUESTION, "output": answer}
            alone = explain(**given, surrogate=llama, preset="instant", progress=False)
            assert np.allclose(e.weights, alone.weights, atol=1e-5)


@pytest.mark.real_model
class TestEmbedded:
    """What an explanation by the embedded model is like."""

    FACTS = ("The Eiffel Tower was finished in 1889.", "The Louvre is a museum in Paris.")
    ASKED: ClassVar[dict[str, Any]] = {
        "question": "When was the Eiffel Tower finished?",
        "output": "It was finished in 1889.",
        "progress": False,
    }

    RULES = (
        "A hotel is paid up to 150 euros a night. In Zurich a hotel is paid up to 220 euros a night.",
        "A lost laptop is reported to the help desk within one hour. Visitors wear a badge.",
        "Guests pay nine euros for lunch. Video meetings are recorded only if all agree.",
    )
    PAID: ClassVar[dict[str, Any]] = {
        "question": "How much is paid for a hotel in Zurich?",
        "output": "In Zurich a hotel is paid up to 220 euros a night.",
        "progress": False,
    }

    def test_the_order_of_documents_and_a_cut_do_not_decide_a_share(self) -> None:
        own, moved = (explain(context=rules, **self.PAID) for rules in (self.RULES, self.RULES[::-1]))
        cut = explain(context=[*self.RULES[0].split(". "), *self.RULES[1:]], **self.PAID)
        shares = {self._share(e, "In Zurich") for e in (own, moved, cut)}
        assert max(shares) - min(shares) < 0.12
        for e in (own, moved, cut):
            assert e.top(1)[0].text.strip().startswith("In Zurich")
            assert self._share(e, "Video meetings") < 0.05, "being last does not count"
            assert e.trust is not None
            assert e.trust.value > 0.8

    @staticmethod
    def _share(e: Explanation, begins: str) -> float:
        found = [r for r in e.top() if r.text.strip().startswith(begins)]
        return found[0].normalized_weight

    def test_an_invented_sentence_has_no_source(self) -> None:
        given = {**self.PAID, "output": f"{self.PAID['output']} Ada Lovelace proposed it in 1843."}
        known, invented = explain(context=self.RULES, **given).grounding
        assert known.probability > 0.9
        assert {source.document for source in known.sources} == {0}
        assert invented.probability < 0.5
        assert not invented.sources

    def test_unrelated_parts_are_neither_trusted_nor_cited(self) -> None:
        e = explain(
            context=["Bananas are yellow.", "The train leaves at nine."], progress=False,
            question="What is the capital of France?", output="The capital of France is Paris.",
        )  # fmt: skip
        assert e.trust is not None
        assert e.trust.value < 0.25
        assert not e.cite().sources

    @pytest.mark.parametrize("preset", ["evidence", "instant"])
    def test_what_the_verdicts_need_costs_a_fifth_at_most(self, preset: PresetName) -> None:
        # One pass is little itself: of six sentences, that without any of them is 23 % of `instant`.
        rules = self.RULES if preset == "evidence" else self.RULES * 2
        e = explain(context=rules, preset=preset, **self.PAID)
        before, without_features = e.cost, int(e.surrogate_scores.empty.tokens[0])
        assert without_features <= 0.2 * (before.tokens - without_features)
        assert e.grounding
        assert e.verdicts
        assert e.cite().sentences
        assert e.cost == before, "nothing more was scored"

    @pytest.mark.parametrize("preset", ["evidence", "instant"])
    def test_an_irrelevant_sentence_hardly_changes_the_share_of_the_first_part(
        self, preset: PresetName
    ) -> None:
        more = [*self.FACTS, "Bananas are rich in potassium."]
        short, long = (
            explain(context=facts, preset=preset, **self.ASKED) for facts in (self.FACTS, more)
        )
        for e in (short, long):
            assert e.weights.argmax() == 0
            assert e.weights.sum() == pytest.approx(1)
            assert e.weights[0] > 0.6
        assert long.weights[0] == pytest.approx(short.weights[0], abs=0.1)
        assert long.weights[2] < 0.1


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
    assert e.diagnostics.warnings == ()
    with pytest.raises(ModelError, match="Use preset='faithful' with it"):
        explain(PROMPT, OUTPUT, **options)


def test_a_function_in_another_preset_is_told_that_it_was_read_exactly() -> None:
    e = explain(PROMPT, OUTPUT, features="word", surrogate=additive(), target="nll", progress=False)
    assert "The surrogate has no cached scoring" in notes(e)
