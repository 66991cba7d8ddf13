"""The runner: one score serves all methods, and each gets what it would get alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from bench_toy import example
from benchmarks import methods as known
from benchmarks import runner
from benchmarks.contextcite import LogitPerToken, StandardisedLasso
from benchmarks.data import Example
from benchmarks.evaluation import chance
from benchmarks.method import Method, method
from benchmarks.names import CHANCE
from benchmarks.runner import run
from benchmarks.store import Row, Store, read
from ropelime.explain import explain, explain_many
from ropelime.method.regression import LinearFit, Regressor
from ropelime.method.samplers import Bernoulli, Hadamard
from ropelime.method.scores import Scores
from ropelime.steps import Task
from ropelime.surrogate import Ablation, FunctionSurrogate, Surrogate
from ropelime.surrogate.base import Scorer
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Ints, Masks

COEF = np.array([0.8, 0.05, 0.4, 0.2, 0.1])  # no two sums of some of them are equal
LOO = method("leave-one-out", "leave-one-out", "nll", "uniform", "wls")
METHODS = [
    LOO,
    method("short", "bernoulli:20", "nll", "uniform", "ridge", "leave-one-out"),
    method("long", "bernoulli:20", "logit", "hamming", "lasso"),
    method("shapley", "shapley:16", "nll", "uniform", "ridge"),
    known.contextcite(),
]


class Recording(Surrogate, Scorer):
    """A surrogate that keeps the masks it was asked for, one list for each example."""

    def __init__(self, inner: Surrogate) -> None:
        self.inner, self.name = inner, "recording"
        self.read: list[list[bytes]] = []
        self.scorer: Scorer

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        return self.inner.token_spans(prompt)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Recording:
        self.scorer = self.inner.prepare(prompt, features, output, ablation=ablation)
        self.output_spans, self.has_question = self.scorer.output_spans, self.scorer.has_question
        self.supports_cached = self.scorer.supports_cached
        self.read.append([])
        return self

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        return self.scorer.cost(masks, cached=cached)

    def score(self, masks: Masks, **options: Any) -> Scores:
        self.read[-1] += [b"cached" * options.get("cached", False) + m.tobytes() for m in masks]
        return self.scorer.score(masks, **options)

    def describe(self) -> dict[str, Any]:
        return {}


def additive(masks: Masks) -> Floats:
    return np.asarray(masks @ COEF - 3.0)


Rows = Callable[..., list[Row]]


@pytest.fixture
def results(tmp_path: Path) -> Rows:
    """Runs methods on examples and gives the rows without their seconds."""

    def make(
        examples: list[Example],
        methods: Sequence[Method] = METHODS,
        surrogate: Surrogate | None = None,
        **options: Any,
    ) -> list[Row]:
        path = tmp_path / "results.jsonl"
        path.unlink(missing_ok=True)
        names = [*(m.name for m in methods), CHANCE, *options.get("extras", {})]
        store = Store(path, {}, names)
        options = {"seed": 0, **options}
        run(examples, methods, surrogate or FunctionSurrogate(additive), store, **options)
        return [{k: v for k, v in row.items() if k != "seconds"} for row in read(path)[1]]

    return make


def of(rows: list[Row], name: str) -> Row:
    (row,) = [row for row in rows if row["method"] == name]
    return row


def check_scored_once(recording: Recording, n: int) -> None:
    full = np.ones(n, dtype=bool).tobytes()
    for masks in recording.read:
        counts = Counter(masks)
        assert counts.pop(full) >= 1
        counts.pop(b"cached" + full, None)
        assert set(counts.values()) == {1}


def test_every_mask_is_scored_once(results: Rows) -> None:
    recording = Recording(FunctionSurrogate(additive))
    results([example("a"), example("b")], surrogate=recording)
    assert len(recording.read) == 2
    check_scored_once(recording, 5)


def test_the_papers_methods_score_every_mask_once_too(
    results: Rows, tiny: Callable[..., LocalSurrogate]
) -> None:
    recording = Recording(tiny("llama"))
    rows = results([example()], known.hotpotqa("gold"), recording)
    check_scored_once(recording, 5)
    cached = [mask for mask in recording.read[0] if mask.startswith(b"cached")]
    assert len(cached) == 7, "leave-one-out, and the prompt with all features and without any"
    assert len(recording.read[0]) - len(cached) <= 2**5 + 2
    hidden = of(rows, "evidence")
    assert hidden["masks"] == 7, "the prompt with all features, without any, and without each"
    assert hidden["tokens"] < of(rows, "leave-one-out")["tokens"]
    alone = results([example()], [known.hotpotqa("gold")[0]], tiny("llama"))
    together = of(rows, "sparse-k")
    assert alone[0] == {
        k: pytest.approx(v, abs=1e-3) if type(v) is float else v for k, v in together.items()
    }


def test_all_methods_of_an_example_are_explained_in_one_call(
    results: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counting(tasks: Sequence[Task], surrogates: Sequence[Surrogate]) -> list[Any]:
        calls.append(len(tasks))
        return list(explain_many(tasks, surrogates))

    monkeypatch.setattr(runner, "explain_many", counting)
    results([example("a"), example("b")])
    assert calls == [len(METHODS)] * 2


def test_rows_are_those_of_explain(results: Rows, tiny: Callable[..., LocalSurrogate]) -> None:
    surrogate, one = tiny("llama"), example(prompt="red green blue black white?")
    rows = results([one], known.budget("100"), surrogate)
    for name in ("evidence", "faithful"):
        e = explain(
            one.prompt, one.answer, features=one.spans, preset=name, scoring="cached",
            surrogate=surrogate, progress=False,
        )  # fmt: skip
        row, scores = of(rows, name), e.surrogate_scores
        assert (row["masks"], row["tokens"]) == (len(scores.masks), int(scores.tokens.sum()))


def test_exact_scores_come_on_top_of_cached_ones(
    results: Rows, tiny: Callable[..., LocalSurrogate]
) -> None:
    one = example(prompt="red green blue black white")
    pinned = replace(one, prompt=one.prompt + " and?")
    mixed = method("both", "hadamard:9", "nll", "uniform", "bayes-ridge", scoring="cached", exact=4)
    recording = Recording(tiny("llama"))
    row = of(results([pinned], [mixed], recording, curves=False), "both")
    assert row["masks"] == 1 + 9 + 4
    drawn = [Hadamard().sample(5, budget=k, rng=np.random.default_rng([0, 0])).masks for k in (9, 4)]
    cached = {b"cached" + mask.tobytes() for mask in drawn[0]}
    exact = {mask.tobytes() for mask in drawn[1]}
    assert cached | exact <= set(recording.read[0])
    masks = [np.concatenate([np.ones((1, 5), bool), drawn[0]]), drawn[1]]
    tokens = [recording.cost(masks[0], cached=True), recording.cost(masks[1])]
    assert row["tokens"] == np.concatenate(tokens).sum()


def test_each_method_gets_what_it_gets_alone(results: Rows) -> None:
    examples = [example("a"), example("b", gold="01000")]
    together = results(examples)
    for m in METHODS:
        needed = [LOO, m] if m.tokens_of else [m]
        alone = results(examples, needed)
        assert [r for r in alone if r["method"] == m.name] == [
            r for r in together if r["method"] == m.name
        ]


def test_an_additive_model_is_explained_without_error(results: Rows) -> None:
    row = of(results([example(gold="10100")]), "leave-one-out")
    assert (row["iou"], row["f1"], row["auroc"]) == (1, 1, 1)
    assert row["lds"] == pytest.approx(1)
    assert (row["drop1"], row["drop3"], row["drop5"]) == (pytest.approx(0.8), pytest.approx(1.4), None)
    assert (row["masks"], row["tokens"]) == (6, 6 + 5 * 5)
    assert (row["features"], row["gold"], row["group"]) == (5, 2, "4-5")


def test_tokens_of_stops_at_the_others_tokens(results: Rows) -> None:
    rows = results([example()])
    most = of(rows, "leave-one-out")["tokens"]
    masks = Bernoulli(20).sample(5, budget=None, rng=np.random.default_rng([0, 0])).masks
    tokens = np.cumsum([6, *(masks.sum(1) + 1)])
    short = of(rows, "short")
    assert short["tokens"] == max(t for t in tokens if t <= most)
    assert short["masks"] == (tokens <= most).sum() < of(rows, "long")["masks"] == 21


def test_tokens_of_may_be_used_up(results: Rows) -> None:
    same = method("same", "leave-one-out", "nll", "uniform", "wls", "leave-one-out")
    rows = results([example()], [LOO, same])
    assert of(rows, "same")["tokens"] == of(rows, "leave-one-out")["tokens"]


def test_the_same_seed_gives_the_same_rows(results: Rows) -> None:
    examples = [example("a"), example("b")]
    rows = results(examples)
    assert results(examples) == rows
    assert results(examples, seed=1) != rows


def test_an_example_does_not_depend_on_those_before(tmp_path: Path) -> None:
    examples = [example("a"), example("b")]
    found = []
    for done in (set[str](), {"a"}):
        store = Store(tmp_path / f"{len(done)}", {}, [m.name for m in [*METHODS]] + [CHANCE])
        store.done |= done
        run(examples, METHODS, FunctionSurrogate(additive), store, seed=0)
        found.append([{**row, "seconds": 0} for row in read(store.path)[1] if row["example"] == "b"])
    assert found[0] == found[1]


def test_the_row_of_chance(results: Rows) -> None:
    row, expected = of(results([example(gold="10100")]), CHANCE), chance(5, 2)
    assert row["iou"] == pytest.approx(expected.iou, abs=1e-6)
    assert (row["f1"], row["auroc"]) == (0.4, 0.5)


def test_all_gold_has_no_auroc(results: Rows) -> None:
    for row in results([example(gold="11111")]):
        assert (row["iou"], row["f1"], row["auroc"]) == (1, 1, None)


def test_no_gold_is_no_agreement_and_no_end_of_the_run(results: Rows) -> None:
    rows = results([example("a", gold="00000"), example("b")])
    assert [(r["iou"], r["f1"], r["auroc"]) for r in rows if r["example"] == "a"] == [(None,) * 3] * 6
    assert rows[0]["lds"] == pytest.approx(1)
    assert sum(r["example"] == "b" for r in rows) == 6


def test_without_curves(results: Rows) -> None:
    recording = Recording(FunctionSurrogate(additive))
    row = of(results([example()], [LOO], recording, curves=False), "leave-one-out")
    assert not {"drop1", "insertion", "deletion"} & set(row)
    assert row["lds"] == pytest.approx(1)


def test_progress(results: Rows) -> None:
    said: list[tuple[int, int]] = []
    results([example("a"), example("b")], progress=lambda done, total: said.append((done, total)))
    assert said == [(0, 2), (1, 2), (2, 2)]


def test_progress_of_a_resumed_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "results", {}, [LOO.name, CHANCE])
    for names, expected in (("ac", [0, 1, 2]), ("abcd", [2, 3, 4]), ("abcd", [4])):
        said: list[int] = []
        run(
            [example(name) for name in names],
            [LOO],
            FunctionSurrogate(additive),
            store,
            seed=0,
            progress=lambda done, _, said=said: said.append(done),  # type: ignore[misc]
        )
        assert said == expected


def test_an_extra_comes_last(results: Rows) -> None:
    rows = results([example()], [LOO], extras={"dice": lambda e, rng: {"iou": float(len(e.spans))}})
    assert [r["method"] for r in rows] == ["leave-one-out", CHANCE, "dice"]
    assert rows[-1] == {
        "example": "one",
        "group": "4-5",
        "features": 5,
        "gold": 2,
        "method": "dice",
        "iou": 5,
    }


@dataclass(frozen=True)
class Constant(Regressor):
    """A method of one's own: the weights are known."""

    name: ClassVar[str] = "constant"

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        coef = np.arange(masks.shape[1], dtype=float)
        return LinearFit(coef, np.asarray(0.0))


