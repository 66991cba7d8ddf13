"""The engine against a naive loop: one plain call of the model for each mask, nothing shared."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.architectures.build import WINDOW
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.engine import Engine, ForwardResult
from ropelime.surrogate.selfcheck import check
from ropelime.surrogate.sequences import MaskedSequences
from ropelime.surrogate.tokens import TokenizedPrompt
from ropelime.typing import Floats, Masks

LARGEST = 1e-3  # nats: a difference that float32 can make
_OUTPUT = 4  # tokens
_CHUNKS = (7, 4096)  # tokens of a forward pass: sequences are cut, and they are not


@dataclass(frozen=True)
class Comparison:
    """How one architecture is scored.

    Attributes:
        packed: Whether sequences are packed; else they run one by one.
        cached: The most tokens of a prompt that is scored with its KV cache; 0 if none is.
        moves: Whether ``ablation="in-place"`` differs from ``"delete"``.
        exact_error: The largest difference of a token's log-probability from the naive loop, in nats,
        cached_error: and that of cached scoring, if there is any.
    """

    packed: bool
    cached: float
    moves: bool
    exact_error: float
    cached_error: float | None

    @property
    def agrees(self) -> bool:
        """Whether all scores are those of the naive loop."""
        return max(self.exact_error, self.cached_error or 0.0) <= LARGEST


def compare(model: Any, name: str) -> Comparison:
    """Score masked prompts below and beyond the window of local layers.

    Raises:
        ModelError: If the model is refused.
    """
    engine = Engine(model, name)
    engine.ways = check(engine)
    exact, cached, longest = 0.0, None, 0
    for length in (WINDOW - _OUTPUT, 40):
        for how in ("delete", "in-place") if engine.ways.moves else ("delete",):
            exact = max(exact, _error(engine, _tokenized(length, how), cached=False))
        if engine.supports_cached(length + _OUTPUT):
            cached = max(cached or 0.0, _error(engine, _tokenized(length, "delete"), cached=True))
            longest = length + _OUTPUT
    packed = engine.packs(WINDOW)
    unlimited = np.inf if longest > WINDOW else longest
    return Comparison(packed, unlimited, engine.ways.moves, exact, cached)


def _tokenized(length: int, how: str) -> TokenizedPrompt:
    """A prompt of four features between pinned tokens, and an output."""
    ids = 8 + np.random.default_rng(0).permutation(200)[: length + _OUTPUT]
    prompt, output = np.split(ids, [length])
    owner = np.minimum(4 * np.arange(length - 3) // (length - 3), 3)
    owner = np.concatenate([[-1], owner, [-1, -1]])
    return TokenizedPrompt(prompt, owner, output, Ablation(how), prompt[:0], prompt[:1])


def _masks() -> Masks:
    one = np.eye(4, dtype=bool)
    few = np.array([[0, 0, 0, 0], [1, 0, 1, 0]], dtype=bool)
    return np.concatenate([np.ones((1, 4), dtype=bool), ~one, few])


def _error(engine: Engine, tokenized: TokenizedPrompt, *, cached: bool) -> float:
    masks = _masks()
    naive = _naive_cached if cached else _naive
    with torch.inference_mode():
        expected = np.stack([naive(engine.model, tokenized, mask) for mask in masks])
        found = [_scored(engine, tokenized, masks, cached, chunk) for chunk in _CHUNKS]
    return max(float(np.abs(each - expected).max()) for each in found)


def _scored(
    engine: Engine, tokenized: TokenizedPrompt, masks: Masks, cached: bool, chunk: int
) -> Floats:
    """(N, T) log-probabilities of the output by the engine."""
    logprob = np.full((len(masks), len(tokenized.output_ids)), np.nan)

    def take(result: ForwardResult) -> None:
        values = result.logits.double().log_softmax(-1)
        for (mask, token), row in zip(result.scored.tolist(), values, strict=True):
            logprob[mask, token] = float(row[tokenized.output_ids[token]])

    engine.run(MaskedSequences(tokenized, masks, cached=cached), take, tokens=chunk)
    return logprob


def _naive(model: Any, tokenized: TokenizedPrompt, mask: Masks) -> Floats:
    """(T,) log-probabilities by one call over the masked prompt."""
    kept = [i for i, owner in enumerate(tokenized.owner) if owner < 0 or mask[owner]]
    ids = np.concatenate([tokenized.ids[kept], tokenized.output_ids[:-1]])
    how: dict[str, Any] = {}
    if tokenized.ablation.how == "in-place" and not mask.all():
        behind = range(len(tokenized.ids), len(tokenized.ids) + len(tokenized.output_ids) - 1)
        how["position_ids"] = torch.tensor([[*kept, *behind]])
        how["attention_mask"] = torch.ones(1, len(ids), dtype=torch.long)
    if "use_cache" in inspect.signature(model.forward).parameters:
        how["use_cache"] = False
    logits = model(input_ids=torch.tensor(ids[None]), **how).logits[0, len(kept) - 1 :]
    return _of_output(logits, tokenized)


def _naive_cached(model: Any, tokenized: TokenizedPrompt, mask: Masks) -> Floats:
    """(T,) log-probabilities behind the whole KV cache, removed tokens masked as padding."""
    ids, output, tail = tokenized.ids, tokenized.output_ids[:-1], tokenized.tail
    cache = model(input_ids=torch.tensor(ids[None, :tail]), use_cache=True).past_key_values
    visible = [owner < 0 or mask[owner] for owner in tokenized.owner] + [True] * len(output)
    behind = np.concatenate([ids[tail:], output])
    logits = model(
        input_ids=torch.tensor(behind[None]),
        attention_mask=torch.tensor([visible]).long(),
        position_ids=torch.arange(tail, len(ids) + len(output))[None],
        past_key_values=cache,
        use_cache=True,
    ).logits[0, len(ids) - tail - 1 :]
    return _of_output(logits, tokenized)


def _of_output(logits: torch.Tensor, tokenized: TokenizedPrompt) -> Floats:
    picked = logits.double().log_softmax(-1)[range(len(logits)), torch.tensor(tokenized.output_ids)]
    return np.asarray(picked.numpy())
