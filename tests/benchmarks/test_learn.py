"""Learning from what ablations did to an answering model: planted weights come back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_toy import sized, write_hotpotqa
from benchmarks import report
from benchmarks.cli import main
from benchmarks.closed import cases, learn, measures, rankings
from benchmarks.closed.answering import LocalConversation
from benchmarks.store import Store, read
from conftest import byte_level, tiny_model
from ropelime import InputError
from ropelime.surrogate.local import LocalSurrogate
from ropelime.typing import Floats

Tiny = Callable[..., LocalSurrogate]


def shares(rng: np.random.Generator, count: int, kinds: int = 3) -> list[Floats]:
    """Prompts of 4 to 12 parts; each of some signals gives most to a few of them."""
    return [rng.dirichlet(np.full(rng.integers(4, 13), 0.3), size=kinds) for _ in range(count)]


class TestMixture:
    @pytest.mark.parametrize("weights", [(0.6, 0.3, 0.1), (0.2, 0.0, 0.8), (1.0, 0.0, 0.0)])
    def test_planted_weights_come_back(self, weights: tuple[float, ...]) -> None:
        rng = np.random.default_rng(0)
        given = shares(rng, 200)
        lost = [rng.uniform(0.2, 1) * (np.array(weights) @ each) for each in given]
        np.testing.assert_allclose(
            learn.mixture(list(zip(given, lost, strict=True))), weights, atol=0.02
        )

    def test_signals_that_are_equal_count_alike(self) -> None:
        given = [np.stack([each[0], each[0]]) for each in shares(np.random.default_rng(1), 20)]
        effects = [(each, each[0]) for each in given]
        np.testing.assert_allclose(learn.mixture(effects), [0.5, 0.5])

    def test_every_kind_of_effect_counts_the_same(self) -> None:
        """One kind is explained by the first signal, the other by the second; it is a tenth."""
        given = np.array([[1.0, 0], [0, 1]])
        lost, changed = [(given, np.array([0.9, 0]))] * 5, [(given, np.array([0, 0.09]))] * 3
        np.testing.assert_allclose(learn.mixture(lost, changed), [0.5, 0.5], atol=0.01)
        nothing = [(given, np.zeros(2))] * 5
        np.testing.assert_allclose(learn.mixture(lost, nothing), [1, 0], atol=0.01)

    def test_a_prompt_counts_for_the_most_that_was_lost(self) -> None:
        """Without its first part, ten times as much is lost of the first prompt as of the second."""
        right, wrong = np.array([[1.0, 0], [0, 1]]), np.array([[0, 1.0], [1, 0]])
        lost = [(right, np.array([1.0, 0])), (wrong, np.array([0.1, 0]))]
        np.testing.assert_allclose(learn.mixture(lost), [10 / 11, 1 / 11], atol=0.01)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_hotpotqa(
        tmp_path / "hotpot.json", [sized(name, 4) for name in ("one", "two", "three")]
    )


def label(case: cases.Case, answering: LocalSurrogate) -> dict[str, Any]:
    """A row of labels; the tiny model's own answer is blank."""
    n = len(case.spans)
    talk = LocalConversation(answering, case.prompt, case.spans, most=4)
    talk.explain("Paris")
    every = np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool), rankings.leave_one_out(n)])
    score = talk.score(every)
    drop = float(score[0] - score[2:].min())
    return {
        "example": case.id, "method": "case", "output": "Paris", "full": drop, "none": 0.0,
        "kept": [0.0, *np.linspace(0.25, 1, n)],
        "rankings": {measures.ORACLE: {"weights": (score[0] - score[2:]).tolist()}},
    }  # fmt: skip


def test_a_lesson_has_the_signals_of_the_explanation(data: Path, tiny: Tiny) -> None:
    model = tiny()
    case = cases.hotpotqa(data)[0]
    found = learn.lesson(case, label(case, model), model)
    n = len(case.spans)
    assert (found.lost.shape, found.signals.shape, found.heads.shape) == ((n,), (3, n), (3, 4, n))
    assert found.lost.max() == pytest.approx(1)
    assert found.lost.min() >= 0
    np.testing.assert_allclose(found.changed, np.linspace(0.75, 0, n))
    np.testing.assert_allclose(found.heads.sum(-1), 1)
    assert np.all(np.isclose(found.signals.sum(-1), 1) | ~found.signals.any(-1))


def test_prompts_that_do_not_matter_teach_nothing(data: Path, tiny: Tiny) -> None:
    model, known = tiny(), {case.id: case for case in cases.hotpotqa(data)}
    rows = [label(case, model) for case in known.values()]
    blank = {"example": "one", "method": "case", "skipped": "no answer"}
    flat = {**rows[1], "full": 1.0, "none": 1.0}
    done: list[tuple[int, int]] = []
    found = learn.lessons(known, [blank, flat, rows[2]], model, lambda a, b: done.append((a, b)))
    assert len(found) == 1
    assert done == [(0, 3), (1, 3), (2, 3), (3, 3)]
    with pytest.raises(InputError, match="The data has no prompt 'four'"):
        learn.lessons(known, [{**blank, "example": "four"}], model)


