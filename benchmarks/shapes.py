"""Models of known shapes with random weights, and prompts of random tokens, for timing only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ropelime.registry import unknown
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.tokens import TokenizedPrompt

_HEAD, _TAIL = 16, 16  # pinned tokens before and after the features


@dataclass(frozen=True)
class Shape:
    """The sizes of a model.

    Attributes:
        config: Its class of configurations in transformers.
        vocabulary: Size of the vocabulary.
        hidden: Width of its hidden states.
        inner: Width of its feed-forward layers.
        layers: Number of layers.
        heads: Query heads of a layer.
        groups: Key heads of a layer.
        head: Dimensions of a head.
        tied: Whether the LM head shares the weights of the embedding.
    """

    config: str
    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    groups: int
    head: int
    tied: bool


SHAPES = {
    "tiny": Shape("LlamaConfig", 512, 64, 128, 2, 4, 2, 16, True),
    "smollm2-135m": Shape("LlamaConfig", 49_152, 576, 1_536, 30, 9, 3, 64, True),
    "qwen3-0.6b": Shape("Qwen3Config", 151_936, 1_024, 3_072, 28, 16, 8, 128, True),
    "llama-1b": Shape("LlamaConfig", 128_256, 2_048, 8_192, 16, 32, 8, 64, True),
    "qwen3-4b": Shape("Qwen3Config", 151_936, 2_560, 9_728, 36, 32, 8, 128, True),
    "qwen3-8b": Shape("Qwen3Config", 151_936, 4_096, 12_288, 36, 32, 8, 128, False),
}


def random_surrogate(
    name: str,
    *,
    device: str,
    dtype: str,
    window: int = 65_536,
    seed: int = 0,
    tokenizer: Any = None,
) -> LocalSurrogate:
    """A model of a known shape with random weights, made on the device itself.

    Args:
        name: The shape.
        device: The device it is made on, without a copy elsewhere.
        dtype: Its dtype.
        window: Its context window, in tokens.
        seed: Seed of the weights.
        tokenizer: Whose vocabulary it covers, for prompts of text; a stub if not given.
    """
    import transformers

    if name not in SHAPES:
        raise unknown("shape", name, SHAPES)
    shape = SHAPES[name]
    config = getattr(transformers, shape.config)(
        vocab_size=max(shape.vocabulary, len(tokenizer) if tokenizer else 0),
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        head_dim=shape.head,
        max_position_embeddings=window,
        tie_word_embeddings=shape.tied,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(seed)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    if tokenizer:  # larger than the usual initialisation, so that the prompt matters
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim > 1:
                    weight.normal_(0.0, 1.5 * weight.shape[-1] ** -0.5)
    model.config.name_or_path = f"{name}, random weights"
    return LocalSurrogate(model, tokenizer or _tokenizer(), name=f"{name}, random weights")


def random_scorer(
    surrogate: LocalSurrogate, *, features: int, tokens: int, outputs: int = 16, seed: int = 0
) -> LocalScorer:
    """A prompt of random tokens: pinned ones, features of equal length, pinned ones again.

    Args:
        surrogate: The model.
        features: Number of features.
        tokens: Tokens of a feature.
        outputs: Tokens of the answer.
        seed: Seed of the tokens.
    """
    rng = np.random.default_rng(seed)
    owner = np.concatenate(
        [np.full(_HEAD, -1), np.repeat(np.arange(features), tokens), np.full(_TAIL, -1)]
    )
    ids = rng.integers(3, surrogate.vocabulary, len(owner) + outputs)
    tokenized = TokenizedPrompt(
        ids[: len(owner)],
        owner,
        ids[len(owner) :],
        Ablation(),
        placeholder=np.array([0]),
        beginning=np.array([1]),
        output_spans=tuple((i, i + 1) for i in range(outputs)),
    )
    return LocalScorer(surrogate, tokenized)


def _tokenizer() -> Any:
    """A stub tokenizer, for prompts that are given as tokens."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    known = {"<unk>": 0, "<s>": 1, "</s>": 2}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(known, unk_token="<unk>")),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )
