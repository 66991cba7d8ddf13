"""Contrast, interactions, control variates and several surrogates: known answers."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelime import Explanation, InputError, explain, load
from ropelime.method.interactions import candidates
from ropelime.method.regression import BayesRidge
from ropelime.results.ensemble import combine
from ropelime.surrogate import Ablation, FunctionSurrogate, ScoreRequest, Surrogate
from ropelime.surrogate.base import FunctionScorer
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text import prompt as prompts
from ropelime.typing import Floats, Masks
from scoring import prepare
from toy import COEF, OUTPUT, PROMPT, additive, toy

Make = Callable[..., LocalSurrogate]
CONTEXT = [
    "Paris is the capital of France. It lies on the Seine.",
    "The Louvre is a museum. A picture hangs there.",
]
QUESTION = "Who painted the picture?"
ANSWER, OTHER = "The painter was Leonardo.", "It was Monet."


class TwoAnswers(Surrogate):
    """A surrogate that knows how much each feature adds to each of two answers."""

    name = "two answers"

    def __init__(self, said: dict[str, Floats]) -> None:
        self.said = said

    def prepare(self, prompt: Any, features: Any, output: str, *, ablation: Any) -> FunctionScorer:
        coef = self.said[output]
        made = FunctionSurrogate(lambda masks: masks @ coef - 5.0)
        return made.prepare(prompt, features, output, ablation=ablation)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def test_contrast_gives_back_the_difference_of_the_coefficients(tmp_path: Path) -> None:
    yes, no = np.array([1.0, 0.5, 0.0, 0.2, 0.0]), np.array([0.3, 0.5, 0.9, 0.0, 0.0])
    e = explain(
        PROMPT, "yes", instead_of="no", features="word", preset="faithful",
        surrogate=TwoAnswers({"yes": yes, "no": no}), regressor="wls", budget=16, progress=False,
    )  # fmt: skip
    assert np.allclose(e.weights, yes - no)
    assert np.allclose(e.token_weights.sum(1), yes - no)
    assert "supports this answer over 'no'" in " ".join(e.diagnostics.notes)
    assert e.config["target"] == {"name": "contrast"}
    e.save(tmp_path / "e.json")
    again = load(tmp_path / "e.json")
    assert again == e
    assert again.for_output(0, 3) == e.for_output(0, 3)
    assert np.allclose(e.extend(8, surrogate=TwoAnswers({"yes": yes, "no": no})).weights, yes - no)


def test_contrast_of_an_answer_with_itself_is_nothing(tiny: Make) -> None:
    e = explain(
        context=CONTEXT, question=QUESTION, output=ANSWER, instead_of=ANSWER,
        surrogate=tiny("llama"), progress=False,
    )  # fmt: skip
    assert np.allclose(e.weights, 0, atol=1e-4)


def test_contrast_is_the_difference_of_both_on_the_same_masks(tiny: Make) -> None:
    def one(output: str, **options: Any) -> Explanation:
        e: Explanation = explain(
            context=CONTEXT, question=QUESTION, output=output, surrogate=tiny("llama"),
            progress=False, **options,
        )  # fmt: skip
        return e

    both = one(ANSWER, instead_of=OTHER)
    ours, other = one(ANSWER, target="nll"), one(OTHER, target="nll")
    assert np.allclose(both.weights, ours.weights - other.weights, atol=1e-4)
    assert both.cost.tokens < ours.cost.tokens + other.cost.tokens, "the prompt is run once"


def test_parts_of_a_contrast_add_up_to_it(tiny: Make) -> None:
    e = explain(
        context=CONTEXT, question=QUESTION, output=ANSWER, instead_of=OTHER, scoring="exact",
        sampler="leave-one-out", kernel="uniform", regressor="wls", surrogate=tiny("llama"),
        progress=False,
    )  # fmt: skip
    cut = ANSWER.index(" was")
    parts = [e.for_output(0, cut), e.for_output(cut, len(ANSWER))]
    assert np.allclose(sum(part.weights for part in parts), e.weights)
    for part in parts:
        start, end = e.tokens_in(*part.span)
        assert np.allclose(part.weights, e.token_weights[:, start:end].sum(1))


def test_a_token_of_one_tokenizer_counts_once_among_those_of_another() -> None:
    e = toy(surrogate=FunctionSurrogate(additive(), name="a"), output="yes")
    spans = ((0, 1), (0, 1), (0, 1), (1, 1), (1, 3))  # three bytes of one character, and nothing
    rng = np.random.default_rng(0)
    many = replace(e, output_spans=spans, token_weights=rng.normal(size=(len(e.features), len(spans))))
    few = replace(e, output_spans=((0, 1), (1, 1), (1, 3)), token_weights=many.token_weights[:, :3])
    total = np.abs(e.weights).sum()
    for members in ((many, few), (few, many)):
        mean = sum(member.token_weights.sum(1) for member in members) / 2 / total
        assert np.allclose(combine(members).token_weights.sum(1), mean)


def test_the_part_that_an_ensemble_shows_first_is_the_one_that_is_judged() -> None:
    thirds = ([0.6, 0.3, 0.3, 0.9, 0.2], [0.3, 0.6, 0.9, 0.2, 0.3])
    for first, second in ((thirds), ([0, 0.6, 0.5, 0.6, 0.2], [0.2, 0.6, 0.5, 0.6, 0])):
        e = combine([replace(toy(), weights=np.array(each)) for each in (first, second)])
        ties = np.flatnonzero(np.isclose(e.weights, e.weights.max(), rtol=0, atol=1e-12))
        assert e.top(1)[0].index == ties[0] == int(np.argmax(e.weights))


def test_contrast_wants_another_answer() -> None:
    with pytest.raises(InputError, match="go together"):
        toy(instead_of="no")
    with pytest.raises(InputError, match="go together"):
        toy(target="contrast")
    with pytest.raises(InputError, match="instead_of"):
        toy(target="contrast", instead_of="")


def test_features_that_only_work_together_and_those_of_which_either_will_do() -> None:
    def model(masks: Masks) -> Floats:
        z = masks.astype(float)
        return np.asarray(3 * z[:, 0] * z[:, 1] + 2.5 * np.maximum(z[:, 2], z[:, 3]) + z[:, 4] - 9)

    e = toy(surrogate=model, sampler="hadamard", interactions=True)
    found = [(i.first, i.second, i.kind) for i in e.interactions]
    assert sorted(found[0][:2]) == [0, 1]
    assert found[0][2] == "together"
    assert sorted(found[1][:2]) == [2, 3]
    assert found[1][2] == "either"
    assert [i.effect for i in e.interactions] == pytest.approx([-3, 2.5])
    assert len(e.interactions) == 2


def test_additive_features_have_no_interactions() -> None:
    e = toy(surrogate=additive(3 * COEF), interactions=True)
    assert e.interactions == ()
    assert toy(surrogate=additive(3 * COEF)).weights == pytest.approx(e.weights), "the fit is the same"


@pytest.mark.parametrize(("n", "most"), [(2, 4), (5, 7), (40, 42), (100, 102), (12, 20)])
def test_interactions_cost_no_more_than_the_fit(n: int, most: int) -> None:
    removed = ~candidates(np.arange(n, dtype=float), most)
    assert len(removed) <= max(most, 3)
    assert removed[0].nonzero()[0].tolist() == [n - 1]
    alone = int((removed.sum(1) == 1).sum())
    assert removed.sum(1).tolist() == [1] * alone + [2] * (alone * (alone - 1) // 2)


def test_interactions_are_saved(tmp_path: Path) -> None:
    e = toy(surrogate=lambda z: 4.0 * (z[:, 0] & z[:, 1]) - 5.0, interactions=True)
    assert e.interactions
    e.save(tmp_path / "e.json")
    assert load(tmp_path / "e.json") == e
    assert load(tmp_path / "e.json").interactions == e.interactions


def half_masks(count: int, n: int, rng: np.random.Generator) -> Masks:
    return np.concatenate([np.ones((1, n), bool), rng.random((count, n)) < 0.5])


@pytest.mark.parametrize("bias", [0.5, 1.0, -1.0])
def test_cached_scores_are_a_control_variate_without_bias(bias: float) -> None:
    """Cached scores that are wrong do not count once there are many exact ones."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=10)
    wrong = bias * true + rng.normal(size=10)
    cached, errors = half_masks(128, 10, rng), []
    for count in (8, 64, 2000):
        exact = half_masks(count, 10, rng)[1:]
        masks = np.concatenate([cached, exact])
        kind = np.r_[np.ones(1, bool), np.zeros(128, bool), np.ones(count, bool)]
        noise = rng.normal(scale=0.3, size=len(masks))
        y = np.where(kind, masks @ true, masks @ wrong) + noise
        y[0] = true.sum()
        fit = BayesRidge().fit_mixed(masks, y, np.ones(len(y)), kind)
        errors.append(float(np.abs(fit.coef - true).max()))
    assert errors[2] < 0.06
    assert errors[2] < errors[1] < errors[0]


