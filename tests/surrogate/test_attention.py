"""Packed attention: the fused call, groups with keys in common and plain products agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from benchmarks.shapes import random_scorer, random_surrogate
from conftest import byte_level, tiny_model
from ropelime.method.rope import RopeSpace
from ropelime.surrogate import attention, cascade, engine, varlen
from ropelime.surrogate.base import ScoreRequest
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.packing import Cursor, Packer
from ropelime.surrogate.sequences import MaskedSequences
from ropelime.text import prompt as prompts
from ropelime.typing import Masks
from scoring import prepare

PROMPT = prompts.from_context(
    ["Paris is the capital. It lies on the Seine.", "The Louvre is a museum. A picture hangs there."],
    "Who painted the picture?",
)
ANSWER = "The painter was Leonardo."


def masks(n: int, count: int = 6) -> Masks:
    drawn = np.random.default_rng(0).random((count, n)) < 0.5
    return np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool), drawn])


def scorer(name: str = "llama", dtype: torch.dtype = torch.float32) -> LocalScorer:
    model = tiny_model(name, dtype=dtype).model
    return prepare(LocalSurrogate(model.to(dtype), byte_level("chatml")), PROMPT, "sentence", ANSWER)


def plain_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts_q: torch.Tensor,
    starts_k: torch.Tensor,
    most_q: int,
    most_k: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
    enable_gqa: bool = False,
    return_aux: Any = None,
) -> Any:
    """What the fused kernel of a GPU does, segment by segment: queries are the last of the keys."""
    parts, sums = [], []
    assert (int(starts_q[-1]), int(starts_k[-1])) == (len(query), len(key))
    assert starts_q.dtype == starts_k.dtype == torch.int32
    for at in range(len(starts_q) - 1):
        q = query[starts_q[at] : starts_q[at + 1]].float().transpose(0, 1)
        k, v = (t[starts_k[at] : starts_k[at + 1]].float().transpose(0, 1) for t in (key, value))
        assert 0 < q.shape[1] <= most_q
        assert 0 < k.shape[1] <= most_k
        place = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None]
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        if window_size[1] == 0:
            assert q.shape[1] <= k.shape[1]
            seen = torch.arange(k.shape[1]) <= place
        if window_size[0] >= 0:
            seen &= torch.arange(k.shape[1]) >= place - window_size[0]
        if enable_gqa:
            k, v = (t.repeat_interleave(len(q) // len(t), 0) for t in (k, v))
        normalized_weights = q @ k.transpose(1, 2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        normalized_weights.masked_fill_(~seen, float("-inf"))
        parts.append((normalized_weights.softmax(-1) @ v).transpose(0, 1).to(query.dtype))
        sums.append(normalized_weights.logsumexp(-1))
    return (torch.cat(parts), torch.cat(sums, 1)) if return_aux else torch.cat(parts)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral-window", "gpt-neox"])
def test_one_fused_call_is_the_same_as_plain_products(
    name: str, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cached and name == "mistral-window":
        pytest.skip("its window is shorter than the prompt")
    reader = scorer(name, torch.bfloat16)
    z = masks(reader.tokenized.n_features)
    plain = reader.score(z, kl=True, spaces=[RopeSpace()], cached=cached, batch_tokens=200)
    calls = 0

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        return plain_varlen(*arguments, **keywords)

    monkeypatch.setattr(varlen, "varlen_attn", counted, raising=False)
    monkeypatch.setattr(varlen, "PARAMETERS", {"window_size", "enable_gqa"})
    monkeypatch.setattr(attention, "has_varlen", lambda device: True)
    fused = reader.score(z, kl=True, spaces=[RopeSpace()], cached=cached, batch_tokens=200)
    assert calls > 3
    np.testing.assert_allclose(fused.logprob, plain.logprob, atol=0.2)  # bfloat16 rounds otherwise
    assert np.abs(fused.logprob - plain.logprob).mean() < 0.03
    space = RopeSpace()
    np.testing.assert_allclose(fused.distances[space], plain.distances[space], atol=0.1)


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Fused attention on a CPU in float32, groups of any length; notes for each call if it is joint."""
    calls: list[bool] = []

    def counted(*arguments: Any, **keywords: Any) -> Any:
        calls.append(keywords["window_size"][1] != 0)
        return plain_varlen(*arguments, **keywords)

    monkeypatch.setattr(varlen, "varlen_attn", counted, raising=False)
    monkeypatch.setattr(varlen, "AuxRequest", SimpleNamespace, raising=False)
    monkeypatch.setattr(varlen, "PARAMETERS", {"window_size", "enable_gqa", "return_aux"})
    monkeypatch.setattr(attention, "HALF", (torch.float32,))
    monkeypatch.setattr(attention, "has_varlen", lambda device: True)
    monkeypatch.setattr(cascade, "_LEAST", 1)
    return calls


