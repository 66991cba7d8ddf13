"""Forward hooks that spare a model what nobody needs, and collect what goes into its layers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ropelime.errors import ModelError
from ropelime.surrogate.architecture import has_experts
from ropelime.typing import Ints


@contextmanager
def logits_only_at(model: Any, outputs: Ints) -> Iterator[None]:
    """Compute logits only at the tokens that predict the output."""
    wanted = torch.as_tensor(outputs)

    def pick(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        states = arguments[0]  # (1, N, H)
        return (states[:, wanted.to(states.device)], *arguments[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def last_mlp_only_at(model: Any, layers: Sequence[Any], outputs: Ints) -> Iterator[None]:
    """Run the last feed-forward block only at the tokens that predict the output."""
    block = getattr(layers[-1], "mlp", None) if layers else None
    if block is None or has_experts(model):
        yield
        return
    wanted = torch.as_tensor(outputs)
    shapes: list[torch.Size] = []

    def pick(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        shapes.append(arguments[0].shape)
        return (arguments[0][:, wanted.to(arguments[0].device)], *arguments[1:])

    def put_back(_: Any, __: Any, result: torch.Tensor) -> torch.Tensor:
        whole = result.new_zeros(shapes.pop())
        whole[:, wanted.to(result.device)] = result
        return whole

    handles = [block.register_forward_pre_hook(pick), block.register_forward_hook(put_back)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def layer_inputs(layers: Sequence[Any], wanted: Collection[int]) -> Iterator[dict[int, torch.Tensor]]:
    """Collect the hidden states that go into some of the layers during a forward pass."""
    states: dict[int, torch.Tensor] = {}
    if not wanted:
        yield states
        return
    if not layers:
        raise ModelError("The layers of this model were not found. Use embedding='key'.")

    def collector(layer: int) -> Any:
        def take(_: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            states[layer] = arguments[0] if arguments else keywords["hidden_states"]

        return take

    handles = [
        layers[layer].register_forward_pre_hook(collector(layer), with_kwargs=True) for layer in wanted
    ]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()
