"""Norms by the root of the mean square, run by torch's own function for them.

On a GPU that is one kernel where models write out seven steps, on a CPU it is fewer steps. The result
is the same but for rounding.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch.nn import functional

from ropelime.surrogate.forms import has_own_forward, own_forward, running_by

_EPSILONS = ("variance_epsilon", "eps")  # what models call the number that keeps them from zero
_SIZES = (1e-3, 1.0, 1e3)  # of the states that are tried: small where that number counts, large ones
_FAR = {torch.float32: 1e-4, torch.float64: 1e-4}  # relative; half precision rounds more coarsely


def norms_of(model: Any) -> list[Any]:
    """The norms of a model that torch's function can run."""
    return [part for part in model.modules() if _is_plain(part)]


def by_torch(part: Any, states: torch.Tensor) -> torch.Tensor:
    """What such a norm gives."""
    if states.dtype != part.weight.dtype:  # what comes out of that is for the model to say
        made: torch.Tensor = own_forward(part, states)
        return made
    return functional.rms_norm(states, part.weight.shape, part.weight, _epsilon(part))


def _epsilon(part: Any) -> Any:
    return next((value for name in _EPSILONS if (value := getattr(part, name, None)) is not None), None)


def _is_plain(part: Any) -> bool:
    """Whether a part is a norm of this kind, and gives what torch's function gives."""
    weight = getattr(part, "weight", None)
    if not type(part).__name__.endswith("RMSNorm") or has_own_forward(part):
        return False
    if weight is None or weight.dim() != 1 or set(part._parameters) != {"weight"}:
        return False
    if not isinstance(_epsilon(part), float):
        return False
    try:
        # In its own type too: some releases of torch take squares in half precision.
        return all(_agrees(part, dtype) for dtype in {torch.float32, weight.dtype})
    except Exception:  # a norm that asks for more, or for other states, is left alone
        return False


def _agrees(part: Any, dtype: torch.dtype) -> bool:
    """Tried on a twin with weights of its own: models in training begin with ones, which hide much."""
    noise = torch.Generator().manual_seed(0)  # the user's own draws stay as they are
    width = len(part.weight)
    states = torch.randn(len(_SIZES), width, generator=noise, device="cpu")
    states *= torch.tensor(_SIZES, device="cpu")[:, None]
    twin = copy(part)
    vars(twin)["_parameters"] = {"weight": torch.randn(width, generator=noise, device="cpu").to(dtype)}
    with torch.inference_mode():
        expected = twin.forward(states.to(dtype))  # around hooks, which are not told of this
        with running_by([twin], by_torch):
            made = twin.forward(states.to(dtype))
    return torch.allclose(made, expected, rtol=_FAR.get(dtype, 0.03), atol=1e-6)
