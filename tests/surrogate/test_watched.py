"""The attention of the answer to the features: what packed passes see is what eager attention is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch

from conftest import byte_level, tiny_model
from ropelime import InputError, ModelError, explain
from ropelime.method import learnt
from ropelime.surrogate.attention import configs_of
from ropelime.surrogate.base import ScoreRequest
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.logprobs import Head
from ropelime.text import prompt as prompts
from ropelime.typing import Floats, Masks
from scoring import prepare
from toy import OUTPUT, PROMPT, additive

QUESTION = prompts.from_context(
    ["Paris is the capital. It lies on the Seine.", "The Louvre is a museum. A picture hangs there."],
    "Who painted the picture?",
)
PLAIN = prompts.from_text("Paris is the capital. It lies on the Seine. A picture hangs there.")
ANSWER = "The painter was Leonardo."
SOME: list[Head] = [(0, 3, 0.5), (1, 0, 0.2), (1, 2, 0.1), (2, 1, 0.2)]  # all keys are shared by two


def scorer(
    name: str, heads: Sequence[Head] = SOME, prompt: prompts.Prompt = QUESTION, output: str = ANSWER
) -> LocalScorer:
    surrogate = LocalSurrogate(tiny_model(name).model, byte_level("chatml"), name=name)
    surrogate.heads = heads
    return prepare(surrogate, prompt, "sentence", output)


@cache
def eager(name: str, prompt: prompts.Prompt = QUESTION, output: str = ANSWER) -> Floats:
    """(layers, heads, T, n) what transformers' eager attention pays, summed over the parts' tokens."""
    tokenized = scorer(name, SOME, prompt, output).tokenized
    model = deepcopy(tiny_model(name).model)
    for config in configs_of(model):
        config._attn_implementation = "eager"
    sequence = tokenized.sequence(0, np.ones(tokenized.n_features, dtype=bool))
    with torch.inference_mode():
        ids = torch.as_tensor(sequence.ids)[None]
        attentions = model(input_ids=ids, output_attentions=True, use_cache=False).attentions
    paid = torch.stack(attentions)[:, 0, :, -sequence.n_outputs :].double().numpy()
    assert np.allclose(paid.sum(-1), 1, atol=1e-5)
    parts = [paid[..., sequence.owner == i].sum(-1) for i in range(tokenized.n_features)]
    return np.stack(parts, -1)


def mixed(paid: Floats, heads: Sequence[Head]) -> Floats:
    """(T, n) by the definition, one head at a time."""
    total = np.zeros(paid.shape[2:])
    for layer, number, weight in heads:
        mass = paid[layer, number]
        whole = mass.sum(0)  # (n,)
        if whole.any():  # a sliding window may hide all parts
            total += weight * (whole**2 / (whole**2).sum()) * (mass / np.maximum(whole, 1e-300))
    return np.asarray(total / total.sum())


def masks(n: int) -> Masks:
    return np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool), ~np.eye(n, dtype=bool)])


@pytest.mark.parametrize("batch", [None, 60, 25, 7])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "phi", "gemma3"])
def test_it_is_that_of_eager_attention(name: str, cached: bool, batch: int | None) -> None:
    reader = scorer(name)
    n, tokens = reader.tokenized.n_features, len(reader.tokenized.output_ids)
    if cached and not reader.supports_cached:
        pytest.skip("its windows do not reach back")
    found = reader.score(masks(n), kl=False, cached=cached, attention=True, batch_tokens=batch)
    assert found.attention is not None
    assert found.attention.shape == (tokens, n)
    assert found.attention.sum() == pytest.approx(1)
    assert found.attention.min() >= 0
    np.testing.assert_allclose(found.attention, mixed(eager(name), SOME), atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_each_head_is_the_one_of_its_number(name: str) -> None:
    for layer in range(3):
        for number in range(4):
            one = [(layer, number, 1.0)]
            reader = scorer(name, one)
            found = reader.score(masks(reader.tokenized.n_features)[:1], kl=False, attention=True)
            assert found.attention is not None
            np.testing.assert_allclose(found.attention, mixed(eager(name), one), atol=2e-5)


@pytest.mark.parametrize("cached", [True, False])
def test_nothing_stands_between_the_features_and_the_answer(cached: bool) -> None:
    reader = scorer("llama", prompt=PLAIN)
    found = reader.score(masks(3), kl=False, cached=cached, attention=True)
    assert found.attention is not None
    np.testing.assert_allclose(found.attention, mixed(eager("llama", PLAIN), SOME), atol=2e-5)


@pytest.mark.parametrize("batch", [None, *range(1, 12)])
def test_tokens_of_the_question_are_not_those_of_the_answer(batch: int | None) -> None:
    """However the question and the answer are divided among chunks."""
    reader = scorer("llama")
    every = masks(reader.tokenized.n_features)[:2]
    how = {"kl": False, "cached": True, "batch_tokens": batch}
    found = reader.score(every, question=True, attention=True, **how)  # type: ignore[arg-type]
    assert found.attention is not None
    assert found.question is not None
    np.testing.assert_allclose(found.attention, mixed(eager("llama"), SOME), atol=2e-5)
    alone = reader.score(every, question=True, **how)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.logprob, alone.logprob, atol=1e-5)
    assert alone.attention is None


def test_several_answers_are_watched_in_the_same_passes() -> None:
    one = scorer("llama")
    assert isinstance(one.surrogate, LocalSurrogate)
    two = prepare(one.surrogate, PLAIN, "sentence", "In Paris.")
    requests = [
        ScoreRequest(one, masks(4), kl=False, cached=True, attention=True),
        ScoreRequest(one, masks(4), kl=False, cached=True),
        ScoreRequest(two, masks(3), kl=False, cached=True, attention=True),
    ]
    first, none, second = one.surrogate.score_all(requests)
    assert none.attention is None
    assert first.attention is not None
    assert second.attention is not None
    np.testing.assert_allclose(first.attention, mixed(eager("llama"), SOME), atol=2e-5)
    expected = mixed(eager("llama", PLAIN, "In Paris."), SOME)
    np.testing.assert_allclose(second.attention, expected, atol=2e-5)


def test_heads_are_learnt_ones_or_those_of_the_middle_layers(
    tiny: Callable[..., LocalSurrogate], monkeypatch: pytest.MonkeyPatch
) -> None:
    surrogate = tiny("llama")
    assert learnt.learnt_heads(surrogate.shape) is None
    assert surrogate.heads == [(1, number, 1.0) for number in range(4)]
    known = {surrogate.shape: [[2, 3, 0.25], [0, 1, 0.75]]}
    monkeypatch.setitem(learnt._LEARNT, "heads", known)
    assert tiny("llama").heads == [(2, 3, 0.25), (0, 1, 0.75)]
    assert tiny("qwen2").heads == [(1, number, 1.0) for number in range(4)]


@pytest.mark.parametrize("name", ["bloom", "gemma2"])
def test_a_model_that_hides_its_attention_is_refused_with_a_cure(name: str) -> None:
    reader = scorer(name)
    full = np.ones((1, reader.tokenized.n_features), bool)
    with pytest.raises(ModelError, match=rf"{name} does not show .* Use preset='evidence'"):
        reader.score(full, kl=False, attention=True)


def test_a_surrogate_that_gives_only_the_output_is_refused_with_a_cure() -> None:
    with pytest.raises(ModelError, match=r"nothing else\. Use preset='faithful' with it"):
        explain(PROMPT, OUTPUT, features="word", surrogate=additive(), preset="instant", progress=False)
    with pytest.raises(
        InputError, match="target='nll' is fitted to masks and sampler='none' draws none"
    ):
        explain(PROMPT, OUTPUT, surrogate=additive(), preset="instant", target="nll", progress=False)
