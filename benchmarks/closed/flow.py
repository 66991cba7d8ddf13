"""FlashTrace: information flow from the tokens of a prompt to all tokens of the answer at once.

After Pan et al., "Towards Long-Horizon Interpretability: Efficient and Faithful Multi-Token
Attribution for Reasoning LLMs" (2026) and the package ``flashtrace`` 0.1.1, written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.closed import attention
from ropelime.errors import ModelError
from ropelime.surrogate.architecture import layers_of
from ropelime.surrogate.local import LocalSurrogate
from ropelime.surrogate.tokens import TokenizedPrompt
from ropelime.typing import Floats, Ints, Masks

_TOKENS = 128  # whose flow is computed at once
_STOPS = ("", ",", ".")
_NEEDED = ("input_layernorm", "post_attention_layernorm", "self_attn.v_proj", "self_attn.o_proj")


def traceable(surrogate: LocalSurrogate) -> bool:
    """Whether a model has decoder layers as Llama and Qwen: two norms, each before its block."""
    layers = layers_of(surrogate.model)
    return bool(layers) and all(_is_plain(layer) for layer in layers)


def flashtrace(surrogate: LocalSurrogate, tokenized: TokenizedPrompt, *, hops: int = 1) -> Floats:
    """(n,) the flow from each part of the whole prompt into the answer, summed over its tokens.

    As in the package: the sinks are the positions of the answer's own tokens, the last one included;
    commas, full stops and white space neither send nor receive; a second hop follows what flows through
    the answer itself. Unlike there, the chat template counts as part of the prompt, attention is the
    model's own instead of recomputed, and the normalised input of a layer is not linearised with an
    epsilon of 1e-6. The bias of values is left out, as there.

    Args:
        surrogate: A model as Llama or Qwen.
        tokenized: The prompt and the answer.
        hops: How often flow through the answer is followed on.
    """
    n = tokenized.n_features
    sequence = tokenized.sequence(0, np.ones(n, dtype=bool))
    ids = np.concatenate([sequence.ids, tokenized.output_ids[-1:]])
    total = flow(surrogate, ids, len(tokenized.output_ids), hops=hops)
    owner = np.concatenate([sequence.owner, [-1]])
    return np.asarray(np.bincount(owner + 1, weights=total, minlength=n + 1)[1:], dtype=float)


def flow(surrogate: LocalSurrogate, ids: Ints, rows: int, *, hops: int = 1) -> Floats:
    """(N,) the flow from each token into the last ``rows`` tokens; those receive nothing."""
    layers = _read(surrogate, ids, rows)
    kept = _kept(surrogate, ids)
    own = np.arange(len(ids)) >= len(ids) - rows
    weights = kept[own].astype(float)
    found, ratio = np.zeros(len(ids)), 1.0
    for _ in range(hops + 1):
        if weights.sum() <= 0 or ratio <= 0:
            break
        into = kept * sum(_flow(layer, weights / weights.sum()) for layer in layers)
        found += ratio * np.where(own, 0.0, into)
        weights = into[own]
        ratio *= weights.sum() / max(float(into.sum()), 1e-12)
    return found


@dataclass
class _Layer:
    """What one layer has computed, for the rows that are read."""

    o_proj: Any
    attention: torch.Tensor = field(init=False)  # (heads, rows, N)
    values: torch.Tensor = field(init=False)  # (N, heads that share keys x d)
    before: torch.Tensor = field(init=False)  # (rows, H) the residual stream before attention
    after: torch.Tensor = field(init=False)  # (rows, H) and behind it


@torch.inference_mode()
def _flow(layer: _Layer, weights: Floats) -> Floats:
    """(N,) the share of each token in the weighted sum of the rows behind the attention of a layer.

    A vector's share is its proximity to the sum, in L1 norm: max(0, ‖sum‖ − ‖vector − sum‖), over that
    of the residual stream and of all tokens and heads together.
    """
    w = torch.as_tensor(weights, dtype=torch.float32, device=layer.after.device)
    target = w @ layer.after.float()
    norm = target.abs().sum()

    def proximity(vectors: torch.Tensor) -> torch.Tensor:
        return (norm - (vectors - target).abs().sum(-1)).clamp(min=0)

    heads, _, count = layer.attention.shape
    alpha = torch.einsum("r,hrj->jh", w, layer.attention.float())
    out = layer.o_proj.weight.float().view(len(target), heads, -1)  # (H, heads, d)
    values = layer.values.float().view(count, -1, out.shape[-1])
    shared = values.repeat_interleave(heads // values.shape[1], dim=1)  # (N, heads, d)
    found = []
    for start in range(0, count, _TOKENS):
        some = slice(start, start + _TOKENS)
        sent = torch.einsum("jhd,khd->jhk", alpha[some, :, None] * shared[some], out)
        found.append(proximity(sent).sum(1))
    tokens = torch.cat(found)
    share = tokens / (tokens.sum() + proximity(w @ layer.before.float()) + 1e-12)
    return np.asarray(share.double().cpu().numpy())


def _read(surrogate: LocalSurrogate, ids: Ints, rows: int) -> list[_Layer]:
    """One forward pass, with what every layer computes."""
    if not traceable(surrogate):
        raise ModelError(
            f"{surrogate.name} has no decoder layers as Llama or Qwen (two norms, each before its "
            "block), so information flow cannot be traced. Choose another surrogate."
        )
    modules = layers_of(surrogate.model)
    layers = [_Layer(module.self_attn.o_proj) for module in modules]

    def take(number: int, found: torch.Tensor) -> None:
        layers[number].attention = found

    with _hooked(modules, layers, rows):
        attention.read(surrogate, ids, rows, take)
    return layers


@contextmanager
def _hooked(modules: list[Any], layers: list[_Layer], rows: int) -> Iterator[None]:
    """Keep values, and the residual stream before and behind attention, of a forward pass."""

    def stream(layer: _Layer, name: str) -> Callable[..., None]:
        # A copy: a view would keep the states of all tokens alive.
        return lambda _, arguments: setattr(layer, name, arguments[0][0, -rows:].clone())

    def values(layer: _Layer) -> Callable[..., None]:
        def keep(module: Any, _: Any, out: torch.Tensor) -> None:
            bias = getattr(module, "bias", None)
            layer.values = out[0] if bias is None else out[0] - bias

        return keep

    handles = []
    for module, layer in zip(modules, layers, strict=True):
        handles += [
            module.input_layernorm.register_forward_pre_hook(stream(layer, "before")),
            module.post_attention_layernorm.register_forward_pre_hook(stream(layer, "after")),
            module.self_attn.v_proj.register_forward_hook(values(layer)),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _kept(surrogate: LocalSurrogate, ids: Ints) -> Masks:
    """(N,) which tokens are no commas, full stops or white space."""
    texts = surrogate.tokenizer.batch_decode([[int(number)] for number in ids])
    return np.array([text.strip() not in _STOPS for text in texts])


def _is_plain(layer: Any) -> bool:
    if hasattr(layer, "pre_feedforward_layernorm"):  # Gemma 2 and 3 norm what a block returns, too
        return False
    able = all(_has(layer, name) for name in _NEEDED)
    return able and bool(layer.self_attn.o_proj.weight.is_floating_point())


def _has(layer: Any, path: str) -> bool:
    for name in path.split("."):
        layer = getattr(layer, name, None)
    return layer is not None