def test_good_cached_scores_help_a_few_exact_ones() -> None:
    rng = np.random.default_rng(1)
    alone, helped = [], []
    for _ in range(20):
        true = rng.normal(size=20)
        near = 0.8 * true + 0.1 * rng.normal(size=20)
        cached, exact = half_masks(128, 20, rng), half_masks(12, 20, rng)[1:]
        masks = np.concatenate([cached, exact])
        kind = np.r_[np.ones(1, bool), np.zeros(128, bool), np.ones(12, bool)]
        y = np.where(kind, masks @ true, masks @ near)
        y[0] = true.sum()
        flat = np.ones(len(y))
        helped.append(np.abs(BayesRidge().fit_mixed(masks, y, flat, kind).coef - true).mean())
        alone.append(np.abs(BayesRidge().fit(masks[kind], y[kind], flat[kind]).coef - true).mean())
    assert np.mean(helped) < np.mean(alone) / 2


def test_mixed_fits_take_several_targets_at_once() -> None:
    rng = np.random.default_rng(2)
    masks = np.concatenate([half_masks(40, 5, rng), half_masks(20, 5, rng)[1:]])
    kind = np.r_[np.ones(1, bool), np.zeros(40, bool), np.ones(20, bool)]
    y = rng.normal(size=(61, 3))
    both = BayesRidge().fit_mixed(masks, y, np.ones(61), kind)
    single = [BayesRidge().fit_mixed(masks, y[:, i], np.ones(61), kind).coef for i in range(3)]
    assert np.allclose(both.coef, np.stack(single, 1))


