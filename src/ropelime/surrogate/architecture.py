"""What the layers of a transformers model are, and how far its attention reaches; read at loading."""

from __future__ import annotations

import math
from typing import Any

import torch


def layers_of(model: Any) -> list[Any]:
    """The decoder layers of a model; none where they are not found."""
    count = model.config.get_text_config().num_hidden_layers
    lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count)
    return list(next(lists, ()))


def longest_packed(model: Any) -> float:
    """The most tokens of a sequence that can be packed, as far as the config of a model says.

    A packed layer is told its sliding window, and of no other limit.
    """
    if not getattr(model, "_supports_attention_backend", False):
        return 0
    limits = _limits(model)
    limits.pop("sliding_window", None)
    return min(_long_rope_from(model), *limits.values(), math.inf)


def longest_cached(model: Any) -> float:
    """The most tokens of a prompt whose cached prefix other sequences can attend to.

    No more than every layer attends to, and no more than are rotated at the same frequencies.
    """
    return min(_long_rope_from(model), *_limits(model).values(), math.inf)


def sliding_window(model: Any) -> float:
    """How many tokens its local layers attend to."""
    return _limits(model).get("sliding_window", math.inf)


def _limits(model: Any) -> dict[str, float]:
    """How many tokens some layers attend to, by the names that configs have for it."""
    config = model.config.get_text_config()
    # The last two are of sparse attention, which picks so many keys, or blocks of so many.
    names = ["sliding_window", "attention_chunk_size", "index_topk", "index_block_size"]
    names += [name for name in vars(config) if name.endswith(("window", "window_size"))]
    found = {name: getattr(config, name, None) for name in names}
    kinds = getattr(config, "layer_types", None)
    if kinds and not any("sliding" in kind for kind in kinds):
        del found["sliding_window"]  # no layer uses it
    return {name: limit for name, limit in found.items() if type(limit) is int and limit > 0}


def _long_rope_from(model: Any) -> float:
    """The length beyond which a LongRoPE model (Phi-3) turns all its keys at other frequencies."""
    config = model.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) != "longrope":
        return math.inf
    limit = scaling.get("original_max_position_embeddings")
    return float(limit or config.original_max_position_embeddings)
