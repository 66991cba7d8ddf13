"""How much is read: budgets that stop by themselves, and limits that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ropelime import Explanation, InputError, explain
from ropelime.method.schedule import Budget
from ropelime.surrogate.base import FunctionScorer, FunctionSurrogate
from ropelime.typing import Floats, Masks
from toy import COEF, OUTPUT, PROMPT, additive, toy

WORDS = " ".join(f"word{i}" for i in range(12))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("auto", Budget()),
        (None, Budget()),
        (64, Budget(masks=64)),
        ("64", Budget(masks=64)),
        ("64 masks", Budget(masks=64)),
        ("20,000 tokens", Budget(tokens=20_000)),
        ("1.5 s", Budget(seconds=1.5)),
        ("5seconds", Budget(seconds=5.0)),
    ],
)
def test_forms(spec: object, expected: Budget) -> None:
    assert Budget.of(spec) == expected
    assert Budget.of(str(expected)) == expected
    assert Budget.of(expected) is expected


@pytest.mark.parametrize(
    "spec", [0, -3, "0 tokens", "0 s", "1.5 tokens", "two", "5 minutes", 2.5, True, []]
)
def test_what_is_no_budget(spec: object) -> None:
    with pytest.raises(InputError, match="budget must be"):
        Budget.of(spec)


def either(first: int, second: int) -> Any:
    """An answer that needs one of two features, no matter which."""
    return lambda masks: 4.0 * (masks[:, first] | masks[:, second]) - 6.0


def quick(surrogate: Any, **options: Any) -> Explanation:
    e: Explanation = explain(
        WORDS, "yes", features="word", surrogate=surrogate, target="nll", progress=False, **options
    )
    return e


def test_evidence_stops_after_single_removals_when_they_tell() -> None:
    e = quick(lambda masks: 3.0 * masks[:, 4] - 5.0)
    assert e.config["masks"] == {"exact": 12}
    assert e.top(1)[0].index == 4


def test_evidence_goes_on_where_no_single_removal_tells() -> None:
    class Looking(FunctionScorer):
        supports_cached = True

        def score(self, masks: Masks, **options: Any) -> Any:
            return super().score(masks, **{**options, "cached": False})

    class Model(FunctionSurrogate):
        def prepare(self, prompt: Any, features: Any, output: str, *, ablation: Any) -> Looking:
            return Looking(self.function, features, output)

    e = quick(Model(either(3, 7)))
    assert e.config["masks"] == {"cached": 12 + 64}
    assert {share.index for share in e.top(2)} == {3, 7}
    assert "several may be redundant" in " ".join(e.diagnostics.notes)
    assert e.cost.masks == 2 + 12 + 64
    fixed = quick(Model(either(3, 7)), budget=12)
    assert fixed.config["masks"] == {"cached": 12}, "a budget is kept to"
    assert "several may" not in " ".join(fixed.diagnostics.notes)


def test_tokens_are_kept_to() -> None:
    for limit in (60, 100, 333):
        e = quick(additive(np.ones((12, 1))), preset="faithful", budget=f"{limit} tokens")
        spent = int(e.surrogate_scores.tokens.sum())
        assert limit / 2 < spent <= limit
        assert e.config["budget"] == f"{limit} tokens"
    more = quick(additive(np.ones((12, 1))), preset="faithful", budget="2000 tokens")
    assert more.config["masks"]["exact"] > 64, "more than it would have read by itself"


def test_a_token_budget_does_not_leave_out_the_end_of_the_prompt() -> None:
    e = quick(additive(np.ones((12, 1))), budget="100 tokens", sampler="leave-one-out")
    removed = np.flatnonzero(~e.surrogate_scores.masks[2:].all(0))
    assert len(removed) < 12
    assert removed.max() > len(removed), "a random part of the features, not the first ones"


class Clock:
    """The surrogate's clock: time passes where a mask is scored, and nowhere else."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_seconds_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def slow(masks: Masks) -> Floats:
        clock.now += 0.002 * len(masks)
        return np.asarray(masks.sum(1) - 13.0)

    with monkeypatch.context() as patch:
        patch.setattr("ropelime.surrogate.base.time", clock)
        e = quick(slow, preset="faithful", budget="0.08 seconds")
    assert 16 <= e.config["masks"]["exact"] < 64
    assert clock.now <= 0.08, "and no longer"
    assert "There was time for" in " ".join(e.diagnostics.notes)
    ample = quick(additive(np.ones((12, 1))), preset="faithful", budget="60 s")
    assert ample.config["masks"] == {"exact": 64}