def test_faithful_reads_exactly_where_nothing_stands_out(tiny: Make) -> None:
    e = explain(
        context=CONTEXT * 4, question=QUESTION, output=ANSWER, surrogate=tiny("llama"),
        preset="faithful", progress=False,
    )  # fmt: skip
    counts = e.config["masks"]
    assert counts["cached"] == 128
    if e.normalized_weights.max() < 0.15:
        assert counts.get("exact") == 64
    exact = e.surrogate_scores.exact.sum()
    assert exact >= counts.get("exact", 0)
    again = e.extend(10, surrogate=tiny("llama"), progress=False)
    assert again.config["masks"]["exact"] == counts.get("exact", 0) + 10, "exact ones are added"


def test_several_prompts_in_one_run_read_as_each_alone(tiny: Make) -> None:
    model = tiny("llama")
    rng = np.random.default_rng(0)
    texts = [
        (CONTEXT, QUESTION, ANSWER),
        (CONTEXT[:1], "Where is it?", "In France."),
        (CONTEXT, "What is it?", "A"),
    ]
    jobs = []
    for number, (chunks, question, answer) in enumerate(texts):
        prompt = prompts.from_context([{"text": c} for c in chunks], question)
        scorer = prepare(model, prompt, "sentence", answer, ablation=Ablation())
        masks = half_masks(7, scorer.tokenized.n_features, rng)
        jobs.append(
            ScoreRequest(scorer, masks, kl=number != 1, cached=number > 0, question=number == 2)
        )
    together = model.score_all(jobs)
    for job, ours in zip(jobs, together, strict=True):
        (alone,) = model.score_all([job])
        assert np.allclose(ours.logprob, alone.logprob, atol=1e-4)
        assert (ours.kl is None) == (alone.kl is None)
        if ours.kl is not None and alone.kl is not None:
            assert np.allclose(ours.kl, alone.kl, atol=1e-4)
        if ours.question is not None and alone.question is not None:
            assert np.allclose(ours.question.kl, alone.question.kl, atol=1e-4, equal_nan=True)
        assert np.array_equal(ours.tokens, alone.tokens)
        assert np.array_equal(ours.exact, alone.exact)
    assert sum(p.tokens_run for p in together) <= sum(
        model.score_all([job])[0].tokens_run for job in jobs
    )