class TestCommands:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> str:
        path = tmp_path / "saved"
        tiny_model("llama").model.save_pretrained(path)
        byte_level("chatml").save_pretrained(path)
        return str(path)

    @pytest.fixture
    def here(self, saved: str, data: Path) -> list[str]:
        return [
            "--data",
            str(data),
            "--surrogate",
            saved,
            "--device",
            "cpu",
            "--dtype",
            "float32",
            "--quiet",
        ]

    def test_learn_writes_what_the_package_reads(
        self, data: Path, saved: str, here: list[str], tmp_path: Path, tiny: Tiny
    ) -> None:
        rows, made = tmp_path / "labels.jsonl", tmp_path / "learnt.json"
        store = Store(rows, {"bench": "labels", "kind": "hotpotqa"}, ["case"])
        for case in cases.hotpotqa(data):
            store.add(case.id, [label(case, tiny())])
        command = ["learn", str(rows), *here, "--write", str(made), "--cited", "1", "3"]
        assert main([*command, "--instant-words", "0.25"]) == 0
        learnt = json.loads(made.read_text())
        assert set(learnt["evidence"]) == {"shift", "words", "question"}
        assert sum(learnt["evidence"].values()) == pytest.approx(1, abs=2e-3)
        assert learnt["instant"] == {"attention": 0.75, "words": 0.25}
        ((shape, heads),) = learnt["heads"].items()
        assert shape == tiny().shape == "llama, 3 layers of 4 heads, 32 wide, 640 tokens"
        assert sum(weight for _, _, weight in heads) == pytest.approx(1, abs=2e-3)
        assert all(layer in range(3) and head in range(4) for layer, head, _ in heads)
        assert learnt["prompts"] == 5
        made_by = "python -m benchmarks learn labels.jsonl --data hotpot.json --cited 1 3"
        assert learnt["made_by"] == made_by

    @pytest.mark.parametrize("words", ["1", "-0.1"])
    def test_learn_refuses_what_leaves_no_attention(
        self, words: str, here: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["learn", "labels.jsonl", *here, "--instant-words", words]) == 1
        assert "--instant-words must be from 0 to below 1" in capsys.readouterr().err

    def test_learn_refuses_rows_that_teach_nothing(
        self, here: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows, made = tmp_path / "labels.jsonl", tmp_path / "learnt.json"
        store = Store(rows, {"bench": "labels", "kind": "hotpotqa"}, ["case"])
        store.add("one", [{"example": "one", "method": "case", "skipped": "no answer"}])
        assert main(["learn", str(rows), *here, "--write", str(made)]) == 1
        assert "there is nothing to learn" in capsys.readouterr().err
        assert not made.exists()

    def test_labels_only_asks_and_compares_nothing(
        self,
        saved: str,
        here: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        mixed = cases.mixed
        spoken = {"mixed": lambda path: [replace(case, output="Paris") for case in mixed(path)]}
        monkeypatch.setattr(cases, "KINDS", {**cases.KINDS, **spoken})  # the tiny model's own is blank
        results = tmp_path / "labels.jsonl"
        command = ["closed", "mixed", *here, "--answering", saved, "--labels-only"]
        assert main([*command, "--results", str(results), "--skip", "1", "--limit", "1"]) == 0
        header, (row,) = read(results)
        assert (header["bench"], header["kind"], header["surrogates"]) == ("labels", "mixed", {})
        assert (row["example"], row["number"]) == ("mixed-two", 1)
        assert list(row["rankings"]) == [measures.ORACLE]
        assert set(row["rankings"][measures.ORACLE]) == {"tokens", "weights"}
        assert len(row["rankings"][measures.ORACLE]["weights"]) == row["features"]
        assert row["held_out"]
        assert report.write([results], tmp_path) == [], "they are learnt from, not shown"

    def test_labels_need_an_answering_model(
        self, here: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["closed", "reference", *here, "--labels-only"]) == 1
        assert "--labels-only needs --answering" in capsys.readouterr().err

    def test_reference_answers_are_compared_with_labels(
        self, saved: str, here: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        results = tmp_path / "closed.jsonl"
        command = ["closed", "reference", *here, "--cached-only", "--results", str(results)]
        assert main([*command, "--limit", "1"]) == 0
        header, (row,) = read(results)
        assert (header["kind"], header["answering"]) == ("reference", None)
        assert measures.ORACLE not in row["rankings"]
        for method in ("evidence", "evidence without words", "instant", "faithful"):
            figures = row["rankings"][f"saved: {method}"]
            assert set(figures) == {"first", "f1", "auroc", "tokens", "weights"}
        instant = row["rankings"]["saved: instant"]
        assert 0 < instant["tokens"] < row["rankings"]["saved: evidence"]["tokens"]
        assert sum(instant["weights"]) == pytest.approx(1, abs=1e-3)
        assert main([*command, "--answering", saved]) == 1
        assert "except for prompts that come with answers: reference." in capsys.readouterr().err


def test_mixed_prompts_are_of_many_kinds(tmp_path: Path) -> None:
    path = write_hotpotqa(tmp_path / "hotpot.json", [sized(f"e{i}", 5) for i in range(40)])
    found = cases.mixed(path)
    assert [case.id for case in found] == [f"mixed-e{i}" for i in range(40)]
    assert {case.prompt.kind for case in found} == {"context", "messages"}
    assert {case.question for case in found} == {
        "Who?", "Who? Answer in two full sentences.", "What does the text say about A?"
    }  # fmt: skip
    assert len({len(case.spans) for case in found}) > 3
    for case in found:
        text = " ".join(case.parts)
        assert "a0." in text
        assert " b." in text, "the gold paragraphs are always there"
        assert not case.gold.any()
        assert case.output is None
    again = cases.mixed(path)
    assert [case.prompt for case in again] == [case.prompt for case in found]


def test_reference_cases_come_with_their_answers(data: Path) -> None:
    for case, other in zip(cases.reference(data), cases.hotpotqa(data), strict=True):
        assert case.output == "Paris"
        assert replace(case, output=None, gold=other.gold) == replace(other, gold=other.gold)
        assert np.array_equal(case.gold, other.gold)
