"""The layers of a model, compiled by torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from transformers import AttentionInterface

from ropelime.errors import ModelError, first_line
from ropelime.surrogate import attention, tiles


class Compiled:
    """Compiled forms of a model's layers, put in place of the layers' own for as long as they are used.

    Layer by layer, because what goes in and out of the model as a whole is watched by hooks, and around
    the packed attention, which is a loop over rows that no compiler can see through. Packed chunks are
    of any length, so sizes are left open; CUDA graphs, which want them fixed, have no place here. The
    last layer stays as it is: it is given other rows to leave out in every chunk.
    """

    def __init__(self, layers: Sequence[Any], name: str) -> None:
        """Take the layers, and what to call their model in errors; compiled when they first run.

        Raises:
            ModelError: If there are none, or nothing can be compiled on this machine.
        """
        self._name, self._layers = name, layers[:-1]
        if not self._layers:
            raise ModelError(f"The layers of {name} were not found, so they cannot be compiled.")
        with self._explained():
            self._made = [torch.compile(layer.forward, dynamic=True) for layer in self._layers]
            torch.compile(_try)(next(self._layers[0].parameters()).new_ones(2))
        AttentionInterface.register(attention.NAME, _left_alone(attention.attend))
        tiles.multiply_by, tiles.gate = _left_alone(tiles.multiply_by), _left_alone(tiles.gate)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Use the compiled layers."""
        own = [vars(layer).get("forward") for layer in self._layers]  # accelerate's, where it has any
        try:
            for layer, made in zip(self._layers, self._made, strict=True):
                layer.forward = made
            with self._explained():
                yield
        finally:
            for layer, before in zip(self._layers, own, strict=True):
                vars(layer).pop("forward", None)
                if before is not None:
                    layer.forward = before

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from torch._dynamo.exc import TorchDynamoException  # slow to import

        try:
            yield
        except TorchDynamoException as error:
            cause = first_line(getattr(error, "inner_exception", error))
            raise ModelError(
                f"The layers of {self._name} could not be compiled: {cause}. torch needs a compiler "
                "for that, of C++ on a CPU (apt-get install g++), Triton on a GPU. Without "
                "compiled=True, or --compile, they run as they are."
            ) from error


def _try(states: torch.Tensor) -> torch.Tensor:
    """Something to compile: what is missing is then missed at once, and not in the first reading."""
    return states + 1


@cache
def _left_alone(function: Any) -> Any:
    """A function that the compiler leaves as it is and calls; done twice it is the same."""
    plain: Any = torch.compiler.disable  # which has no types
    return function if getattr(function, "_torchdynamo_disable", False) else plain(function)