def test_several_surrogates_are_averaged_by_share(tmp_path: Path) -> None:
    one, two = np.array([1.0, 0, 0, 0, 1]), np.array([0, 30.0, 0, 0, 10])
    models = [FunctionSurrogate(additive(c[:, None]), name=n) for c, n in ((one, "a"), (two, "b"))]
    e = toy(surrogate=models, output="yes")
    assert e.normalized_weights == pytest.approx([0.25, 0.375, 0, 0, 0.375])
    assert [m.config["surrogate"]["name"] for m in e.members] == ["a", "b"]
    assert e.cost.masks == sum(m.cost.masks for m in e.members)
    assert e.intervals is not None
    assert np.ptp(e.intervals[1]) > np.ptp(e.intervals[2]), "they differ about the second feature"
    assert e.trust is not None
    e.save(tmp_path / "e.json")
    assert load(tmp_path / "e.json") == e
    assert load(tmp_path / "e.json").for_output(0, 2).members[1].config["surrogate"]["name"] == "b"


def test_surrogates_that_agree_and_that_do_not() -> None:
    rising, falling = np.arange(5.0)[:, None], np.arange(5.0)[::-1, None]
    models = {"up": additive(rising), "too": additive(2 * rising), "down": additive(falling)}
    named = {n: FunctionSurrogate(f, name=n) for n, f in models.items()}
    alike = toy(surrogate=[named["up"], named["too"]], output="yes")
    apart = toy(surrogate=[named["up"], named["down"]], output="yes")
    assert alike.trust is not None
    assert apart.trust is not None
    assert "up and too rank the parts alike" in alike.verdicts[2].text
    assert "up and down disagree" in apart.verdicts[2].text
    assert alike.trust.value > apart.trust.value
    assert alike.config["agreement"] == pytest.approx(1)
    assert apart.config["agreement"] == pytest.approx(-1)


def test_an_ensemble_has_the_verdicts_of_its_members(tmp_path: Path) -> None:
    rising = np.arange(5.0)[:, None]
    models = [FunctionSurrogate(additive(c * rising), name=f"x{c}") for c in (1, 3)]
    e = toy(surrogate=models, output="yes")
    for own, *each in zip(e.verdicts, *(m.verdicts for m in e.members), strict=True):
        assert {v.name for v in each} == {own.name}
        assert own.probability == pytest.approx(np.mean([v.probability for v in each])), "they agree"
    assert e.trust is not None
    least = min(e.verdicts, key=lambda verdict: verdict.probability)
    assert (e.trust.value, e.trust.text) == (least.probability, least.text)
    e.save(tmp_path / "e.json")
    assert load(tmp_path / "e.json").verdicts == e.verdicts
    assert len(e.for_output(0, 2).verdicts) == 3
    assert e.to_dict()["trust"]["verdicts"][0]["name"] == "rests"
    page = e.to_html()
    assert all(verdict.text in page for verdict in e.verdicts)


def test_where_surrogates_disagree_the_first_part_is_less_likely_a_cause() -> None:
    models = [FunctionSurrogate(additive(np.eye(5)[:, [i]]), name=f"only {i}") for i in (0, 4)]
    e = toy(surrogate=models, output="yes")
    rests, cause, understood = (
        np.mean([m.verdicts[i].probability for m in e.members]) for i in range(3)
    )
    assert e.verdicts[0].probability == pytest.approx(rests), "the ranking does not matter to it"
    assert e.verdicts[1].probability < 0.6 * cause, "one of both gives it nothing"
    assert e.config["agreement"] == pytest.approx(-0.25), "each ranks last what the other has first"
    follow = 0.5  # what agrees less than by chance counts as by chance
    assert e.verdicts[2].probability == pytest.approx(follow * understood, abs=1e-5)


