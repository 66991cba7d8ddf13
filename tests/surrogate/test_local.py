"""Batched scoring of a transformers model against plain passes, one sequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache

import ropelime
from conftest import ALL, ROTARY, Tiny, byte_level, metaspace, tiny_model
from ropelime.errors import InputError, ModelError
from ropelime.method import rope
from ropelime.method.kernels import KERNELS
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text import prompt as prompts
from ropelime.text.features import split, with_tokens
from ropelime.text.prompt import Prompt
from ropelime.typing import Masks
from scoring import prepare

Make = Callable[..., LocalSurrogate]
Arrays = dict[str, np.ndarray[Any, Any]]
Vectors = dict[str, torch.Tensor]  # "key" or "hidden" -> (heads, L, d), rotated

CHUNKS = [
    "Paris is the capital of France. It lies on the Seine.",
    "The Louvre is a museum. The picture hangs there.",
    "It was painted by Leonardo, a painter. Berlin has museums, too.",
]
RAG = prompts.from_context(CHUNKS, "Who painted the picture?")
PLAIN = prompts.from_text("The Louvre is in Paris. It has a picture. Leonardo was the painter.")
ANSWER = "The painter was Leonardo."


# The reference: plain calls of the model, nothing shared, nothing padded, nothing clever.


def span_mean(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean magnitude and circular mean phase of (tokens, D) points, written out."""
    r = torch.hypot(a, b)
    safe = torch.where(r > 0, r, 1.0)
    return r.mean(0), torch.arctan2((b / safe).sum(0), (a / safe).sum(0))


