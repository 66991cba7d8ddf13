"""Cached scoring: the prompt runs once, then tails that do not attend to what is removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conftest import byte_level, tiny_model
from ropelime import InputError, ModelError
from ropelime.method.rope import RopeSpace
from ropelime.surrogate import Ablation
from ropelime.surrogate.engine import ForwardResult
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.sequences import LazySequences
from ropelime.surrogate.tokens import TokenSequence
from ropelime.text import prompt as prompts
from ropelime.typing import Masks
from scoring import prepare
from toy import toy

PROMPT = prompts.from_context(
    ["Paris is the capital. It lies on the Seine.", "The Louvre is a museum. A picture hangs there."],
    "Who painted the picture?",
)
ANSWER = "The painter was Leonardo."
FULL = [
    "llama",
    "qwen2",
    "qwen3",
    "gemma",
    "mistral",
    "phi",
    "gpt-neox",
    "gpt-j",
    "cohere",
    "glm",
    "gpt2",
]


def masks(n: int) -> Masks:
    drawn = np.random.default_rng(0).random((8, n)) < 0.5
    return np.concatenate(
        [np.ones((1, n), bool), np.zeros((1, n), bool), ~np.eye(n, dtype=bool), drawn]
    )


def scorer(
    name: str, *, how: str = "delete", template: str | None = "chatml", **options: Any
) -> LocalScorer:
    surrogate = LocalSurrogate(tiny_model(name, **options).model, byte_level(template))
    return prepare(surrogate, PROMPT, "sentence", ANSWER, ablation=Ablation(how))


def one_layer(name: str) -> dict[str, Any]:
    return {"n_layer": 1} if name in ("gpt-j", "gpt2") else {"num_hidden_layers": 1}


@pytest.mark.parametrize("name", FULL)
def test_where_the_context_does_not_look_at_itself_cheap_is_exact(name: str) -> None:
    """With one layer a key knows its own token only: hiding a feature is removing it in place."""
    spaces = [] if name == "gpt2" else [RopeSpace(layer=0)]
    cached = scorer(name, **one_layer(name))
    exact = scorer(name, how="in-place", **one_layer(name))
    z = masks(cached.tokenized.n_features)
    ours = cached.score(z, kl=True, spaces=spaces, cached=True)
    theirs = exact.score(z, kl=True, spaces=spaces)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-4)
    np.testing.assert_allclose(ours.kl, theirs.kl, atol=1e-4)  # type: ignore[arg-type]
    for space in spaces:
        np.testing.assert_allclose(ours.distances[space], theirs.distances[space], atol=1e-3)


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("batch_tokens", [60, 4096])
def test_a_tail_sees_the_full_prompt_less_what_is_removed(name: str, batch_tokens: int) -> None:
    reader = scorer(name)
    z = masks(reader.tokenized.n_features)
    ours = reader.score(z, kl=False, cached=True, batch_tokens=batch_tokens)
    np.testing.assert_allclose(ours.logprob, [naive(name, reader, mask) for mask in z], atol=1e-4)


def naive(name: str, reader: LocalScorer, mask: Any) -> Any:
    """One plain call: the context attends to all before it, the tail not to removed features."""
    tokens = reader.tokenized
    ids = torch.tensor([*tokens.ids, *tokens.output_ids])
    visible = torch.ones(len(ids), len(ids)).tril().bool()
    removed = torch.tensor([owner >= 0 and not mask[owner] for owner in tokens.owner])
    visible[tokens.tail :, : len(removed)] &= ~removed
    additive = torch.zeros(visible.shape).masked_fill_(~visible, torch.finfo(torch.float32).min)
    with torch.no_grad():
        logits = (
            tiny_model(name).model(input_ids=ids[None], attention_mask=additive[None, None]).logits[0]
        )
    output = torch.tensor(tokens.output_ids)
    logp = logits[len(tokens.ids) - 1 : -1].log_softmax(-1)
    return logp.gather(-1, output[:, None])[:, 0].numpy()


@pytest.mark.parametrize("name", FULL)
def test_with_nothing_removed_cached_is_exact(name: str) -> None:
    reader = scorer(name)
    ones = np.ones(reader.tokenized.n_features, dtype=bool)
    tokenized = reader.tokenized
    both = [tokenized.prefix(), tokenized.cached_sequence(1, ones), tokenized.sequence(0, ones)]

    class Both(LazySequences):
        max_end = max(sequence.end for sequence in both)

        def __len__(self) -> int:
            return len(both)

        def build(self, number: int) -> TokenSequence:
            return both[number]

    read: dict[tuple[int, int], Any] = {}

    def take(result: ForwardResult) -> None:
        keys = map(tuple, result.scored.tolist())
        read.update(zip(keys, result.logits.log_softmax(-1), strict=True))

    with torch.inference_mode():
        reader.surrogate.engine.run(Both(), take)
    assert len(read) == 2 * len(reader.output_spans)
    for token in range(-len(reader.output_spans), 0):
        torch.testing.assert_close(read[0, token], read[1, token], atol=1e-4, rtol=0)


def test_a_feature_in_the_tail_is_scored_exactly() -> None:
    """Without a template nothing is pinned behind the last sentence, so its tokens are the tail."""
    surrogate = LocalSurrogate(tiny_model("llama").model, byte_level())
    plain = prompts.from_text("The Louvre is in Paris. It has a picture. Leonardo painted it.")
    reader = prepare(surrogate, plain, "sentence", ANSWER)
    z = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], dtype=bool)
    cached, exact = (reader.score(z, kl=True, cached=way) for way in (True, False))
    np.testing.assert_allclose(cached.logprob[1], exact.logprob[1], atol=1e-4)
    assert cached.tokens[1] == exact.tokens[1]
    assert cached.tokens[2] < exact.tokens[2]


def test_the_cost_is_one_prompt_and_the_tails() -> None:
    reader = scorer("llama")
    z = masks(reader.tokenized.n_features)
    tail = len(reader.tokenized.ids) - reader.tokenized.tail + len(reader.output_spans)
    read = reader.score(z, kl=False, cached=True)
    distinct = len(np.unique(z, axis=0))
    assert read.tokens[0] == len(reader.tokenized.ids) + tail
    assert read.tokens[1:].tolist() == [tail if not mask.all() else read.tokens[0] for mask in z[1:]]
    assert read.tokens_run == len(reader.tokenized.ids) + (tail - 1) * distinct  # the last is not run


def test_the_prompt_is_charged_once_and_with_the_full_mask() -> None:
    s = scorer("llama")
    some = masks(s.tokenized.n_features)
    whole = s.cost(some, cached=True)
    assert np.array_equal(s.cost(some[1:], cached=True), whole[1:])
    assert whole[0] > 2 * whole[1:].max()


def test_models_with_a_shorter_window_refuse() -> None:
    reader = scorer("mistral-window")
    with pytest.raises(ModelError, match="scoring='exact'"):
        reader.score(masks(reader.tokenized.n_features), kl=False, cached=True)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InputError, match="cannot honour ablation='in-place'"):
        toy(scoring="cached", ablation="in-place")
    with pytest.raises(ModelError, match="does not support cached scoring"):
        toy(scoring="cached")
    with pytest.raises(InputError, match="Did you mean 'cached'"):
        toy(scoring="cachd")


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("cached", [True, False])
def test_the_question_is_scored_with_the_output(name: str, cached: bool) -> None:
    """As if it were the beginning of a longer output, whatever else is read."""
    reader = scorer(name)
    z = masks(reader.tokenized.n_features)
    plain = reader.score(z, kl=True, cached=cached)
    both = reader.score(z, kl=True, cached=cached, question=True, batch_tokens=100)
    np.testing.assert_allclose(both.logprob, plain.logprob, atol=1e-4)
    np.testing.assert_allclose(both.kl, plain.kl, atol=1e-4)  # type: ignore[arg-type]
    assert plain.question is None
    assert both.question is not None
    tokens, count = reader.tokenized, reader.tokenized.n_question
    assert both.question.logprob.shape == (len(z), count)
    assert not both.question.kl[0].any()
    ids = torch.tensor([*tokens.ids, *tokens.output_ids])[None]
    with torch.no_grad():
        logp = tiny_model(name).model(input_ids=ids).logits[0].log_softmax(-1)
    places = torch.arange(len(tokens.ids) - count, len(tokens.ids))
    np.testing.assert_allclose(both.question.logprob[0], logp[places - 1, ids[0, places]], atol=1e-4)