def test_the_warnings_of_every_surrogate_are_told() -> None:
    models = [
        FunctionSurrogate(additive(base=base), name=name) for base, name in ((-3, "a"), (-99, "b"))
    ]
    e = toy(surrogate=models)
    assert any(
        w.startswith("b: The surrogate finds this output very unlikely") for w in e.diagnostics.warnings
    )
    assert not any(w.startswith("a: ") for w in e.diagnostics.warnings)


def test_surrogates_are_not_charged_for_each_other() -> None:
    def slow(masks: Masks) -> Floats:
        time.sleep(0.05)
        return additive()(masks)

    models = [FunctionSurrogate(slow, name=name) for name in "abc"]
    toy(surrogate=models)  # imports take longer than all that is measured
    start = time.perf_counter()
    e = toy(surrogate=models)
    assert e.cost.seconds is not None
    assert 0.15 <= e.cost.seconds <= time.perf_counter() - start


def test_one_surrogate_in_a_list_is_that_one_alone() -> None:
    assert toy(surrogate=[additive()]) == toy()
    with pytest.raises(InputError, match="names no model"):
        toy(surrogate=[])


def test_members_must_have_cut_alike() -> None:
    with pytest.raises(InputError, match="different features"):
        combine([toy(), toy("red green blue", surrogate=additive(COEF[:3]))])


def test_two_presets_in_one_call(tiny: Make, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "context": CONTEXT, "question": QUESTION, "output": ANSWER, "surrogate": tiny("llama"),
        "progress": False,
    }  # fmt: skip
    e = explain(**options, also="faithful")
    assert e.also is not None
    assert (e.config["preset"], e.also.config["preset"]) == ("evidence", "faithful")
    assert e.also == explain(**options, preset="faithful")
    e.save(tmp_path / "e.json")
    assert load(tmp_path / "e.json") == e
    with pytest.raises(InputError, match="preset"):
        explain(PROMPT, OUTPUT, also="nonsense")  # type: ignore[call-overload]


def test_the_views_say_what_was_found() -> None:
    from rich.console import Console

    from ropelime.views.findings import findings
    from ropelime.views.terminal import show

    pairs = toy(surrogate=lambda z: 4.0 * (z[:, 0] & z[:, 1]) - 5.0, interactions=True)
    assert findings(pairs) == [
        "Only together: “red” and “green”; without one of them the other adds 4.0 nats less."
    ]
    either = toy(
        surrogate=lambda z: 4.0 * (z[:, 0] | z[:, 1]) - 5.0, interactions=True, sampler="hadamard"
    )
    assert findings(either)[0].startswith("Either suffices: “red” or “green”")
    assert "No interaction was found between" in findings(toy(interactions=True))[0]
    assert findings(toy()) == []
    models = [FunctionSurrogate(additive(), name=name) for name in ("a", "b\x1b[2J")]
    (line,) = findings(toy(surrogate=models))
    assert line.startswith("a ranks “red” (43%) first; b")
    assert "\x1b" not in line
    console = Console(width=80, record=True, file=io.StringIO())
    show(pairs, console=console)
    assert "Only together" in console.export_text()
    assert "Only together" in pairs.to_html()


# What a review found.


def bare(tiny: Make) -> LocalSurrogate:
    """A model without a chat template: nothing is pinned behind the last feature."""
    from conftest import byte_level, tiny_model

    return LocalSurrogate(tiny_model("llama").model, byte_level())


def test_a_feature_that_cannot_be_hidden_keeps_its_weight() -> None:
    """Masks that remove the last feature are read exactly, and so nothing else of it is."""
    rng = np.random.default_rng(0)
    true = np.r_[rng.normal(size=11), 2.0]
    masks = half_masks(128, 12, rng)
    exact = ~masks[:, -1]
    exact[0] = True
    y = masks @ true + 0.3 * rng.normal(size=len(masks))
    fit = BayesRidge().fit_mixed(masks, y, np.ones(len(y)), exact)
    assert fit.coef[-1] == pytest.approx(2.0, abs=0.3)


