"""Peers that read attention or search with log-probabilities, on known answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench_toy import sized, write_hotpotqa
from benchmarks.cli import main
from benchmarks.closed import attention, cases, flow, heads, peers, rankings
from benchmarks.memo import Memo
from benchmarks.store import Store, read
from ropelime.errors import InputError, ModelError
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.features import split

Tiny = Callable[..., LocalSurrogate]


@pytest.fixture
def case(tmp_path: Path) -> cases.Case:
    return cases.hotpotqa(write_hotpotqa(tmp_path / "hotpot.json", [sized("four", 4)]))[0]


def prepared(case: cases.Case, model: LocalSurrogate, output: str = "Paris is fine.") -> LocalScorer:
    features = split(case.prompt, case.spans, token_spans=model.token_spans)
    return model.prepare(case.prompt, features, output, ablation=Ablation())


def eager(model: LocalSurrogate, ids: Any, rows: int) -> Any:
    """(layers, heads, rows, N) attention as transformers returns it."""
    before = model.model.config._attn_implementation
    model.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            found = model.model(input_ids=torch.as_tensor(ids)[None], output_attentions=True)
    finally:
        model.model.set_attn_implementation(before)
    return torch.stack([layer[0, :, -rows:] for layer in found.attentions]).numpy()


class TestAttention:
    @pytest.mark.parametrize(
        "name", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral-window", "gpt-neox"]
    )
    def test_it_is_that_of_the_model(self, case: cases.Case, tiny: Tiny, name: str) -> None:
        model = tiny(name)
        sequence = prepared(case, model).tokenized.sequence(0, np.ones(len(case.spans), dtype=bool))
        found: dict[int, Any] = {}
        attention.read(model, sequence.ids, 5, lambda layer, rows: found.update({layer: rows.numpy()}))
        assert sorted(found) == [0, 1, 2]
        together = np.stack([found[layer] for layer in sorted(found)])
        np.testing.assert_allclose(together.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(together, eager(model, sequence.ids, 5), atol=1e-5)

    def test_the_model_stays_as_it_was(self, case: cases.Case, tiny: Tiny) -> None:
        model = tiny()
        before = model.model.config._attn_implementation
        attention.of_parts(model, prepared(case, model).tokenized)
        assert model.model.config._attn_implementation == before

    def test_parts_sum_their_tokens(self, case: cases.Case, tiny: Tiny) -> None:
        model, n = tiny(), len(case.spans)
        tokenized = prepared(case, model).tokenized
        sequence = tokenized.sequence(0, np.ones(n, dtype=bool))
        rows = eager(model, sequence.ids, len(tokenized.output_ids)).mean(2)
        found = attention.of_parts(model, tokenized)
        assert found.shape == (3, 4, n)
        for part in range(n):
            expected = rows[:, :, sequence.owner == part].sum(-1)
            np.testing.assert_allclose(found[:, :, part], expected, atol=1e-5)

    def test_other_attention_is_refused(self, case: cases.Case, tiny: Tiny) -> None:
        model = tiny("bloom")
        with pytest.raises(ModelError, match="AttentionInterface"):
            attention.of_parts(model, prepared(case, model).tokenized)


class TestHeads:
    def test_a_planted_head_is_found(self) -> None:
        rng = np.random.default_rng(0)
        features = rng.normal(size=(64, 32, 12))
        targets = 3 * features[:, :, 7] - features[:, :, 2] + rng.normal(size=(64, 32)) * 0.1
        learnt = heads.learn(features, targets, seed=0)
        assert np.abs(learnt).sum() == pytest.approx(1)
        assert learnt.argmax() == 7
        assert learnt.argmin() == 2
        others = np.delete(learnt, [2, 7])
        assert np.abs(others).max() < 0.1 * learnt[7]

    def test_correlation_is_pearsons(self) -> None:
        a, b = np.random.default_rng(0).normal(size=(2, 5, 9))
        found = heads.correlation(torch.tensor(a), torch.tensor(b)).numpy()
        np.testing.assert_allclose(found, [np.corrcoef(x, y)[0, 1] for x, y in zip(a, b, strict=True)])

    def test_a_sample_is_signed_attention_and_log_odds(
        self, case: cases.Case, tiny: Tiny, tmp_path: Path
    ) -> None:
        model, n, path = tiny(), len(case.spans), tmp_path / "heads.jsonl"
        how: dict[str, Any] = {"masks": 4, "seed": 1, "most": 3, "ablation": Ablation()}
        store = Store(path, {}, [heads.SAMPLE])
        heads.sample([case], model, store, answers={case.id: "Paris"}, **how)
        features, targets = heads.samples(read(path)[1])
        masks = np.random.default_rng([1, 0]).random((4, n)) < 0.5
        scorer = prepared(case, model, "Paris")
        mass = attention.of_parts(model, scorer.tokenized).reshape(12, n)
        np.testing.assert_allclose(features[0], (2.0 * masks - 1) @ mass.T, atol=1e-5)
        full = np.ones((1, n), dtype=bool)
        logprob = scorer.score(np.concatenate([full, masks]), kl=False).output_logprob[1:]
        p = np.exp(logprob)
        np.testing.assert_allclose(targets[0], np.log(p / (1 - p)), atol=1e-3)

    def test_cases_without_an_answer_are_left_out(
        self, case: cases.Case, tiny: Tiny, tmp_path: Path
    ) -> None:
        store = Store(tmp_path / "heads.jsonl", {}, [heads.SAMPLE])
        how: dict[str, Any] = {"masks": 4, "seed": 1, "most": 3, "ablation": Ablation()}
        heads.sample([case], tiny(), store, answers={}, **how)
        assert not store.done  # an answer may come later
        with pytest.raises(InputError, match="nothing to learn"):
            heads.samples(read(store.path)[1])

    def test_scores_are_weighted_attention(self) -> None:
        mass = np.arange(12.0).reshape(2, 2, 3)
        found = peers.at2(mass, heads.Heads("m", 2, 2, [[1, 0], [0, -1]], "", 1, ""))
        assert found.tolist() == (mass[0, 0] - mass[1, 1]).tolist()
        with pytest.raises(InputError, match="Learn them again"):
            peers.at2(mass, heads.Heads("m", 1, 2, [[1, 0]], "", 1, ""))

    def test_a_damaged_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "heads.json"
        heads.Heads("m", 2, 2, [[1, 0], [0, -1]], "it", 1, "data").save(path)
        assert heads.Heads.load(path).weights == [[1, 0], [0, -1]]
        path.write_text(path.read_text().replace('"layers": 2', '"layers": 3'))
        with pytest.raises(InputError, match="3 layers of 2 heads"):
            heads.Heads.load(path)
        path.write_text("{}")
        with pytest.raises(InputError, match="does not hold weights"):
            heads.Heads.load(path)


class TestAttnTrace:
    def test_one_subset_of_everything(self, case: cases.Case, tiny: Tiny) -> None:
        model, n = tiny(), len(case.spans)
        tokenized = prepared(case, model).tokenized
        full = np.ones((1, n), dtype=bool)
        sequence = tokenized.sequence(0, full[0])
        mean = eager(model, sequence.ids, len(tokenized.output_ids)).mean((0, 1, 2))
        expected = [np.sort(mean[sequence.owner == part])[-5:].mean() for part in range(n)]
        np.testing.assert_allclose(peers.attntrace(model, tokenized, full), expected, rtol=1e-4)

    def test_subsets_are_averaged_where_a_part_is_in(self, case: cases.Case, tiny: Tiny) -> None:
        model, n = tiny(), len(case.spans)
        tokenized = prepared(case, model).tokenized
        masks = np.zeros((2, n), dtype=bool)
        masks[0, [0, 3]] = masks[1, [0, 5]] = True
        both = peers.attntrace(model, tokenized, masks)
        one, two = (peers.attntrace(model, tokenized, mask[None]) for mask in masks)
        np.testing.assert_allclose(both[0], (one[0] + two[0]) / 2)
        np.testing.assert_allclose(both[[3, 5]], [one[3], two[5]])
        assert both[[1, 2, 4]].tolist() == [0, 0, 0]

    @pytest.mark.parametrize(("n", "size"), [(42, 16), (5, 2), (2, 1)])
    def test_subsets_hold_two_fifths(self, n: int, size: int) -> None:
        masks = peers.random_subsets(n, np.random.default_rng(0))
        assert masks.shape == (30, n)
        assert set(masks.sum(1)) == {size}


class TestFlashTrace:
    @pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
    def test_one_hop_is_its_definition(self, case: cases.Case, tiny: Tiny, name: str) -> None:
        """Every vector that a token sends through a head, written out for all layers."""
        model = with_biases(tiny(name))
        tokenized = prepared(case, model).tokenized
        ids = np.concatenate([tokenized.ids, tokenized.output_ids])
        rows = len(tokenized.output_ids)
        kept = np.array(
            [model.tokenizer.decode([i]).strip() not in ("", ",", ".") for i in ids.tolist()]
        )
        expected = _by_definition(model, ids, rows, kept[-rows:])
        expected[-rows:] = 0
        np.testing.assert_allclose(flow.flow(model, ids, rows, hops=0), expected * kept, atol=1e-4)
        found = flow.flashtrace(model, tokenized, hops=0)
        owned = [(expected * kept)[: len(tokenized.ids)][tokenized.owner == i].sum() for i in range(12)]
        np.testing.assert_allclose(found, owned, atol=1e-4)

    def test_a_hop_adds_what_flows_through_the_answer(self, case: cases.Case, tiny: Tiny) -> None:
        model = tiny()
        tokenized = prepared(case, model).tokenized
        none, one = (flow.flashtrace(model, tokenized, hops=hops) for hops in (0, 1))
        assert (one >= none).all()
        assert one.sum() > none.sum()

    def test_other_layers_are_refused(self, case: cases.Case, tiny: Tiny) -> None:
        assert not flow.traceable(tiny("gemma2"))
        assert not flow.traceable(tiny("gpt-neox"))
        with pytest.raises(ModelError, match="Llama or Qwen"):
            flow.flashtrace(tiny("gemma2"), prepared(case, tiny("gemma2")).tokenized)


def with_biases(model: LocalSurrogate) -> LocalSurrogate:
    """The same model with random biases, which are 0 in a new one."""
    own = deepcopy(model.model)
    torch.manual_seed(1)
    for name, weight in own.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    return LocalSurrogate(own, model.tokenizer, name=model.name)


def _by_definition(model: LocalSurrogate, ids: Any, rows: int, sinks: Any) -> Any:
    alpha = eager(model, ids, rows)
    with torch.inference_mode():
        states = model.model(input_ids=torch.as_tensor(ids)[None], output_hidden_states=True)
        total = np.zeros(len(ids))
        for number, layer in enumerate(model.model.model.layers):
            x = states.hidden_states[number]
            block = layer.self_attn
            v = (layer.input_layernorm(x)[0] @ block.v_proj.weight.T).view(len(ids), 2, 8)
            out = block.o_proj.weight.view(32, 4, 8)
            paid = torch.as_tensor(alpha[number][:, sinks]).sum(1)  # (heads, N)
            bias = block.v_proj.bias
            of_bias = 0 if bias is None else bias.view(2, 1, 8).expand(2, 2, 8).reshape(-1)
            sent = torch.stack(
                [torch.stack([paid[h, j] * (out[:, h] @ v[j, h // 2]) for h in range(4)])
                 for j in range(len(ids))]
            )  # (N, heads, H)  # fmt: skip
            before = x[0, -rows:][torch.as_tensor(sinks)].sum(0)
            constant = block.o_proj.weight @ (torch.zeros(32) + of_bias)
            after = before + sent.sum((0, 1)) + sinks.sum() * constant
            near = (after.abs().sum() - (sent - after).abs().sum(-1)).clamp(min=0).sum(1)
            rest = (after.abs().sum() - (before - after).abs().sum()).clamp(min=0)
            total += (near / (near.sum() + rest)).numpy()
    return total


class TestTracLLM:
    @pytest.mark.parametrize("n", [6, 42, 64])
    def test_a_planted_part_is_found_in_few_calls(self, n: int) -> None:
        calls: list[Any] = []

        def logprob(masks: Any) -> Any:
            calls.extend(masks)
            return 3.0 * masks[:, n - 2] + 0.01 * masks.sum(1)

        found = peers.tracllm(logprob, n, np.random.default_rng(0))
        assert found.argmax() == n - 2
        assert found[n - 2] == pytest.approx(2 * 3.01)  # leave-one-out counts twice
        assert len(calls) < 330
        assert 5 <= (found > found.min()).sum() <= 15

    def test_parts_that_need_each_other_are_found(self) -> None:
        """Neither matters alone, so only leave-one-out and Shapley values see them."""
        found = peers.tracllm(
            lambda masks: np.where(masks[:, [3, 20]].all(1), 2.0, 0.0), 30, np.random.default_rng(0)
        )
        assert set(np.argsort(-found)[:2]) == {3, 20}

    def test_few_parts_are_scored_as_they_are(self) -> None:
        effects = np.array([1.0, -2.0, 0.5])
        found = peers.tracllm(lambda masks: masks @ effects, 3, np.random.default_rng(0))
        np.testing.assert_allclose(found, [2, -2, 1])  # the larger of once and twice

    def test_parts_that_are_never_scored_come_last(self) -> None:
        found = peers.tracllm(lambda masks: -masks.sum(1).astype(float), 12, np.random.default_rng(0))
        scored = found > found.min()
        assert scored.sum() >= 5
        assert found.min() == pytest.approx(-1)


class TestRows:
    def rows(self, case: cases.Case, model: LocalSurrogate, **how: Any) -> Any:
        return rankings.by_surrogate(case, "Paris", model, (0, 0), **how)

    def test_every_peer_has_weights_and_tokens(self, case: cases.Case, tiny: Tiny) -> None:
        n, model = len(case.spans), tiny()
        learnt = {"own": heads.Heads("tiny", 3, 4, [[1 / 12] * 4] * 3, "", 1, "")}
        weights, tokens = self.rows(case, model, heads=learnt)
        names = ["AT2 (own)", peers.FLASHTRACE, peers.ATTNTRACE, peers.TRACLLM]
        for name in names:
            assert weights[name].shape == (n,)
            assert np.isfinite(weights[name]).all()
        whole = int(prepared(case, model, "Paris").cost(np.ones((1, n), dtype=bool))[0])
        assert tokens["AT2 (own)"] == tokens[peers.FLASHTRACE] == whole
        assert whole * 30 > tokens[peers.ATTNTRACE] > whole * 8
        assert tokens[peers.TRACLLM] > tokens[peers.ATTNTRACE]
        again, _ = self.rows(case, model, heads=learnt)
        for name in names:
            np.testing.assert_array_equal(weights[name], again[name])

    def test_cached_only_leaves_out_what_takes_many_passes(self, case: cases.Case, tiny: Tiny) -> None:
        weights, _ = self.rows(case, tiny(), exact=False)
        assert peers.FLASHTRACE in weights
        assert not {peers.ATTNTRACE, peers.TRACLLM, "AT2 (own)"} & set(weights)

    def test_other_architectures_leave_rows_out(self, case: cases.Case, tiny: Tiny) -> None:
        weights, _ = self.rows(case, tiny("gpt-neox"))
        assert {peers.ATTNTRACE, peers.TRACLLM} <= set(weights)
        assert peers.FLASHTRACE not in weights

    def test_tracllm_scores_as_the_surrogate(self, case: cases.Case, tiny: Tiny) -> None:
        model, n = tiny(), len(case.spans)
        weights, _ = self.rows(case, model)
        memo = Memo(model, [])
        features = split(case.prompt, case.spans, token_spans=model.token_spans)
        scorer = memo.prepare(case.prompt, features, "Paris", ablation=Ablation())
        alone = peers.tracllm(scorer.logprob, n, np.random.default_rng([0, 0, 5]))
        np.testing.assert_allclose(weights[peers.TRACLLM], alone, atol=1e-3)


class TestCommands:
    @pytest.fixture
    def saved(self, tiny: Tiny, tmp_path: Path) -> str:
        model = tiny()
        path = tmp_path / "saved"
        model.model.save_pretrained(path)
        model.tokenizer.save_pretrained(path)
        return str(path)

    def test_heads_and_then_closed(self, saved: str, tmp_path: Path) -> None:
        data = write_hotpotqa(tmp_path / "hotpot.json", [sized(name, 4) for name in ("one", "two")])
        answers = tmp_path / "closed.jsonl"
        store = Store(answers, {"bench": "closed"}, ["case"])
        for name in ("one", "two"):
            store.add(name, [{"example": name, "method": "case", "output": "Paris"}])
        made = tmp_path / "heads.json"
        shared = ["--data", str(data), "--surrogate", saved, "--device", "cpu", "--quiet"]
        how = ["--masks", "4", "--answers", str(answers), "--results", str(made)]
        command = ["heads", "hotpotqa", *shared, *how]
        assert main([*command, "--limit", "1"]) == 0
        assert main(command) == 0  # one more case
        assert len(read(made.with_suffix(".jsonl"))[1]) == 2
        learnt = json.loads(made.read_text())
        assert learnt["model"] == "saved"
        assert (learnt["layers"], learnt["heads"], learnt["examples"]) == (3, 4, 2)
        assert learnt["data"] == "hotpot.json"
        assert "heads hotpotqa" in learnt["command"]
        assert "--masks 4" in learnt["command"]
        results = tmp_path / "arena.jsonl"  # its cases have answers; the model's are blank
        arena = ["closed", "reference", *shared, "--limit", "1", "--results", str(results)]
        assert main([*arena, "--cached-only", "--heads", f"hotpot={made}"]) == 0
        header, (row,) = read(results)
        assert "--heads hotpot=heads.json" in header["command"]
        assert row["rankings"]["saved: AT2 (hotpot)"]["weights"]
        assert row["rankings"]["saved: AT2 (hotpot)"]["tokens"] > 0

    def test_heads_of_another_model_are_refused(
        self, saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = write_hotpotqa(tmp_path / "hotpot.json", [sized("one", 4)])
        made = tmp_path / "heads.json"
        heads.Heads("other", 3, 4, [[0.0] * 4] * 3, "", 1, "").save(made)
        arena = ["closed", "hotpotqa", "--data", str(data), "--surrogate", saved, "--quiet"]
        assert main([*arena, "--answering", saved, "--heads", f"x={made}"]) != 0
        assert "learnt for other" in capsys.readouterr().err