@pytest.mark.parametrize("batch_tokens", [90, 400, 4096])
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral", "mistral-window", "gpt-neox"])
def test_keys_in_common_are_the_same_as_those_of_each_sequence(
    name: str, batch_tokens: int, sharing: list[bool]
) -> None:
    """Leave-one-out and random masks, of two prompts at once, one of them with two outputs."""
    surrogate = LocalSurrogate(tiny_model(name).model, byte_level("chatml"))
    longer = prompts.from_context(["One. Two. Three. Four. Five. Six. Seven. Eight."], "Which?")
    rng = np.random.default_rng(1)
    requests = []
    for prompt, answer in ((PROMPT, ANSWER), (longer, "Eight."), (longer, "It is five.")):
        reader = prepare(surrogate, prompt, "sentence", answer)
        n = reader.tokenized.n_features
        z = np.concatenate([masks(n), rng.random((6, n)) < 0.8])
        cached = name != "mistral-window"  # whose window is shorter than the prompt
        requests.append(
            ScoreRequest(
                reader,
                z,
                True,
                (RopeSpace(),),
                cached,
                question=cached,
                shares_previous=answer[0] == "I",
            )
        )
    shared = surrogate.score_all(requests, batch_tokens=batch_tokens)
    assert any(sharing) == (name != "mistral-window")
    assert not all(sharing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "has_varlen", lambda device: False)
        alone = surrogate.score_all(requests, batch_tokens=batch_tokens)
    for ours, theirs in zip(shared, alone, strict=True):
        np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-5)
        np.testing.assert_allclose(ours.kl, theirs.kl, atol=1e-5)  # type: ignore[arg-type]
        if ours.question is not None and theirs.question is not None:
            np.testing.assert_allclose(ours.question.logprob, theirs.question.logprob, atol=1e-5)


def test_no_groups_where_segments_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk, the prompt itself, shows whether the model's attention takes many at once."""
    found: list[int] = []
    chunk = Packer.chunk

    def watched(self: Packer, *arguments: Any, **keywords: Any) -> Any:
        made = chunk(self, *arguments, **keywords)
        found.append(len(made[0].groups))
        return made

    monkeypatch.setattr(Packer, "chunk", watched)
    monkeypatch.setattr(engine, "has_cascade", lambda device, dtype: True)
    monkeypatch.setattr(cascade, "_LEAST", 1)
    surrogate = random_surrogate("tiny", device="cpu", dtype="float32")
    reader = random_scorer(surrogate, features=20, tokens=4, outputs=3)
    z = np.concatenate([np.ones((1, 20), bool), ~np.eye(20, dtype=bool)])
    reader.score(z, kl=False, cached=True, batch_tokens=len(reader.tokenized.ids))
    assert len(found) > 2
    assert not any(found[1:])


@pytest.mark.parametrize(("window", "joint"), [(None, True), (1000, True), (40, False)])
def test_a_window_shorter_than_a_sequence_is_applied_to_each_sequence(
    window: int | None, joint: bool, sharing: list[bool]
) -> None:
    surrogate = random_surrogate("tiny", device="cpu", dtype="float32")
    reader = random_scorer(surrogate, features=20, tokens=4, outputs=3)
    z = np.concatenate([np.ones((1, 20), bool), ~np.eye(20, dtype=bool)])
    made = []
    for cascaded in (True, False):
        packer = Packer(MaskedSequences(reader.tokenized, z, cached=True), cascade=cascaded)
        (chunk, _) = packer.chunk(Cursor(), tokens=10_000, outputs=10_000)
        assert bool(chunk.groups) == cascaded
        torch.manual_seed(0)
        q, k, v = (torch.randn(1, heads, len(chunk.ids), 8) for heads in (6, 2, 2))
        packed = attention.PackedChunk(chunk, attention.PrefixCache(packer.capacity), (), {})
        module = SimpleNamespace(layer_idx=0)
        made.append(packed.attend(module, q, k, v, scaling=0.3, window=window, options={}))
        assert any(sharing) == (joint and cascaded)
        sharing.clear()
    torch.testing.assert_close(made[0], made[1], atol=1e-5, rtol=0)


@given(seed=st.integers(0, 10_000), kept=st.floats(0.3, 1.0), tokens=st.integers(20, 400))
@settings(max_examples=25, deadline=None)
def test_what_is_counted_is_what_is_gathered(seed: int, kept: float, tokens: int) -> None:
    surrogate = random_surrogate("tiny", device="cpu", dtype="float32")
    reader = random_scorer(surrogate, features=20, tokens=4, outputs=3, seed=seed)
    z = np.random.default_rng(seed).random((30, 20)) < kept
    z[0] = True
    bound = 500
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "_LEAST", 1)
        packer, cursor = (
            Packer(
                MaskedSequences(reader.tokenized, np.unique(z, axis=0)[::-1], cached=True), cascade=True
            ),
            Cursor(),
        )
        while not packer.finished(cursor):
            chunk, cursor = packer.chunk(cursor, tokens=tokens, outputs=1000, keys=bound)
            plan = varlen.VarlenPlan.of(chunk, torch.device("cpu"), cascade=True)
            gathered = len(plan.each.index) + (0 if plan.common is None else len(plan.common.index))
            assert gathered <= sum(len(segment.keys) for segment in chunk.segments)
            assert gathered <= bound or len(chunk.segments) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the fused kernel needs a GPU")
