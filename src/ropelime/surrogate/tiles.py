"""Linear layers whose weights are laid out once as a processor with matrix tiles (AMX) wants them.

Left to itself torch lays them out anew in every product, and tiles are fast enough for that to be a
fifth of the time. Gated feed-forward parts built of them take their gates while the products are still
at hand. The result is the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional

from ropelime.surrogate.forms import has_own_forward, is_watched, running_by

_PAYS_FROM = 8_192  # tokens of a run: laying out takes as long as is saved on about half as many
_MOST_BYTES = 1 << 30  # of weights that are held a second time
_ROWS = 2_048  # of the products that the layout is chosen for
_NEEDED = (
    "_linear_pointwise",
    "_reorder_linear_weight",
)  # of torch.ops.mkldnn; no part of its promises


@lru_cache
def has_tiles() -> bool:
    """Whether this processor multiplies tiles of bfloat16, and torch knows."""
    known = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(known and known())


class Tiled:
    """The linear layers of one model, laid out for tiles while a long run needs them."""

    def __init__(self, model: Any) -> None:
        """Lay out nothing yet."""
        self._model = model
        self._weights: list[torch.Tensor] = []
        self._gated: dict[Any, bool] = {}
        self._made_for: list[tuple[int, int]] = []

    @contextmanager
    def __call__(self, tokens: int) -> Iterator[None]:
        """Use them for a run of so many tokens, if that pays.

        Whether it does is decided by the run alone: the same run rounds alike whatever ran before it.
        """
        parts = _linears(self._model) if tokens >= _PAYS_FROM and can_lay_out() else []
        if sum(part.weight.nbytes for part in parts) > _MOST_BYTES:
            parts = []
        state = [(part.weight.data_ptr(), _sum(part.weight)) for part in parts]
        if parts and state != self._made_for:
            self._weights, self._gated = [lay_out(part.weight) for part in parts], {}
            self._made_for = state
        try:
            for part, weight in zip(parts, self._weights, strict=False):
                part.laid_out = weight
            with running_by(parts, multiply_by), running_by(self._gated_parts() if parts else (), gate):
                yield
        finally:
            for part in parts:
                vars(part).pop("laid_out", None)

    def _gated_parts(self) -> list[Any]:
        """Those that can run by :func:`gate`: found out once, and not while somebody watches them."""
        parts = [part for part in self._model.modules() if _may_be_gated(part)]
        for part in parts:
            if part not in self._gated:
                self._gated[part] = _is_gated(part)
        return [part for part in parts if self._gated[part]]


@lru_cache
def can_lay_out() -> bool:
    """Whether weights can be laid out here, and products with them are right."""
    if not has_tiles() or not all(hasattr(torch.ops.mkldnn, name) for name in _NEEDED):
        return False
    noise = torch.Generator().manual_seed(0)  # the user's own draws stay as they are
    states, weight = (torch.randn(n, 64, generator=noise, device="cpu").bfloat16() for n in (16, 32))
    try:
        with torch.inference_mode():
            made = multiply(states, lay_out(weight), None)
            return torch.allclose(made, functional.linear(states, weight), atol=0.2)
    except RuntimeError:  # some other release of torch
        return False


def lay_out(weight: torch.Tensor) -> torch.Tensor:
    """The weights of a linear layer as products with tiles want them; nothing else can read them."""
    made: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
    return made


def multiply(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, then: str = "none"
) -> torch.Tensor:
    """What a linear layer gives, with weights that were laid out.

    Args:
        states: What goes into it.
        weight: What :func:`lay_out` gives.
        bias: Its bias.
        then: What is done to the result, by the name that oneDNN has for it.
    """
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, then, [], "")
    return made


def multiply_by(part: Any, states: torch.Tensor) -> torch.Tensor:
    """What a linear layer gives that holds its weights laid out."""
    return multiply(states, part.laid_out, part.bias)


def gate(part: Any, states: torch.Tensor) -> torch.Tensor:
    """What a gated part gives whose linear layers are laid out: no pass over the products is made."""
    first, up = part.gate_proj, part.up_proj
    opened = multiply(states, first.laid_out, first.bias, "swish")
    product = torch.ops.mkldnn._linear_pointwise.binary
    made: torch.Tensor = part.down_proj(product(states, opened, up.laid_out, up.bias, "mul"))
    return made


def _may_be_gated(part: Any) -> bool:
    """Whether a part has what :func:`gate` runs, laid out, and nobody would miss what it leaves out."""
    linears = [getattr(part, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(hasattr(each, "laid_out") for each in linears) or has_own_forward(part):
        return False
    return not any(is_watched(each) for each in part.children())


def _is_gated(part: Any) -> bool:
    """Whether such a part gives what :func:`gate` gives, up to gates where any limit would show."""
    noise = torch.Generator().manual_seed(0)
    width = part.gate_proj.in_features
    grid = torch.linspace(-30, 30, 601, device="cpu")
    try:
        with torch.inference_mode():
            if not torch.allclose(part.act_fn(grid), functional.silu(grid), atol=1e-5):
                return False
            states = torch.randn(1, 8, width, generator=noise, device="cpu").bfloat16()
            widest = float(part.gate_proj(states).abs().max())
            states = states * (30 / max(widest, 1e-3))
            expected, made = part.forward(states), gate(part, states)
    except Exception:  # some other release of torch, or a part that asks for more than states
        return False
    far = 0.03 * float(expected.abs().max())
    return expected.shape == made.shape and torch.allclose(made, expected, atol=far, rtol=0)


def _linears(model: Any) -> list[Any]:
    """The linear layers in bfloat16 that nobody has changed; the head works on few rows and stays."""
    head = model.get_output_embeddings()
    return [
        part
        for part in model.modules()
        if type(part) is torch.nn.Linear
        and part is not head
        and part.weight.dtype == torch.bfloat16
        and part.weight.device.type == "cpu"
        and not has_own_forward(part)
    ]


def _sum(weight: torch.Tensor) -> int:
    """Another one where weights have changed; torch's own count does not see all changes."""
    return int(weight.detach().view(torch.int16).sum(dtype=torch.int64))