def test_an_added_method_shows_up(results: Rows) -> None:
    mine = method("mine", "one-at-a-time", "nll", "uniform", Constant())
    rows = results([example(gold="00011")], [*METHODS, mine])
    assert [r["method"] for r in rows] == [m.name for m in METHODS] + ["mine", CHANCE]
    assert (of(rows, "mine")["iou"], of(rows, "mine")["masks"]) == (1, 6)


class TestMethods:
    @pytest.mark.parametrize(
        "methods",
        [known.hotpotqa("gold"), known.hotpotqa("all"), known.sweep(), known.ablation(), known.mmlu()],
    )
    def test_names_are_distinct_and_references_are_there(self, methods: list[Method]) -> None:
        names = [m.name for m in methods]
        assert len(set(names)) == len(names)
        assert CHANCE not in names
        assert {m.tokens_of for m in methods if m.tokens_of} <= set(names)

    def test_the_sweep_is_the_grid(self) -> None:
        assert len(known.sweep()) == 18

    def test_contextcites_lasso_without_penalty_gives_the_coefficients_back(self) -> None:
        masks = np.random.default_rng(0).random((40, 5)) < 0.5
        fit = StandardisedLasso(alpha=1e-9).fit(masks, additive(masks), np.ones(40))
        np.testing.assert_allclose(fit.coef, COEF, atol=1e-5)
        np.testing.assert_allclose(fit.intercept, -3.0, atol=1e-5)
        constant = masks.copy()
        constant[:, 0] = True
        assert StandardisedLasso().fit(constant, additive(constant), np.ones(40)).coef[0] == 0

    def test_contextcites_target_is_per_token(self) -> None:
        logprob = np.log([[0.5, 0.5], [0.5, 0.1]])
        scores = Scores(np.ones((2, 1), bool), logprob, None, {}, np.ones(2, int), 2, 0.0)
        odds = np.log(0.05 / 0.95) - np.log(0.25 / 0.75)
        np.testing.assert_allclose(LogitPerToken().values(scores), [0, odds / 2])


def test_groups_are_kept(results: Rows) -> None:
    rows = results([replace(example(), group="12+")], [LOO])
    assert {r["group"] for r in rows} == {"12+"}