class Naive:
    """Scores the masks of a scorer one by one."""

    def __init__(
        self, tiny: Tiny, scorer: LocalScorer, ablation: Ablation, placeholder: list[int]
    ) -> None:
        self.tiny, self.ablation, self.placeholder = tiny, ablation, placeholder
        self.ids = scorer.tokenized.ids.tolist()
        self.owner = scorer.tokenized.owner.tolist()
        self.output = scorer.tokenized.output_ids.tolist()
        self.features = range(scorer.tokenized.n_features)

    def sequence(self, mask: Any) -> tuple[list[int], list[int], list[int]]:
        """Ids, owners and positions of the masked prompt."""
        ids, owner, positions, replaced = [], [], [], set()
        for place, (token, feature) in enumerate(zip(self.ids, self.owner, strict=True)):
            if feature < 0 or mask[feature]:
                ids.append(token)
                owner.append(feature)
                positions.append(place)
            elif self.ablation.how == "placeholder" and feature not in replaced:
                replaced.add(feature)
                ids += self.placeholder
                owner += [-1] * len(self.placeholder)
        if self.ablation.how != "in-place":
            positions = list(range(len(ids)))
        return ids, owner, positions

    def read(self, mask: Any) -> tuple[torch.Tensor, Vectors, list[int], list[int]]:
        """(T, V) log-probabilities, vectors of each space, owners and positions under one mask."""
        ids, owner, positions = self.sequence(mask)
        after = len(self.ids) if self.ablation.how == "in-place" else len(ids)
        said = self.output[:-1]  # the last token predicts nothing that is asked for
        places = [*positions, *range(after, after + len(said))]
        cache = DynamicCache()
        with torch.no_grad():
            run = self.tiny.model(
                input_ids=torch.tensor([ids + said]),
                attention_mask=torch.ones(1, len(places), dtype=torch.long),
                past_key_values=cache,
                use_cache=True,
                output_hidden_states=True,
                **({"position_ids": torch.tensor([places])} if after > len(ids) else {}),
            )
        logp = run.logits[0, len(ids) - 1 :].double().log_softmax(-1)
        vectors = {"key": cache.layers[self.tiny.layer].keys[0, :, : len(ids), : self.tiny.width]}
        if self.tiny.width:
            heads = run.hidden_states[self.tiny.layer][0, : len(ids)].split(self.tiny.width, -1)
            a, b = rope.planes(torch.stack(heads), self.tiny.pairing)
            angle = torch.tensor(positions)[:, None] * self.tiny.frequencies
            vectors["hidden"] = join(*rope.turn(a, b, angle), self.tiny.pairing)
        return logp, vectors, owner, positions

    def spans(
        self, vectors: torch.Tensor, owner: list[int], positions: list[int], phase: str
    ) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        """The kept features, and r and theta of each of them."""
        kept = [i for i in self.features if i in owner]
        means = []
        for feature in kept:
            at = [i for i, own in enumerate(owner) if own == feature]
            a, b = rope.planes(vectors[:, at], self.tiny.pairing)
            if phase == "relative":
                a, b = rope.turn(a, b, -positions[at[0]] * self.tiny.frequencies)
            means.append(span_mean(a.transpose(0, 1).flatten(1), b.transpose(0, 1).flatten(1)))
        empty = torch.zeros(0, vectors.shape[0] * self.tiny.width // 2)
        r = torch.stack([r for r, _ in means]) if means else empty
        theta = torch.stack([theta for _, theta in means]) if means else empty
        return kept, r, theta

    def score(self, masks: Masks, space: RopeSpace | None) -> Arrays:
        logprob, kl, distance = [], [], []
        full, vectors, owner, positions = self.read(np.ones(len(self.features), dtype=bool))
        if space:
            _, r0, theta0 = self.spans(vectors[space.space], owner, positions, space.phase)
            mass = torch.ones(len(self.features))
            if space.mass == "tokens":
                mass = torch.tensor([float(owner.count(i)) for i in self.features])
        for mask in masks:
            logp, vectors, owner, positions = self.read(mask)
            logprob.append(logp[range(len(self.output)), self.output])
            kl.append((full.exp() * (full - logp)).sum(-1))
            if space:
                kept, r, theta = self.spans(vectors[space.space], owner, positions, space.phase)
                d = rope.polar_distances(r0, theta0, r, theta, space.beta)
                distance.append(float(rope.rwmd(d, mass, mass[kept], tight=space.tight)))
        return {
            "logprob": torch.stack(logprob).numpy(),
            "kl": torch.stack(kl).numpy(),
            "distance": np.array(distance),
        }


def join(a: torch.Tensor, b: torch.Tensor, pairing: str) -> torch.Tensor:
    """The inverse of rope.planes."""
    return torch.cat([a, b], -1) if pairing == "half" else torch.stack([a, b], -1).flatten(-2)


def naive(
    tiny: Tiny,
    scorer: LocalScorer,
    masks: Masks,
    spaces: Sequence[RopeSpace] = (),
    ablation: Ablation = Ablation(),  # noqa: B008
) -> Arrays:
    text = scorer.surrogate.tokenizer(ablation.text, add_special_tokens=False).input_ids
    return Naive(tiny, scorer, ablation, text).score(masks, spaces[0] if spaces else None)


def mixed_masks(n: int) -> Masks:
    """All ones, all zeros, leave-one-out, single features, random ones, and some of them twice."""
    rng = np.random.default_rng(n)
    one = np.eye(n, dtype=bool)
    rest = np.concatenate([np.zeros((1, n), bool), ~one, one, rng.random((4, n)) < 0.5])
    rest = rng.permutation(np.concatenate([rest, rest[1:4], np.ones((1, n), bool)]))
    return np.concatenate([np.ones((1, n), bool), rest])


def leave_one_out(n: int) -> Masks:
    return np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])


def assert_same(scores: Scores, expected: Arrays) -> None:
    np.testing.assert_allclose(scores.logprob, expected["logprob"], atol=1e-4, rtol=0)
    if scores.kl is not None:
        np.testing.assert_allclose(scores.kl, expected["kl"], atol=1e-4, rtol=0)
    for distance in scores.distances.values():
        np.testing.assert_allclose(distance, expected["distance"], atol=1e-4, rtol=0)


# Batched = one at a time.


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
@pytest.mark.parametrize("name", ALL)
def test_scoring_equals_one_sequence_at_a_time(tiny: Make, name: str, how: str) -> None:
    ablation = Ablation(how)
    scorer = prepare(tiny(name), RAG, "sentence", ANSWER, ablation=ablation)
    masks = mixed_masks(scorer.tokenized.n_features)
    spaces = [RopeSpace(layer=1)] if name in ROTARY else []
    expected = naive(tiny_model(name), scorer, masks, spaces, ablation)
    assert expected["kl"][1:].max() > 0.1  # or the tolerance would hide everything
    for batch_tokens in (40, 200, 4096):
        scores = scorer.score(masks, kl=True, spaces=spaces, batch_tokens=batch_tokens)
        assert_same(scores, expected)


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "phi", "mistral-window", "gemma2", "gpt2"])
def test_leave_one_out_shares_prefixes(tiny: Make, name: str, how: str) -> None:
    ablation = Ablation(how)
    wide = {"sliding_window": 512} if name == "gemma3" else {}
    scorer = prepare(tiny(name, **wide), RAG, "sentence", ANSWER, ablation=ablation)
    masks = leave_one_out(scorer.tokenized.n_features)
    spaces = [RopeSpace(layer=1)] if name in ROTARY else []
    scores = scorer.score(masks, kl=True, spaces=spaces, batch_tokens=100)
    assert_same(scores, naive(tiny_model(name, **wide), scorer, masks, spaces, ablation))
    assert scores.tokens_run < 0.8 * scores.tokens.sum()