@pytest.mark.parametrize("kind", ["leave-one-out", "random"])
def test_cached_scores_on_a_gpu_equal_those_of_plain_attention(kind: str) -> None:
    """Groups with thousands of keys in common, against single sequences and a plain mask."""
    surrogate = random_surrogate("tiny", device="cuda", dtype="bfloat16")
    with torch.no_grad():  # larger than the usual start, so that what is read matters for what is said
        for weight in surrogate.model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 1.5 * weight.shape[-1] ** -0.5)
    n = 250
    reader = random_scorer(surrogate, features=n, tokens=16)
    drawn = np.random.default_rng(0).random((40, n)) < 0.97
    z = np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool) if kind != "random" else drawn])
    packer = Packer(MaskedSequences(reader.tokenized, z, cached=True), cascade=True)
    assert attention.has_cascade(surrogate.device, torch.bfloat16)
    chunk, _ = packer.chunk(Cursor(), tokens=32_768, outputs=100_000)
    assert chunk.groups
    shared = reader.score(z, kl=True, cached=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "has_cascade", lambda device, dtype: False)
        alone = reader.score(z, kl=True, cached=True)
    np.testing.assert_allclose(shared.logprob, alone.logprob, atol=0.2)  # bfloat16 rounds otherwise
    assert np.abs(shared.logprob - alone.logprob).mean() < 0.02
    some = [0, 1, len(z) // 2, len(z) - 1]
    plain = np.stack([_masked(reader, z[number]) for number in some])
    assert np.abs(shared.logprob[some] - plain).mean() < 0.03


def _masked(reader: LocalScorer, mask: Masks) -> Any:
    """One plain call with a mask that hides the removed features from the tail."""
    tokens, model = reader.tokenized, reader.surrogate.model
    ids = torch.tensor([*tokens.ids, *tokens.output_ids], device=model.device)
    visible = torch.ones(len(ids), len(ids), device=model.device).tril().bool()
    removed = torch.as_tensor((tokens.owner >= 0) & ~mask[tokens.owner], device=model.device)
    visible[tokens.tail :, : len(removed)] &= ~removed
    additive = torch.zeros(visible.shape, device=model.device, dtype=model.dtype)
    additive.masked_fill_(~visible, torch.finfo(model.dtype).min)
    with torch.no_grad():
        logits = model(input_ids=ids[None], attention_mask=additive[None, None]).logits[0]
    logp = logits[len(tokens.ids) - 1 : -1].float().log_softmax(-1)
    output = torch.as_tensor(tokens.output_ids, device=model.device)
    return logp.gather(-1, output[:, None])[:, 0].cpu().numpy()


@pytest.mark.parametrize("batch_tokens", [60, 4096])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_computed_only_where_the_output_is_predicted(
    dtype: torch.dtype, cached: bool, batch_tokens: int
) -> None:
    reader = scorer(dtype=dtype)
    z = masks(reader.tokenized.n_features)
    computed: list[int] = []
    head = reader.surrogate.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda _, __, logits: computed.append(logits.shape[1]))
    try:
        reader.score(z, kl=False, cached=cached, batch_tokens=batch_tokens)
    finally:
        handle.remove()
    assert sum(computed) == len(np.unique(z, axis=0)) * len(reader.output_spans)


@pytest.mark.parametrize("cached", [False, True])
def test_many_features_are_scored_as_by_themselves(cached: bool) -> None:
    """Chunks of many sequences behind a long prefix, against one sequence in a run of its own."""
    surrogate = random_surrogate("tiny", device="cpu", dtype="float32")
    reader = random_scorer(surrogate, features=400, tokens=5, outputs=4)
    z = np.concatenate([np.ones((1, 400), bool), ~np.eye(400, dtype=bool)])[:: 1 if cached else 40]
    every = reader.score(z, kl=True, cached=cached)
    for mask in (1, len(z) // 2, len(z) - 1):
        alone = reader.score(z[[0, mask]], kl=True, cached=cached, batch_tokens=10_000)
        np.testing.assert_allclose(every.logprob[mask], alone.logprob[1], atol=1e-5)
        assert every.kl is not None
        assert alone.kl is not None
        np.testing.assert_allclose(every.kl[mask], alone.kl[1], atol=1e-5)


@pytest.mark.parametrize(("count", "keys"), [(1, 1), (5, 40), (200, 200), (300, 900), (33, 64)])
@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize("block", [1, 16, 128, 1024])
def test_blocks_are_causal_attention(
    count: int, keys: int, block: int, scaling: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_QUERIES", block)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, *size) for size in ((6, count, 8), (2, keys, 8), (2, keys, 12)))
    seen = torch.arange(keys) <= torch.arange(keys - count, keys)[:, None]
    whole = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=seen, scale=scaling, enable_gqa=True
    )
    made = attention.causal_attention(q, k, v, scaling)
    torch.testing.assert_close(made, whole.transpose(1, 2), atol=1e-5, rtol=0)
