"""Packed attention: the fused call and the plain products agree, and nothing is computed in vain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from conftest import byte_level, tiny_model
from ropelime import prompt as prompts
from ropelime.passes import Masks
from ropelime.rope import RopeSpace
from ropelime.surrogate import attention
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.shapes import random_scorer, random_surrogate

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
    return LocalSurrogate(model.to(dtype), byte_level("chatml")).prepare(PROMPT, "sentence", ANSWER)


def varlen(
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
) -> torch.Tensor:
    """What the fused kernel of a GPU does, segment by segment: queries are the last of the keys."""
    parts = []
    assert (int(starts_q[-1]), int(starts_k[-1])) == (len(query), len(key))
    assert starts_q.dtype == starts_k.dtype == torch.int32
    for at in range(len(starts_q) - 1):
        q = query[starts_q[at] : starts_q[at + 1]].float().transpose(0, 1)
        k, v = (t[starts_k[at] : starts_k[at + 1]].float().transpose(0, 1) for t in (key, value))
        assert 0 < q.shape[1] <= most_q
        assert q.shape[1] <= k.shape[1] <= most_k
        place = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None]
        seen = torch.arange(k.shape[1]) <= place
        if window_size[0] >= 0:
            seen &= torch.arange(k.shape[1]) >= place - window_size[0]
        made = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, scale=scale, enable_gqa=enable_gqa
        )
        parts.append(made.transpose(0, 1).to(query.dtype))
    return torch.cat(parts)


@pytest.mark.parametrize("cheap", [False, True])
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral-window", "gpt-neox"])
def test_one_fused_call_is_the_same_as_plain_products(
    name: str, cheap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cheap and name == "mistral-window":
        pytest.skip("it does not look back so far")
    reader = scorer(name, torch.bfloat16)
    z = masks(len(reader.features))
    plain = reader.score(z, kl=True, spaces=[RopeSpace()], cheap=cheap, batch_tokens=200)
    calls = 0

    def counted(*arguments: Any, **keywords: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return varlen(*arguments, **keywords)

    monkeypatch.setattr(attention, "varlen_attn", counted, raising=False)
    monkeypatch.setattr(attention, "_VARLEN", {"window_size", "enable_gqa"})
    monkeypatch.setattr(attention, "_has_varlen", lambda device: True)
    fused = reader.score(z, kl=True, spaces=[RopeSpace()], cheap=cheap, batch_tokens=200)
    assert calls > 3
    np.testing.assert_allclose(fused.logprob, plain.logprob, atol=0.2)  # bfloat16 rounds otherwise
    assert np.abs(fused.logprob - plain.logprob).mean() < 0.03
    space = RopeSpace()
    np.testing.assert_allclose(fused.distances[space], plain.distances[space], atol=0.1)


@pytest.mark.parametrize("batch_tokens", [60, 4096])
@pytest.mark.parametrize("cheap", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_last_layer_attends_only_where_the_output_is_predicted(
    dtype: torch.dtype, cheap: bool, batch_tokens: int
) -> None:
    reader = scorer(dtype=dtype)
    z = masks(len(reader.features))
    used: list[int] = []

    def look(_: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        used.append(int(arguments[0][0].any(-1).sum()))

    layer = reader._surrogate.model.model.layers[-1].self_attn.o_proj
    handle = layer.register_forward_pre_hook(look)
    try:
        reader.score(z, kl=False, cheap=cheap, batch_tokens=batch_tokens)
    finally:
        handle.remove()
    assert sum(used) == len(np.unique(z, axis=0)) * len(reader.output_spans)


@pytest.mark.parametrize("cheap", [False, True])
def test_many_features_are_read_as_by_themselves(cheap: bool) -> None:
    """Chunks of many rows, with a long path behind them, against one row in a run of its own."""
    surrogate = random_surrogate("tiny", device="cpu", dtype="float32")
    reader = random_scorer(surrogate, features=400, tokens=5, outputs=4)
    z = np.concatenate([np.ones((1, 400), bool), ~np.eye(400, dtype=bool)])[:: 1 if cheap else 40]
    every = reader.score(z, kl=True, cheap=cheap)
    for mask in (1, len(z) // 2, len(z) - 1):
        alone = reader.score(z[[0, mask]], kl=True, cheap=cheap, batch_tokens=10_000)
        np.testing.assert_allclose(every.logprob[mask], alone.logprob[1], atol=1e-5)
        assert every.kl is not None
        assert alone.kl is not None
        np.testing.assert_allclose(every.kl[mask], alone.kl[1], atol=1e-5)


@pytest.mark.parametrize(("count", "keys"), [(1, 1), (5, 40), (200, 200), (300, 900)])
@pytest.mark.parametrize("bound", [1, 1 << 16, 1 << 24])
def test_blocks_are_causal_attention(
    count: int, keys: int, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_BLOCK_BYTES", bound)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, h, n, 8) for h, n in ((6, count), (2, keys), (2, keys)))
    seen = torch.arange(keys) <= torch.arange(keys - count, keys)[:, None]
    whole = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    made = attention._blocks(q, k, v, None)
    torch.testing.assert_close(made, whole.transpose(1, 2), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("count", "keys"), [(1, 1), (5, 40), (200, 200), (300, 900), (33, 64)])
@pytest.mark.parametrize("block", [32, 256])
def test_the_kernel_for_tiles_is_causal_attention(
    count: int, keys: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FUSED_BLOCK", block)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, h, n, 8) for h, n in ((6, count), (2, keys), (2, keys)))
    made = attention._fused(q, k, v, 0.3, attention.slope(count, keys, q.dtype))
    torch.testing.assert_close(made, attention._blocks(q, k, v, 0.3), atol=1e-5, rtol=0)