@pytest.mark.parametrize("name", ["gpt-j", "llama4", "bloom"])
def test_models_that_cannot_share_prefixes(tiny: Make, name: str) -> None:
    """Their attention cannot be replaced, or has masks of its own: one sequence at a time."""
    scorer = prepare(tiny(name), RAG, "sentence", ANSWER)
    masks = leave_one_out(scorer.tokenized.n_features)
    scores = scorer.score(masks, kl=True, batch_tokens=300)
    assert_same(scores, naive(tiny_model(name), scorer, masks))
    assert scores.tokens_run == (scores.tokens - 1).sum()


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
def test_long_and_short_rows_of_a_longrope_model(tiny: Make, how: str) -> None:
    """Beyond 60 tokens it rotates every key otherwise, so long and short sequences must not meet."""
    ablation = Ablation(how)
    scorer = prepare(tiny("phi3-long"), RAG, "sentence", ANSWER, ablation=ablation)
    masks = mixed_masks(scorer.tokenized.n_features)
    scores = scorer.score(masks, kl=True)
    assert scores.tokens.min() < 60 < scores.tokens.max()
    assert_same(scores, naive(tiny_model("phi3-long"), scorer, masks, [], ablation))


@pytest.mark.parametrize("how", ["delete", "in-place", "placeholder"])
@pytest.mark.parametrize("bos", [False, True])
def test_features_from_the_first_token_to_the_last(how: str, bos: bool) -> None:
    """Without a template nothing is pinned: the sequence of the empty mask has no prompt left."""
    ablation = Ablation(how)
    model = tiny_model("llama")
    scorer = prepare(
        LocalSurrogate(model.model, byte_level(None, bos=bos)),
        PLAIN,
        "sentence",
        ANSWER,
        ablation=ablation,
    )
    assert (scorer.tokenized.owner >= 0).sum() == len(scorer.tokenized.ids) - bos
    for masks in (leave_one_out(3), mixed_masks(3)):
        full = masks[masks.any(1)] if how != "placeholder" and not bos else masks
        spaces = [RopeSpace(layer=1)]
        scores = scorer.score(full, kl=True, spaces=spaces, batch_tokens=60)
        assert_same(scores, naive(model, scorer, full, spaces, ablation))


