"""What the layers of a transformers model are, and how far its attention reaches; read at loading."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch


def layers_of(model: Any) -> list[Any]:
    """The decoder layers of a model; none where they are not found."""
    return list(_layer_list(model) or ())


def _layer_list(model: Any) -> torch.nn.ModuleList | None:
    count = model.config.get_text_config().num_hidden_layers
    lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count)
    return next(lists, None)


@contextmanager
def first_layers(model: Any) -> Iterator[int | None]:
    """Run only the first layers of a model, at least two, among which is one of every kind.

    Gives their number; None if the model runs as it is, because all are needed or none are found.
    """
    layers = _layer_list(model)
    kinds = [_kind(model, number, layer) for number, layer in enumerate(layers or ())]
    count = max([2, *(kinds.index(kind) + 1 for kind in kinds)])
    if layers is None or count >= len(kinds):
        yield None
        return
    every = layers._modules
    try:
        layers._modules = dict(islice(every.items(), count))
        yield count
    finally:
        layers._modules = every


@contextmanager
def few_predictions(model: Any, most: int) -> Iterator[None]:
    """Compute logits for at most so many tokens, spread over the vocabulary, where one layer does."""
    head = model.get_output_embeddings()
    count = -1 if type(head) is not torch.nn.Linear or hasattr(head, "_hf_hook") else len(head.weight)
    if count <= most:
        yield
        return
    every = dict(head._parameters)
    try:
        for name, values in every.items():
            if values is not None:  # a view: nothing is copied
                some = values.detach()[:: -(-count // most)]
                head._parameters[name] = torch.nn.Parameter(some, requires_grad=False)
        yield
    finally:
        head._parameters.update(every)


def _kind(model: Any, number: int, layer: torch.nn.Module) -> list[Any]:
    """What tells a layer from others: its modules with their settings, and what the config lists."""
    config = vars(model.config.get_text_config())
    depth = model.config.get_text_config().num_hidden_layers
    listed = [v[number] for v in config.values() if isinstance(v, (list, tuple)) and len(v) == depth]
    modules = [
        (name, type(part), {k: v for k, v in vars(part).items() if _is_setting(k, v)})
        for name, part in layer.named_modules()
    ]
    return [listed, modules]


def _is_setting(name: str, value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, type(None))) and "idx" not in name


def longest_packed(model: Any) -> float:
    """The most tokens of a sequence that can be packed, as far as the config of a model says.

    A packed layer gets its sliding window, and no other limit.
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
