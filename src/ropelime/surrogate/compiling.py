"""A model with its layers compiled by torch: measured by the benchmark of speed, used nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

from ropelime.errors import ModelError
from ropelime.surrogate import tiles
from ropelime.surrogate.attention import NAME, _forward
from ropelime.surrogate.engine import layers_of


class Compiled:
    """Compiled forms of a model's layers, put in place of the layers' own for as long as they are used.

    Layer by layer, because what goes in and out of the model as a whole is watched by hooks, and around
    the packed attention, which is a loop over rows that no compiler can see through. Packed chunks are
    of any length, so sizes are left open; CUDA graphs, which want them fixed, have no place here. The
    last layer stays as it is: it is given other rows to leave out in every chunk.
    """

    def __init__(self, model: Any) -> None:
        """Compile nothing yet: torch does so when a layer first runs."""
        self._layers = layers_of(model)[:-1]
        if not self._layers:
            raise ModelError("The layers of this model were not found, so they cannot be compiled.")
        self._made = [torch.compile(layer.forward, dynamic=True) for layer in self._layers]
        self._attention = _left_alone(_forward)
        tiles._multiply, tiles._gate = _left_alone(tiles._multiply), _left_alone(tiles._gate)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Use the compiled layers."""
        AttentionInterface.register(NAME, self._attention)
        own = [vars(layer).get("forward") for layer in self._layers]  # accelerate's, where it has any
        for layer, made in zip(self._layers, self._made, strict=True):
            layer.forward = made
        try:
            yield
        finally:
            AttentionInterface.register(NAME, _forward)
            for layer, before in zip(self._layers, own, strict=True):
                del layer.forward
                if before is not None:
                    layer.forward = before


def _left_alone(function: Any) -> Any:
    """A function that the compiler leaves as it is and calls; done twice it is the same."""
    plain: Any = torch.compiler.disable  # which has no types
    return plain(function)
