"""Facts about a transformers model: its layers, devices, widths and how far its attention reaches."""

from __future__ import annotations

import math
from typing import Any

import torch


def layers_of(model: Any) -> list[Any]:
    """The decoder layers of a model; none where they are not found."""
    count = model.config.get_text_config().num_hidden_layers
    lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count)
    return list(next(lists, ()))


def input_device(model: Any) -> torch.device:
    """The device of a model's inputs; offloaded weights are on none until they are used."""
    embedding = model.get_input_embeddings()
    hook = getattr(embedding, "_hf_hook", None)  # accelerate's
    runs_on = getattr(hook, "execution_device", None)
    return torch.device(embedding.weight.device if runs_on is None else runs_on)


def head_size(model: Any) -> int:
    """Dimensions of a head."""
    config = model.config.get_text_config()
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def key_width(model: Any) -> int:
    """Key heads times their dimensions."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(heads) * head_size(model)


def long_rope_from(model: Any) -> float:
    """The length beyond which a LongRoPE model (Phi-3) turns all its keys at other frequencies."""
    config = model.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) != "longrope":
        return math.inf
    limit = scaling.get("original_max_position_embeddings")
    return float(limit or config.original_max_position_embeddings)


def has_experts(model: Any) -> bool:
    """Whether layers are mixtures of experts, which may give back more than the states."""
    config = model.config.get_text_config()
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size")
    return any(getattr(config, name, None) for name in names)


def supports_packing(model: Any, longest: int) -> bool:
    """Whether sequences of this length can be packed, as far as the config of a model says."""
    if not getattr(model, "_supports_attention_backend", False):
        return False
    # An attention function does not get the mask of a chunked layer.
    chunk = getattr(model.config.get_text_config(), "attention_chunk_size", None)
    return longest <= long_rope_from(model) and not (chunk and longest > chunk)


def supports_cached(model: Any, length: int) -> bool:
    """Whether sequences can attend to the cached prefix of a prompt of this length.

    Not where some layer attends to fewer tokens than that, in a window or a chunk, not where long
    prompts are rotated at other frequencies, and not with ALiBi, which counts distances over all keys
    that are there.
    """
    config = model.config.get_text_config()
    limits = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    alibi = getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt")
    near = all(length <= int(limit) for limit in limits if limit) and length <= long_rope_from(model)
    return near and not alibi
