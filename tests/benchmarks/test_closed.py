"""The arena: an answering model that is asked again with parts removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

import servers
from bench_toy import sized, write_hotpotqa
from benchmarks import lexical, report
from benchmarks.cli import main
from benchmarks.closed import (
    attempts,
    cases,
    labelled,
    measures,
    page,
    place,
    rankings,
    renew,
    run,
)
from benchmarks.closed.answering import Converse, LocalConversation, ServedConversation
from benchmarks.evaluation import held_out, spearman
from benchmarks.names import CONTEXTCITE
from benchmarks.store import Store, read
from conftest import byte_level, tiny_model
from ropelime.answering import AnsweringModel
from ropelime.clients.pool import Pool
from ropelime.errors import InputError
from ropelime.method import learnt
from ropelime.method.attribution import without_place
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.features import split
from ropelime.text.similarity import token_f1

Tiny = Callable[..., LocalSurrogate]
MOST = 6


def local(model: LocalSurrogate) -> Converse:
    return partial(LocalConversation, model, most=MOST)


@pytest.fixture
def case(tmp_path: Path) -> cases.Case:
    return cases.hotpotqa(write_hotpotqa(tmp_path / "hotpot.json", [sized("four", 4)]))[0]


class TestLexical:
    def test_bm25_of_one_word(self) -> None:
        """One of three parts holds it: idf ln(1 + 2.5 / 1.5); all parts have the mean length."""
        found = lexical.bm25("Paris", ["in paris", "in rome", "in bonn"])
        np.testing.assert_allclose(found, [np.log(1 + 2.5 / 1.5), 0, 0])
        np.testing.assert_allclose(lexical.bm25("Paris Paris", ["in paris", "x y"])[0] / 2,
                                   lexical.bm25("paris", ["in paris", "x y"])[0])  # fmt: skip

    def test_longest_common(self) -> None:
        parts = ["the blue pottery of Kessel", "Kessel is blue", "nothing"]
        assert lexical.longest_common("famous for its blue pottery.", parts).tolist() == [2, 1, 0]

    @pytest.mark.parametrize(
        ("answer", "reference", "f1"),
        [
            ("In Paris.", "paris in", 1.0),
            ("Paris", "in Paris", 2 / 3),
            ("Rome", "Paris", 0),
            ("", "", 1),
        ],
    )
    def test_token_f1(self, answer: str, reference: str, f1: float) -> None:
        assert token_f1(answer, reference) == pytest.approx(f1)


class TestConversation:
    def test_batched_answers_are_those_of_the_model_itself(self, case: cases.Case, tiny: Tiny) -> None:
        model = tiny()
        n = len(case.spans)
        masks = np.concatenate([np.ones((1, n), dtype=bool), rankings.leave_one_out(n)[:3]])
        talk = LocalConversation(model, case.prompt, case.spans, most=MOST)
        together = talk.answers(masks)
        for mask, answer in zip(masks, together, strict=True):
            alone = LocalConversation(model, case.prompt, case.spans, most=MOST)
            assert alone.answers(mask[None]) == [answer]
        assert len(set(together)) > 1

    def test_scores_are_those_of_the_surrogate(self, case: cases.Case, tiny: Tiny) -> None:
        model, n = tiny(), len(case.spans)
        talk = LocalConversation(model, case.prompt, case.spans, most=MOST)
        talk.explain("Paris")
        features = split(case.prompt, case.spans, token_spans=model.token_spans)
        scorer = model.prepare(case.prompt, features, "Paris", ablation=Ablation())
        masks = np.concatenate([np.ones((1, n), dtype=bool), rankings.leave_one_out(n)])
        expected = scorer.score(masks, kl=False).output_logprob
        np.testing.assert_allclose(talk.score(masks), expected, atol=1e-4)
        np.testing.assert_allclose(talk.score(masks[2:4]), expected[2:4], atol=1e-4)


def test_arc_jsd_is_scipys(case: cases.Case, tiny: Tiny) -> None:
    model, n = tiny(), len(case.spans)
    features = split(case.prompt, case.spans, token_spans=model.token_spans)
    scorer = model.prepare(case.prompt, features, "Paris", ablation=Ablation())
    found = rankings.arc_jsd(model, scorer, n)
    assert found.shape == (n,)
    both = [
        _predictions(model, scorer, mask)
        for mask in (np.ones(n, dtype=bool), ~np.eye(n, dtype=bool)[2])
    ]
    expected = (jensenshannon(*both, axis=1) ** 2).sum()
    assert found[2] == pytest.approx(expected, rel=1e-3)


def _predictions(model: LocalSurrogate, scorer: LocalScorer, mask: Any) -> Any:
    import torch

    sequence = scorer.tokenized.sequence(0, mask)
    with torch.inference_mode():
        logits = model.model(input_ids=torch.as_tensor(sequence.ids)[None]).logits[0]
    return logits[-sequence.n_outputs :].softmax(-1).double().numpy()


class TestRun:
    def rows(self, case: cases.Case, tiny: Tiny, folder: Path, **how: Any) -> dict[str, Any]:
        store = Store(folder / "closed.jsonl", {"bench": "closed"}, [run.CASE])
        models = {"tiny": tiny()}
        case = replace(case, output="Paris")  # the tiny model's own is blank
        run.run([case], how.pop("converse", local(tiny())), models, store, seed=0, **how)
        (row,) = read(folder / "closed.jsonl")[1]
        return dict(row)

    def test_the_answering_model_explains_itself(
        self, case: cases.Case, tiny: Tiny, tmp_path: Path
    ) -> None:
        row = self.rows(case, tiny, tmp_path)
        found, n = row["rankings"], row["features"]
        oracle, own = found[measures.ORACLE], found["tiny: leave-one-out, nll"]
        np.testing.assert_allclose(oracle["weights"], own["weights"], atol=1e-3)
        first = int(np.argmax(oracle["weights"]))
        drop = oracle["weights"][first] / (row["full"] - row["none"])
        assert oracle["necessity1"] == pytest.approx(np.clip(drop, -0.5, 1.5), abs=1e-3)
        assert oracle["kept1"] == row["kept"][1 + first]
        assert len(row["kept"]) == n + 1
        assert len(row["held_out"]) == 64
        assert row["measured"] == "log-probability"
        for figures in found.values():
            assert {"necessity1", "necessity3", "sufficiency2", "sufficiency4", "lds", "f1"} <= set(
                figures
            )
            assert len(figures["weights"]) == n
        assert found["tiny: evidence"]["tokens"] < found[f"tiny: {CONTEXTCITE}"]["tokens"]

    def test_a_second_run_adds_nothing(self, case: cases.Case, tiny: Tiny, tmp_path: Path) -> None:
        first = self.rows(case, tiny, tmp_path)
        assert self.rows(case, tiny, tmp_path) == first

    def test_without_an_answering_model_labels_remain(
        self, case: cases.Case, tiny: Tiny, tmp_path: Path
    ) -> None:
        row = self.rows(case, tiny, tmp_path, converse=None, exact=False)
        assert measures.ORACLE not in row["rankings"]
        assert set(row["rankings"]["BM25(answer)"]) == {"first", "f1", "auroc", "tokens", "weights"}
        assert f"tiny: {CONTEXTCITE}" not in row["rankings"]


class TestAttempts:
    SIGNALS = {  # noqa: RUF012
        "shift": np.array([0.5, 0.5, 0.0]),
        "words": np.array([0.0, 0.5, 0.5]),
        "question": np.zeros(3),
    }

    def test_ways_to_mix(self) -> None:
        equal = attempts.mixed(self.SIGNALS, dict.fromkeys(self.SIGNALS, 1.0))
        np.testing.assert_allclose(equal, [0.25, 0.5, 0.25])  # the question says nothing
        np.testing.assert_allclose(attempts.mixed({"shift": np.zeros(4), "words": np.zeros(4)}), 0.25)
        assert attempts.product(self.SIGNALS).argmax() == 1
        assert attempts.mean_rank(self.SIGNALS).argmax() == 1

    def test_the_first_parts_differ_and_weights_stay(self) -> None:
        parts = ["The cat sat.", "The cat sat.", "A dog ran.", "No."]
        dealt = attempts.differing(parts, np.array([0.4, 0.3, 0.2, 0.1]))
        assert dealt.tolist() == [0.4, 0.1, 0.3, 0.2]

    def test_they_are_rows_beside_the_presets(
        self, case: cases.Case, tiny: Tiny, tmp_path: Path
    ) -> None:
        how = {"converse": None, "only": ["evidence", "instant"], "attempts": True}
        found = TestRun().rows(case, tiny, tmp_path, **how)["rankings"]
        tried = [name for name in found if name.startswith(f"tiny: {attempts.NAME}")]
        assert len(tried) == attempts.MOST
        for name in tried:
            weights = np.array(found[name]["weights"])
            assert weights.min() >= 0
            assert weights.sum() == pytest.approx(1, abs=1e-3), name
            assert 0 <= found[name]["auroc"] <= 1


class TestFittedToLabels:
    """Signals of which only words tell what is cited."""

    def rows(self) -> list[dict[str, Any]]:
        rng = np.random.default_rng(0)
        found = []
        for _ in range(20):
            shares = {name: rng.dirichlet(np.ones(8)) for name in ("shift", "question", "attention")}
            shares["words"] = np.where(np.arange(8) == rng.integers(8), 0.65, 0.05)
            gold = [int(shares["words"].argmax())]
            known = {name: each.tolist() for name, each in shares.items()}
            found.append({"features": 8, "gold": gold, "rankings": tried(**known)})
        return found

    def test_each_half_is_judged_by_what_the_other_taught(self) -> None:
        lines = labelled.table([({"surrogates": {"a": {}}}, self.rows())]).splitlines()[2:]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert [line[1] for line in cells] == ["`evidence`", "mean", "geometric mean"]
        default = float(cells[0][3])
        assert default < 1
        for _, _, weights, f1, auroc, apart in cells[1:]:
            assert float(apart.split()[0]) == pytest.approx(1 - default, abs=1e-3)
            for half in weights.split(" and "):
                assert float(half.split("/")[1]) == max(map(float, half.split("/")))
            assert (f1, auroc) == ("1.000", "1.000")

    def test_a_geometric_mean(self) -> None:
        shares = np.array([[0.8, 0.2], [0.5, 0.5]])
        kept = np.log((shares + 0.05) / (shares[:, ::-1] + 0.05))[:, 0]
        found = labelled.geometric(np.array([2.0, 3.0]), shares)
        assert found.sum() == pytest.approx(1)
        assert np.log(found[0] / found[1]) == pytest.approx(2 * kept[0] + 3 * kept[1])

    def test_without_runs_there_is_no_table(self) -> None:
        assert labelled.table([]) == "–"


def tried(**signals: list[float]) -> dict[str, Any]:
    """The rankings of a row by the signals of the surrogate ``a``."""
    return {f"a: {attempts.NAME}{name} alone": {"weights": each} for name, each in signals.items()}


def test_four_calls_with_the_signals_in_turn() -> None:
    """`evidence` takes part 0, the shift 1, the words 2 (0 and 1 are taken), and the question 4."""
    rankings = tried(
        shift=[0.48, 0.50, 0.02, 0, 0, 0],
        words=[0.40, 0.42, 0.18, 0, 0, 0],
        question=[0.45, 0, 0, 0, 0.55, 0],
    )
    rows = [
        {"rankings": rankings, "kept": [0.0, *(0.1 if i == changing else 1.0 for i in range(6))]}
        for changing in (4, 3, None)
    ]
    files: list[Any] = [({"surrogates": {"a": {}}}, rows)]
    assert page._in_turn(files) == "0.50", "nothing changes the third"
    assert page._nine(files) == "1.00"


def test_the_default_counts_the_last_part_as_the_package_does() -> None:
    shares = {"shift": [0.6, 0.3, 0.1], "words": [0.2, 0.5, 0.3], "question": [0.1, 0.1, 0.8]}
    found = place.weights({"rankings": tried(**shares)}, "a")
    signals = {name: np.array(each) for name, each in shares.items()}
    signals["question"] = without_place(signals["question"])
    np.testing.assert_allclose(found, attempts.mixed(signals))
    assert found[2] < place.weights({"rankings": tried(**shares)}, "a", 1.0)[2]


def test_a_section_says_that_its_default_is_an_older_one() -> None:
    header = {"surrogates": {"a": {}, "b": {}}, "last_part": {"a": place.COUNTED}}
    assert page.in_full(header) == ["b"]
    assert page.in_full({"surrogates": {"a": {}}}) == ["a"]


def knows(handler: servers.Handler) -> None:
    """A model that reads "a1 is here." and "B": it says Paris with both, Rome without the first."""
    text = handler.body["messages"][0]["content"]
    if not text.endswith("\n\nWho?"):
        answer = "I cannot see a question."
    elif "a1 is here." not in text:
        answer = "Rome"
    else:
        answer = "Paris" if "four b." in text else "In Paris"
    servers.says(answer)(handler)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[servers.Proxy]:
    pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    with servers.Proxy(otherwise=knows).running() as proxy:
        yield proxy


@pytest.mark.slow
class TestServed:
    """An answering model behind a server that gives answers only."""

    @pytest.fixture
    def closed(self, server: servers.Proxy, tmp_path: Path) -> Callable[..., int]:
        tiny_model("llama").model.save_pretrained(tmp_path / "tiny")
        byte_level("chatml").save_pretrained(tmp_path / "tiny")
        data = write_hotpotqa(tmp_path / "hotpot.json", [sized("four", 4)])

        def call(*more: str) -> int:
            given = ["--answering", f"{server.url}#org/big", "--data", str(data)]
            here = ["--surrogate", str(tmp_path / "tiny"), "--device", "cpu", "--dtype", "float32"]
            results = ["--results", str(tmp_path / "closed.jsonl"), "--cached-only"]
            return main(["closed", "hotpotqa", *given, *here, *results, *more])

        return call

    def test_from_end_to_end(
        self, closed: Any, server: servers.Proxy, tmp_path: Path, capsys: Any
    ) -> None:
        assert closed() == 0
        header, (row,) = read(tmp_path / "closed.jsonl")
        assert header["answering"] == {
            "model": "org/big", "base_url": server.url, "name": "big",
            "sampling": {"temperature": 0, "max_tokens": 32},
        }  # fmt: skip
        assert (row["measured"], row["output"]) == ("answers", "Paris")
        assert (row["full"], row["none"]) == (1.0, 0.0)
        # Without the part that it needs F1 is 0; with "In Paris" for "Paris" it is 2/3.
        expected = np.zeros(row["features"])
        spans = cases.hotpotqa(tmp_path / "hotpot.json")[0].parts
        expected[[part.strip() for part in spans].index("a1 is here.")] = 1
        expected[spans.index("four b.")] = 1 / 3
        oracle = row["rankings"][measures.ORACLE]
        np.testing.assert_allclose(oracle["weights"], expected, atol=1e-4)
        assert (oracle["necessity1"], oracle["kept1"], oracle["sufficiency2"]) == (1, 0, 1)
        unseen = held_out(row["features"], np.random.default_rng([0, 0, 1]))
        true = np.where(unseen @ (expected == 1), 2 / 3 + unseen @ (expected == 1 / 3) / 3, 0)
        np.testing.assert_allclose(row["held_out"], true, atol=1e-4)
        assert oracle["lds"] == pytest.approx(spearman(unseen @ expected, true), abs=1e-4)
        for figures in row["rankings"].values():
            assert figures["necessity1"] == pytest.approx(1 - figures["kept1"])
        most = int(re.findall(r"up to (\d+) calls of .* for 1 prompts", capsys.readouterr().err)[0])
        contents = [body["messages"][0]["content"] for body in server.seen]
        assert len(set(contents)) == len(contents) <= most, "nothing is asked twice"
        assert all(body["temperature"] == 0 for body in server.seen)

    def test_answers_come_from_the_cache(
        self, closed: Any, server: servers.Proxy, tmp_path: Path
    ) -> None:
        assert closed() == 0
        assert closed("--max-calls", "1") == 0, "nothing is left to do"
        first, asked = (tmp_path / "closed.jsonl").read_bytes(), len(server.seen)
        (tmp_path / "closed.jsonl").unlink()
        assert closed() == 0
        assert (tmp_path / "closed.jsonl").read_bytes() == first
        assert len(server.seen) == asked

    def test_too_many_calls_are_refused_before_any_is_made(
        self, closed: Any, server: servers.Proxy, tmp_path: Path, capsys: Any
    ) -> None:
        assert closed("--max-calls", "100") == 1
        assert not (tmp_path / "closed.jsonl").exists()
        assert re.search(r"take up to \d+ calls.* --max-calls allows 100", capsys.readouterr().err)
        assert server.seen == []

    def test_an_empty_answer_is_one(self, case: cases.Case, server: servers.Proxy) -> None:
        server.faults = [servers.says("")]
        with Pool(2) as pool:
            talk = ServedConversation(AnsweringModel("m", server.url), pool, case.prompt, case.spans)
            assert talk.answers(np.zeros((1, len(case.spans)), dtype=bool)) == [""]

    def test_a_model_is_named_with_its_server(self, closed: Any, capsys: Any) -> None:
        assert closed("--answering", "http://localhost:1/v1") == 1
        assert "URL#MODEL" in capsys.readouterr().err

    def test_the_page_says_how_it_was_measured(self, closed: Any, tmp_path: Path) -> None:
        assert closed() == 0
        (written,) = report.write([tmp_path / "closed.jsonl"], tmp_path)
        text = written.read_text(encoding="utf-8")
        assert "### HotpotQA, ten paragraphs: big answers" in text
        assert "*Measured by answers.*" in text


def test_the_page(case: cases.Case, tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "closed-hotpotqa-tiny.jsonl"
    settings: dict[str, Any] = {"bench": "closed", "kind": "hotpotqa", "command": "it"}
    settings |= {"answering": {"name": "tiny"}, "limit": 3}
    store = Store(path, settings, [run.CASE])
    twice = [replace(case, id=name, output="Paris") for name in ("one", "two")]
    run.run(twice, local(tiny()), {"tiny": tiny()}, store, seed=0, exact=False)
    (written,) = report.write([path], tmp_path)
    text = written.read_text(encoding="utf-8")
    assert "### HotpotQA, ten paragraphs: tiny answers" in text
    row = next(line for line in text.splitlines() if line.startswith(f"| {measures.ORACLE} |"))
    rows = [line["rankings"][measures.ORACLE]["necessity1"] for line in read(path)[1]]
    assert row.split(" | ")[1] == f"{np.mean(rows):.2f}"
    assert "Difference from BM25(question + 2 × answer)" in text
    assert "2 prompts with 12 parts on average; the run was stopped before it reached 3." in text


class TestRenew:
    def test_what_is_known_without_a_further_answer(self) -> None:
        row = {
            "features": 2, "number": 0, "gold": [1], "kept": [0.0, 1.0, 0.25], "full": -1.0,
            "none": -5.0, "held_out": [-1.0, -2.0, -3.0, -4.0],
            "rankings": {measures.ORACLE: {"weights": [1.0, 3.0]}},
        }  # fmt: skip
        found = renew.known(row, np.array([0.2, 0.8]), (0, 0))
        assert (found["necessity1"], found["kept1"], found["first"]) == (0.75, 0.25, 1.0)
        assert "sufficiency4" not in found, "nobody was asked"

    def test_earlier_presets_stay_under_another_name(self, case: cases.Case, tiny: Tiny) -> None:
        counted = {"evidence": {"shift": 0.6, "words": 0.4}, "instant": {"words": 1.0}}
        header = {"seed": 0, "signals": counted}
        earlier = {"tiny: evidence": {"f1": 0.5}, "tiny: evidence without words": {"f1": 0.4}}
        row = {
            "example": case.id, "number": 0, "features": len(case.spans), "gold": [0],
            "output": "Paris",
            "rankings": {"random": {"f1": 0.0}, **earlier, "tiny: AT2": {"f1": 0.3}},
        }  # fmt: skip
        found = renew.renew(row, case, tiny(), "tiny", header)["rankings"]
        assert found["tiny: earlier evidence, 0.6/0.4"] == {"f1": 0.5}
        assert (found["random"], found["tiny: AT2"]) == ({"f1": 0.0}, {"f1": 0.3})
        assert found["tiny: earlier evidence without words, 0.6/0.4"] == {"f1": 0.4}
        assert len(found) == 6
        assert sum(found["tiny: evidence"]["weights"]) == pytest.approx(1, abs=1e-3)
        assert 0 < found["tiny: instant"]["tokens"] < found["tiny: evidence"]["tokens"]
        assert renew.renew({"example": "x"}, case, tiny(), "tiny", header) == {"example": "x"}

    def test_rows_of_a_second_surrogate_are_left_alone(self, case: cases.Case, tiny: Tiny) -> None:
        present = {"evidence": dict(learnt.EVIDENCE), "instant": dict(learnt.INSTANT)}
        counted = {**present, "evidence": {"shift": 1.0}}
        given = {f"{who}: {name}": {"f1": -1.0} for who in "ab" for name in ("evidence", "instant")}
        row = {
            "example": case.id, "number": 0, "features": len(case.spans), "gold": [0],
            "rankings": given,
        }  # fmt: skip
        once = renew.renew(row, case, tiny(), "a", {"seed": 0, "signals": counted})
        found = once["rankings"]
        assert all(found[f"{who}: earlier evidence, 1"] == {"f1": -1.0} for who in "ab")
        assert found["b: instant"] == {"f1": -1.0}, "it counts the same signals as before"
        assert "b: evidence" not in found
        twice = renew.renew(once, case, tiny(), "b", {"seed": 0, "signals": present})["rankings"]
        assert all(twice[name] == found[name] for name in found if name != "b: instant")
        assert set(twice) - set(found) == {"b: evidence"}
        with pytest.raises(InputError, match="'a: earlier evidence, 1' already"):
            renew.renew({**row, "rankings": {**found, **given}}, case, tiny(), "a",
                        {"seed": 0, "signals": counted})  # fmt: skip

    def test_rows_of_the_same_signals_are_replaced(self, case: cases.Case, tiny: Tiny) -> None:
        signals = {"evidence": dict(learnt.EVIDENCE), "instant": dict(learnt.INSTANT)}
        ours = ("tiny: evidence", "tiny: evidence without shift", "tiny: instant")
        row = {
            "example": case.id, "number": 0, "features": len(case.spans), "gold": [0],
            "rankings": {"random": {"f1": 0.0}, **{name: {"f1": -1.0} for name in ours}},
        }  # fmt: skip
        again = renew.renew(row, case, tiny(), "tiny", {"seed": 0, "signals": signals})["rankings"]
        assert set(again) == {"random", *ours}
        assert all(again[name]["f1"] >= 0 for name in ours)
        assert again["tiny: evidence"]["weights"] != again["tiny: evidence without shift"]["weights"]
