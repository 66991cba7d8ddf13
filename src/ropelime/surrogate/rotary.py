"""How a model turns its keys: found out by asking the model, not by its name.

Shifting all positions by one leaves a rotary model's keys as they were but for one rotation. Whichever
pairing of dimensions and set of frequencies explains that rotation is the model's own. A wrong pairing
would run as well and mean nothing, so it is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ropelime.errors import ModelError
from ropelime.method import rope
from ropelime.method.rope import Pairing

WITHOUT_ROPE = "kernel='hamming', 'cosine' or 'uniform'"


@dataclass(frozen=True)
class Rotation:
    """The planes of one layer.

    Attributes:
        layer: The layer.
        pairing: Which dimensions form a plane.
        offset: The first rotated dimension of a head; the rest of a head is not rotated.
        frequencies: (P,) radians a position, for each plane of a head.
    """

    layer: int
    pairing: Pairing
    offset: int
    frequencies: torch.Tensor

    def key_planes(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(tokens, heads, d) keys to two (tokens, heads, P) coordinates, in float32."""
        end = self.offset + 2 * len(self.frequencies)
        return rope.planes(keys[..., self.offset : end].float(), self.pairing)


def candidates(model: Any) -> list[torch.Tensor]:
    """Every set of frequencies that the model holds, on the CPU; none means that it does not rotate."""
    found: list[torch.Tensor] = []
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and buffer.ndim == 1:
            frequencies = buffer.detach().float().cpu()  # its layers may lie on several devices
            if not any(f.shape == frequencies.shape and torch.equal(f, frequencies) for f in found):
                found.append(frequencies)
    width = getattr(model.config, "rotary_dim", None)
    if not found and isinstance(width, int) and width > 1:  # GPT-J and CodeGen keep tables instead
        found.append(10000.0 ** (-torch.arange(0, width, 2).float() / width))
    return found


def measure(before: torch.Tensor, after: torch.Tensor, model: Any, layer: int) -> Rotation | None:
    """The rotation that takes ``before`` to ``after``, the same keys one position later.

    Args:
        before: (q, heads, d) keys of the layer.
        after: The same with every position shifted by one.
        model: The model that they come from.
        layer: The layer, to be noted in the result.

    Returns:
        The rotation, or None if no candidate explains what happened to the keys.
    """
    best, error = None, 0.5  # seen: at most 0.16 in bfloat16, and at least 1.2 with a wrong pairing
    for frequencies in candidates(model):
        width = 2 * len(frequencies)
        for offset in sorted({0, before.shape[-1] - width}):
            if offset < 0:
                continue
            pairings: tuple[Pairing, ...] = ("half", "interleaved")
            for pairing in pairings:
                rotation = Rotation(layer, pairing, offset, frequencies.to(before.device))
                expected = rope.turn(*rotation.key_planes(before), rotation.frequencies)
                seen = rotation.key_planes(after)
                wrong = sum(float(((e - s) ** 2).sum()) for e, s in zip(expected, seen, strict=True))
                moved = sum(
                    float(((b - s) ** 2).sum())
                    for b, s in zip(rotation.key_planes(before), seen, strict=True)
                )
                if moved > 0 and (wrong / moved) ** 0.5 < error:
                    best, error = rotation, (wrong / moved) ** 0.5
    return best


def refuse(name: str, layer: int | None = None) -> ModelError:
    """The error for a model, or a layer, whose keys do not rotate."""
    what = f"{name} has no rotary position embedding"
    if layer is not None:
        what = f"Layer {layer} of {name} does not rotate its keys"
    return ModelError(
        f"{what}, so kernel='rope-rwmd' cannot read distances from it. Use {WITHOUT_ROPE} with it"
        + (", or another layer." if layer is not None else ", or a surrogate with RoPE.")
    )