def test_nothing_is_read_exactly_twice_and_going_on_finds_more(tiny: Make) -> None:
    words = "Paris is the capital of France and has many museums and a river"
    options: dict[str, Any] = {"features": "word", "preset": "faithful", "surrogate": bare(tiny)}
    auto = explain(words, "Paris", progress=False, **options)
    rows = auto.surrogate_scores.masks[auto.surrogate_scores.exact]
    assert len(np.unique(rows, axis=0)) == len(rows)
    for seed in range(4):
        e = explain(words, "Paris", budget=8, seed=seed, progress=False, **options)
        longer = e.extend(2, surrogate=options["surrogate"], progress=False)
        assert len(longer.surrogate_scores.masks) == len(e.surrogate_scores.masks) + 2


def test_r2_of_a_leaning_fit_is_about_the_exact_readings() -> None:
    from ropelime.method.attribution import Recipe, fit
    from toy import scoring

    rng = np.random.default_rng(0)
    true = rng.normal(size=8)
    masks = np.concatenate([half_masks(128, 8, rng), half_masks(64, 8, rng)[1:]])
    kind = np.r_[np.ones(1, bool), np.zeros(128, bool), np.ones(64, bool)]
    said = np.where(kind, masks @ true, 0.3 * (masks @ true) + 0.7 * true.sum())
    from dataclasses import replace

    scores = replace(scoring(masks, said[:, None]), exact=kind)
    fitted = fit(scores, Recipe.of("nll", "uniform", "bayes-ridge"))
    assert fitted.r2 > 0.99
    assert np.allclose(fitted.weights, true, atol=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"surrogate": lambda z: np.full(len(z), -1.0)}, "moved the answer"),
        ({"budget": 1}, "4 of 5 parts were never removed"),
    ],
)
def test_nothing_known_is_nothing_to_trust(options: dict[str, Any], words: str) -> None:
    e = toy(**options)
    assert e.trust is not None
    assert e.trust.value <= 0.1
    assert words in e.verdicts[1].text


def test_trust_does_not_fall_off_a_cliff_with_the_number_of_features() -> None:
    def value(n: int) -> float:
        coef = np.zeros((n, 1))
        coef[:2] = 4.0
        prompt = " ".join(f"w{i}" for i in range(n))
        e = explain(
            prompt, "yes", features="word", surrogate=additive(coef), preset="faithful", progress=False
        )
        assert e.trust is not None
        return e.trust.value

    assert abs(value(61) - value(64)) < 0.1


def test_a_function_cannot_tell_two_answers_apart() -> None:
    with pytest.raises(InputError, match="does not see the answer"):
        toy(instead_of="no it is not", target="contrast")


def test_extending_keeps_what_was_asked_for(tiny: Make) -> None:
    options: dict[str, Any] = {"context": CONTEXT * 2, "question": QUESTION, "output": ANSWER}
    e = explain(
        **options, surrogate=tiny("llama"), also="faithful", interactions=True, budget=6, progress=False
    )
    longer = e.extend(3, surrogate=tiny("llama"), progress=False)
    assert longer.also == e.also
    assert longer.interactions == e.interactions
    for name in ("budget", "interactions"):
        assert longer.config[name] == e.config[name]
    assert not any("the budget allowed 6" in note for note in longer.diagnostics.notes)


def test_a_part_of_the_answer_claims_nothing_about_pairs() -> None:
    from ropelime.views.findings import findings

    e = toy(surrogate=lambda z: np.tile(4.0 * (z[:, :1] & z[:, 1:2]) - 5.0, 3), interactions=True)
    assert e.interactions
    assert findings(e.for_output(0, 3)) == []


def test_a_token_budget_counts_the_other_answer(tiny: Make) -> None:
    options: dict[str, Any] = {"context": CONTEXT * 4, "question": QUESTION, "output": ANSWER}
    e = explain(
        **options, surrogate=tiny("llama"), instead_of=OTHER * 3, budget="1500 tokens", progress=False
    )
    assert int(e.surrogate_scores.tokens.sum()) <= 1500


def test_a_member_without_any_weight_can_be_saved() -> None:
    noise = FunctionSurrogate(lambda z: np.full(len(z), -1.0), name="none")
    e = toy(surrogate=[noise, FunctionSurrogate(additive(COEF.sum(1)[:, None]), name="some")])
    assert e.intervals is not None
    assert np.isfinite(e.intervals).all()
    assert e.to_json()
