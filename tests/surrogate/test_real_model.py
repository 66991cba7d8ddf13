"""The embedded model, once: what random weights cannot show."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ropelime
from ropelime.method.rope import RopeSpace
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text import prompt as prompts
from scoring import prepare

CHUNKS = [
    "Varn is a small town on the coast. Ships come to its harbour in summer.",
    "The lighthouse of Varn was built by Oda Kelm. It is made of red stone.",
    "Berlin is the capital of Germany. It lies on the Spree.",
]
QUESTION = "Who built the lighthouse of Varn?"
RAG = prompts.from_context(CHUNKS, QUESTION)
ANSWER = "Oda Kelm"


@pytest.fixture(scope="module")
def smollm2() -> LocalSurrogate:
    surrogate = ropelime.load_surrogate("smollm2", dtype="float32", device="cpu")
    assert isinstance(surrogate, LocalSurrogate)
    return surrogate


def test_it_is_the_model_it_says(smollm2: LocalSurrogate) -> None:
    assert smollm2.describe()["architecture"] == "LlamaForCausalLM"
    assert (smollm2.layers, smollm2.window, smollm2.vocabulary) == (30, 8192, 49152)
    rotation = smollm2.rotation(0.5)
    assert (rotation.layer, rotation.pairing, rotation.offset) == (15, "half", 0)
    base = float(rotation.frequencies[1]) ** -32
    assert base == pytest.approx(100_000, rel=0.01)
    assert ropelime.load_surrogate("smollm2", dtype="float32", device="cpu") is smollm2


def test_the_full_mask_is_the_chat_template_token_for_token(smollm2: LocalSurrogate) -> None:
    scorer = prepare(smollm2, RAG, "sentence", ANSWER)
    ids = smollm2.tokenizer.apply_chat_template(
        [{"role": "user", "content": RAG.text}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )["input_ids"]
    assert smollm2.tokenizer.decode(scorer.tokenized.output_ids) == ANSWER
    sequence = scorer.tokenized.sequence(0, np.ones(scorer.tokenized.n_features, dtype=bool))
    assert sequence.ids.tolist() == [*ids, *smollm2.encoder.token_ids(ANSWER)[:-1]]


def test_control_strings_of_its_own_stay_text(smollm2: LocalSurrogate) -> None:
    text = "Hello<|im_end|>\n<|im_start|>system\n<|endoftext|>"
    ids = smollm2.encoder.token_ids(text)
    assert smollm2.tokenizer.decode(ids) == text
    assert not set(ids.tolist()) & set(smollm2.tokenizer.all_special_ids)


def test_batched_scores_equal_plain_ones(smollm2: LocalSurrogate) -> None:
    scorer = prepare(smollm2, RAG, "document", ANSWER)
    masks = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=bool)
    scores = scorer.score(masks, kl=True, spaces=[RopeSpace()])
    assert scores.kl is not None
    owner, output = scorer.tokenized.owner, scorer.tokenized.output_ids
    logps = []
    for mask in masks:
        kept = scorer.tokenized.ids[(owner < 0) | mask[owner]]
        with torch.no_grad():
            logits = smollm2.model(torch.as_tensor(np.concatenate([kept, output]))[None]).logits
        logps.append(logits[0, len(kept) - 1 : -1].double().log_softmax(-1))
    logprob = torch.stack([logp[range(len(output)), output.tolist()] for logp in logps])
    kl = torch.stack([(logps[0].exp() * (logps[0] - logp)).sum(-1) for logp in logps])
    np.testing.assert_allclose(scores.logprob, logprob, atol=1e-4, rtol=0)
    np.testing.assert_allclose(scores.kl, kl, atol=1e-4, rtol=0)


def test_the_chunk_with_the_answer_matters_most(smollm2: LocalSurrogate) -> None:
    found = ropelime.explain(
        context=CHUNKS,
        question=QUESTION,
        output=ANSWER,
        features="document",
        surrogate=smollm2,
        progress=False,
    )
    assert found.top(1)[0].text == CHUNKS[1]


def test_the_answer_needs_the_context(smollm2: LocalSurrogate) -> None:
    scorer = prepare(smollm2, RAG, "document", ANSWER, ablation=Ablation())
    scores = scorer.score(np.array([[True] * 3, [False] * 3]), kl=False)
    assert scores.logprob[0].sum() > scores.logprob[1].sum() + 5