@pytest.mark.parametrize("budget", ["auto", 20, "300 tokens"])
def test_the_same_seed_reads_the_same(budget: Any) -> None:
    runs = [quick(additive(np.ones((12, 1))), preset="faithful", budget=budget, seed=3) for _ in "ab"]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "hadamard"},
        {"sampler": "bernoulli"},
        {"sampler": "leave-one-out-first"},
        {"sampler": "leave-one-out"},
        {"sampler": "one-at-a-time"},
        {"sampler": "mixed"},
        {"sampler": "shapley"},
        {"sampler": "exhaustive"},
        {"sampler": "sparse-k:2:M"},
        {"sampler": None, "preset": "faithful", "scoring": "exact"},
    ],
)
def test_extending_is_one_longer_run(options: dict[str, Any]) -> None:
    surrogate = additive(COEF)
    short = toy(surrogate=surrogate, budget=4, **options)
    longer = short.extend(5, surrogate=surrogate, progress=False)
    whole = toy(surrogate=surrogate, budget=9, **options)
    assert {m.tobytes() for m in longer.surrogate_scores.masks} >= {
        m.tobytes() for m in short.surrogate_scores.masks
    }
    read = [{m.tobytes() for m in e.surrogate_scores.masks} for e in (longer, whole)]
    assert read[0] == read[1]
    assert np.allclose(longer.weights, whole.weights)
    assert longer.cost.masks == whole.cost.masks
    assert sum(longer.config["masks"].values()) == len(longer.surrogate_scores.masks) - 2
    assert longer.config["preset"] == short.config["preset"]


@pytest.mark.parametrize("sampler", ["exhaustive", "bernoulli", "hadamard", "shapley", "sparse-k:2:M"])
def test_extending_draws_the_masks_of_a_longer_run(sampler: str) -> None:
    """Whatever the seed, and also where they hold the prompt with no feature."""
    for seed in range(8):
        chosen: dict[str, Any] = {"sampler": sampler, "seed": seed, "regressor": "ridge"}
        longer = toy(budget=6, **chosen).extend(7, surrogate=additive(), progress=False)
        whole = toy(budget=13, **chosen)
        fitted = [e.surrogate_scores.fitted().masks.tolist() for e in (longer, whole)]
        assert sorted(fitted[0]) == sorted(fitted[1])
        assert np.allclose(longer.weights, whole.weights)
        assert longer.diagnostics.masks_scored == whole.diagnostics.masks_scored == 13


def test_a_loaded_one_can_be_extended(tmp_path: Any) -> None:
    from ropelime import load

    short = toy(sampler="hadamard", budget=4)
    short.save(tmp_path / "e.json")
    again = load(tmp_path / "e.json").extend(3, surrogate=additive(), progress=False)
    assert again == short.extend(3, surrogate=additive(), progress=False)


def test_more_masks_than_memory_holds_are_refused() -> None:
    with pytest.raises(
        InputError, match="budget must be at most 1,000,000 masks, not 1,000,000,000,000"
    ):
        toy(budget=10**12)
    assert len(toy(budget=f"{10**12} tokens", sampler="hadamard").surrogate_scores.masks) == 33


def test_what_cannot_be_extended() -> None:
    e = toy(sampler="leave-one-out")
    for more in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="whole number of masks"):
            e.extend(more, surrogate=additive())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="There are no more masks to score"):
        e.extend(1, surrogate=additive(), progress=False)
    with pytest.raises(InputError, match="extend that of the whole answer"):
        e.for_output(0, 3).extend(1, surrogate=additive())
    with pytest.raises(InputError, match="made by a surrogate with name 'function'"):
        e.extend(1, surrogate=FunctionSurrogate(additive(), name="other"))


def test_words_of_the_default() -> None:
    assert explain(PROMPT, OUTPUT, features="word", surrogate=additive(), target="nll", progress=False)