def test_an_empty_prompt_is_scored_as_the_beginning_of_a_text() -> None:
    model, tokenizer = tiny_model("gpt2").model, byte_level(None)
    scorer = prepare(LocalSurrogate(model, tokenizer), PLAIN, "sentence", ANSWER)
    masks = np.array([[True] * 3, [False] * 3])
    scores = scorer.score(masks, kl=True)
    ids = [tokenizer.bos_token_id, *tokenizer(ANSWER).input_ids]
    with torch.no_grad():
        logp = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    expected = logp[range(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(scores.logprob[1], expected, atol=1e-4)


SPACES = [
    RopeSpace(layer=1),
    RopeSpace(layer=1, phase="raw"),
    RopeSpace(layer=1, mass="tokens"),
    RopeSpace(layer=1, tight=True),
    RopeSpace(layer=1, tight=True, mass="tokens", beta=0.3),
    RopeSpace(layer=1, space="hidden"),
    RopeSpace(layer=1, space="hidden", phase="raw"),
]


@pytest.mark.parametrize("name", ["qwen2", "phi", "cohere"])
def test_every_space_in_one_run(tiny: Make, name: str) -> None:
    scorer = prepare(tiny(name), RAG, "sentence", ANSWER)
    for masks in (mixed_masks(scorer.tokenized.n_features), leave_one_out(scorer.tokenized.n_features)):
        scores = scorer.score(masks, kl=False, spaces=SPACES, batch_tokens=300)
        assert scores.kl is None
        assert list(scores.distances) == SPACES
        for space, distance in scores.distances.items():
            expected = naive(tiny_model(name), scorer, masks, [space])["distance"]
            np.testing.assert_allclose(distance, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("output", ["L", "The painter was Leonardo. " * 8], ids=["one", "many"])
def test_answers_of_one_token_and_of_many(tiny: Make, output: str) -> None:
    scorer = prepare(tiny("llama"), RAG, "sentence", output)
    assert (len(scorer.output_spans) == 1) == (output == "L")
    masks = mixed_masks(scorer.tokenized.n_features)
    spaces = [RopeSpace(layer=1)]
    scores = scorer.score(masks, kl=True, spaces=spaces, batch_tokens=200)
    assert_same(scores, naive(tiny_model("llama"), scorer, masks, spaces))


@pytest.mark.parametrize(
    ("prompt", "features"),
    [(RAG, "document"), (RAG, "token"), (PLAIN, "word"), (PLAIN, [(0, 3), (10, 20), (60, 67)])],
    ids=["document", "token", "word", "spans"],
)
def test_granularities(tiny: Make, prompt: Prompt, features: Any) -> None:
    scorer = prepare(tiny("llama"), prompt, features, ANSWER)
    n = scorer.tokenized.n_features
    masks = mixed_masks(n)[: 2 * n if n < 12 else 12]
    masks[0] = True
    spaces = [RopeSpace(layer=1)]
    scores = scorer.score(masks, kl=True, spaces=spaces)
    assert_same(scores, naive(tiny_model("llama"), scorer, masks, spaces))


def test_messages_and_llama_2_tokens() -> None:
    messages = [
        {"role": "system", "content": " You know museums. "},
        {"role": "user", "content": "Where is the picture?"},
        {"role": "assistant", "content": "In Paris."},
        {"role": "user", "content": "Who painted it? "},
    ]
    for template in ("chatml", "gemma", None):
        model = tiny_model("gemma")
        scorer = prepare(
            LocalSurrogate(model.model, metaspace(template)),
            prompts.from_messages(messages),
            "message",
            ANSWER,
        )
        masks = mixed_masks(4)
        spaces = [RopeSpace(layer=1)]
        scores = scorer.score(masks, kl=True, spaces=spaces)
        assert_same(scores, naive(model, scorer, masks, spaces))


def test_neither_order_nor_company_changes_a_score(tiny: Make) -> None:
    scorer = prepare(tiny("qwen3"), RAG, "sentence", ANSWER)
    masks = mixed_masks(scorer.tokenized.n_features)
    spaces = [RopeSpace(layer=1)]
    order = np.concatenate([[0], np.random.default_rng(1).permutation(np.arange(1, len(masks)))])
    here = scorer.score(masks, kl=True, spaces=spaces).select(order)
    there = scorer.score(masks[order], kl=True, spaces=spaces, batch_tokens=150)
    assert here.kl is not None
    assert_same(there, {"logprob": here.logprob, "kl": here.kl, "distance": here.distances[spaces[0]]})
    assert (here.tokens == there.tokens).all()


def test_a_repeated_mask_is_scored_once(tiny: Make) -> None:
    scorer = prepare(tiny("llama"), RAG, "sentence", ANSWER)
    masks = leave_one_out(scorer.tokenized.n_features)
    twice = np.concatenate([masks, masks])
    once, again = (scorer.score(m, kl=True) for m in (masks, twice))
    assert again.tokens_run == once.tokens_run
    np.testing.assert_array_equal(again.logprob[len(masks) :], again.logprob[: len(masks)])


# What the scores are.


def test_the_full_prompt_is_at_distance_zero(tiny: Make) -> None:
    scorer = prepare(tiny("llama"), RAG, "sentence", ANSWER)
    n = scorer.tokenized.n_features
    masks = np.concatenate([np.ones((2, n), bool), np.zeros((1, n), bool)])
    scores = scorer.score(masks, kl=True, spaces=[RopeSpace()])
    assert scores.kl is not None
    distance = scores.distances[RopeSpace()]
    assert distance[:2].tolist() == [0.0, 0.0]
    assert np.isnan(distance[2])
    assert np.abs(scores.kl[:2]).max() < 1e-5
    assert (scores.kl > -1e-5).all()
    assert (scores.logprob < 0).all()


def test_tokens_count_prompt_and_output(tiny: Make) -> None:
    surrogate = tiny("llama")
    scorer = prepare(surrogate, RAG, "document", ANSWER)
    masks = leave_one_out(3)
    scores = scorer.score(masks, kl=False)
    owner = scorer.tokenized.owner
    sizes = np.bincount(owner[owner >= 0])
    total = len(scorer.tokenized.ids) + len(scorer.output_spans)
    assert scores.tokens.tolist() == [total, *(total - sizes).tolist()]
    assert scores.masks is masks


def test_progress_rises_to_the_tokens_scored(tiny: Make) -> None:
    scorer = prepare(tiny("llama"), RAG, "sentence", ANSWER)
    seen: list[tuple[int, int]] = []
    masks = leave_one_out(scorer.tokenized.n_features)
    scores = scorer.score(masks, kl=False, batch_tokens=100, progress=lambda *now: seen.append(now))
    assert len(seen) > 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {scores.tokens_run}
    assert seen[-1][0] == scores.tokens_run


def test_progress_counts_tokens_by_the_keys_they_attend_to(tiny: Make) -> None:
    """Those on a long KV cache take longer, and count for more of the tokens in all."""
    surrogate = tiny("llama")
    prompt = prompts.from_text(" ".join(f"The town has {n} old wells." for n in range(20)))
    scorer = prepare(surrogate, prompt, "sentence", ANSWER)
    masks = leave_one_out(scorer.tokenized.n_features)
    seen: list[tuple[int, int]] = []
    whole = len(scorer.tokenized.ids)
    scores = scorer.score(
        masks, kl=False, cached=True, batch_tokens=whole, progress=lambda *now: seen.append(now)
    )
    load = scorer.load(masks, cached=True)
    assert round(load.tokens) == scores.tokens_run == seen[-1][0] == seen[-1][1]
    assert load.time > 2 * load.tokens, "the narrow model is soon slowed down by many keys"
    assert seen[1][0] < 0.85 * whole, "the prompt, whose tokens attend to half of it on average"
    later = np.diff([done for done, _ in seen])[1:-1]
    assert (later > whole).all(), "the masks, each token of which attends to all of it"


def test_an_interrupt_leaves_the_surrogate_usable(tiny: Make) -> None:
    scorer = prepare(tiny("llama"), RAG, "sentence", ANSWER)
    masks = leave_one_out(scorer.tokenized.n_features)
    before = scorer.score(masks, kl=True, spaces=[RopeSpace(layer=1)])

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scorer.score(masks, kl=True, progress=interrupt)
    after = scorer.score(masks, kl=True, spaces=[RopeSpace(layer=1)])
    np.testing.assert_array_equal(before.logprob, after.logprob)


# What is refused.


def test_the_first_mask_must_be_the_full_prompt(tiny: Make) -> None:
    scorer = prepare(tiny("llama"), RAG, "document", ANSWER)
    with pytest.raises(InputError, match="first mask"):
        scorer.score(~np.eye(3, dtype=bool), kl=False)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_too_long_for_the_window(tiny: Make, name: str) -> None:
    surrogate = tiny(name)
    output = "Leonardo " * 600
    tokens_run = len(surrogate.encoder.encode(RAG, output).output_ids)
    assert tokens_run > 512
    with pytest.raises(InputError) as error:
        prepare(surrogate, RAG, "sentence", output)
    length = len(surrogate.encoder.encode(RAG, ANSWER).ids)
    for count in (length, tokens_run, 512):
        assert f"{count:,}" in str(error.value)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_window_may_be_filled_to_the_last_token(tiny: Make, name: str) -> None:
    encoded = tiny(name).encoder.encode(PLAIN, ANSWER)
    total = len(encoded.ids) + len(encoded.output_ids)
    limit = "n_positions" if name == "gpt2" else "max_position_embeddings"
    surrogate = tiny(name, **{limit: total})
    scores = prepare(surrogate, PLAIN, "sentence", ANSWER).score(mixed_masks(3), kl=False)
    assert scores.tokens[0] == total
    with pytest.raises(InputError, match=f"{total - 1:,} in all"):
        prepare(tiny(name, **{limit: total - 1}), PLAIN, "sentence", ANSWER)


def test_placeholders_that_outgrow_the_window(tiny: Make) -> None:
    encoded = tiny("gpt2").encoder.encode(PLAIN, ANSWER)
    total = len(encoded.ids) + len(encoded.output_ids)
    scorer = prepare(
        tiny("gpt2", n_positions=total),
        PLAIN,
        "word",
        ANSWER,
        ablation=Ablation("placeholder", "[left out here]"),
    )
    masks = np.array([[True] * scorer.tokenized.n_features, [False] * scorer.tokenized.n_features])
    with pytest.raises(InputError, match=f"{total:,}"):
        scorer.score(masks, kl=False)


def test_nan_weights_are_reported() -> None:
    from copy import deepcopy

    model = deepcopy(tiny_model("llama").model)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    scorer = prepare(
        LocalSurrogate(model, byte_level("chatml"), name="broken"), RAG, "document", ANSWER
    )
    with pytest.raises(ModelError, match=r"broken gave NaN .* under 4 of 4 masks in float32"):
        scorer.score(leave_one_out(3), kl=True)


def test_gpt2_is_refused_for_the_rope_kernel_only(tiny: Make) -> None:
    surrogate = tiny("gpt2")
    scorer = prepare(surrogate, RAG, "document", ANSWER)
    with pytest.raises(ModelError, match="gpt2 has no rotary") as error:
        scorer.score(leave_one_out(3), kl=False, spaces=[RopeSpace()])
    others = sorted(set(KERNELS) - {"rope-rwmd"})
    assert all(kernel in str(error.value) for kernel in others)
    for kernel in others:
        found = ropelime.explain(
            context=CHUNKS,
            question="Who painted the picture?",
            output=ANSWER,
            features="document",
            surrogate=surrogate,
            kernel=kernel,
            progress=False,
        )
        assert sum(found.normalized_weights) == pytest.approx(1.0)


def test_layers(tiny: Make) -> None:
    surrogate = tiny("llama")
    assert surrogate.rotation(-1).layer == surrogate.rotation(2).layer == 2
    assert [surrogate.rotation(part).layer for part in (0.0, 0.5, 0.99)] == [0, 1, 2]
    for layer in (3, -4, 1.0):
        with pytest.raises(InputError, match="3 layers"):
            surrogate.rotation(layer)


def test_describe(tiny: Make) -> None:
    described = tiny("phi").describe()
    assert described["name"] == "phi"
    assert described["architecture"] == "PhiForCausalLM"
    assert (described["dtype"], described["device"]) == ("float32", "cpu")


# Features and their tokens.


def test_features_smaller_than_a_token(tiny: Make) -> None:
    """ "Paris" is one token: two given spans of it are refused, two words of it would be joined."""
    surrogate = tiny("llama")
    prompt = prompts.from_text("It is Paris there.")
    with pytest.raises(InputError, match=r"features\[1\] = \(9, 11\) 'is' shares its only token"):
        prepare(surrogate, prompt, [(6, 9), (9, 11)], ANSWER)
    parts = split(prompt, [(0, 3), (3, 9), (9, 11), (11, 18)])
    with pytest.raises(InputError, match=r"features\[2\] = \(9, 11\) 'is' owns no token of llama"):
        surrogate.prepare(prompt, parts, ANSWER, ablation=Ablation())
    joined = with_tokens(parts, surrogate.token_spans(prompt), prompt.text, given=False)
    assert [feature.text for feature in joined] == ["It ", "is Paris", " there."]
    owner = surrogate.prepare(prompt, joined, ANSWER, ablation=Ablation()).tokenized.owner
    assert sorted(set(owner.tolist())) == [-1, 0, 1, 2]


def test_a_model_in_two_surrogates_runs_once_at_a_time() -> None:
    one, other = (deepcopy(tiny_model("llama").model) for _ in range(2))
    first, second, third = (LocalSurrogate(model, byte_level("chatml")) for model in (one, one, other))
    assert first.lock is second.lock
    assert first.lock is not third.lock


def test_a_tokenizer_of_another_model_is_told(tiny: Callable[..., LocalSurrogate]) -> None:
    """Its ids beyond the vocabulary would be an index error in the embedding."""
    surrogate = tiny("llama", vocab_size=300)
    with pytest.raises(ModelError, match=r"gives the token \d+, and the model knows 300: they do not"):
        ropelime.explain("Paris is the capital. Berlin is a city.", "Paris", surrogate=surrogate)
