"""The layers of a model, compiled by torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

from ropelime.errors import ModelError
from ropelime.surrogate import attention, tiles


class Compiled:
    """Compiled forms of a model's layers, put in place of the layers' own for as long as they are used.

    Layer by layer, because what goes in and out of the model as a whole is watched by hooks, and around
    the packed attention, which is a loop over rows that no compiler can see through. Packed chunks are
    of any length, so sizes are left open; CUDA graphs, which want them fixed, have no place here. The
    last layer stays as it is: it is given other rows to leave out in every chunk.
    """

    def __init__(self, layers: Sequence[Any], name: str) -> None:
        """Take the layers, and what to call their model in errors; compiled when they first run."""
        if not layers:
            raise ModelError(f"The layers of {name} were not found, so they cannot be compiled.")
        self._name, self._layers = name, layers[:-1]
        self._made = [torch.compile(layer.forward, dynamic=True) for layer in self._layers]
        AttentionInterface.register(attention.NAME, _left_alone(attention.attend))
        tiles.multiply_by, tiles.gate = _left_alone(tiles.multiply_by), _left_alone(tiles.gate)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Use the compiled layers."""
        from torch._dynamo.exc import TorchDynamoException  # slow to import

        own = [vars(layer).get("forward") for layer in self._layers]  # accelerate's, where it has any
        try:
            for layer, made in zip(self._layers, self._made, strict=True):
                layer.forward = made
            yield
        except TorchDynamoException as error:
            first = str(error).strip().split("\n")[0][:200]
            raise ModelError(
                f"The layers of {self._name} could not be compiled: {first}. torch needs a C++ "
                "compiler for that (apt-get install g++). Without compiled=True, or --compile, they "
                "run as they are."
            ) from error
        finally:
            for layer, before in zip(self._layers, own, strict=True):
                vars(layer).pop("forward", None)
                if before is not None:
                    layer.forward = before


def _left_alone(function: Any) -> Any:
    """A function that the compiler leaves as it is and calls; done twice it is the same."""
    plain: Any = torch.compiler.disable  # which has no types
    return plain(function)
