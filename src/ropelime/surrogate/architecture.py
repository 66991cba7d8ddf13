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
    """The most tokens of a sequence that can be packed, as far as the config of a model says."""
    if not getattr(model, "_supports_attention_backend", False):
        return 0
    # An attention function does not get the mask of a chunked layer.
    chunk = getattr(model.config.get_text_config(), "attention_chunk_size", None)
    return min(_long_rope_from(model), chunk or math.inf)


def longest_cached(model: Any) -> float:
    """The most tokens of a prompt whose cached prefix other sequences can attend to.

    No more than every layer attends to, in a window or a chunk, no more than are rotated at the same
    frequencies, and none with ALiBi, which counts distances over all keys that are there.
    """
    config = model.config.get_text_config()
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return 0
    limits = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min(_long_rope_from(model), *(limit or math.inf for limit in limits))


def _long_rope_from(model: Any) -> float:
    """The length beyond which a LongRoPE model (Phi-3) turns all its keys at other frequencies."""
    config = model.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) != "longrope":
        return math.inf
    limit = scaling.get("original_max_position_embeddings")
    return float(limit or config.original_max_position_embeddings)
