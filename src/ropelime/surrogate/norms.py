"""Norms by the root of the mean square, run by one kernel where models write them out as seven steps.

The result is the same but for rounding: one kernel rounds once, the steps each.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch.nn import functional

from ropelime.surrogate.forms import has_own_forward, own_forward, running_by

_EPSILONS = ("variance_epsilon", "eps")  # what models call the number that keeps them from zero
_SIZES = (1e-3, 1.0, 1e3)  # of the states that are tried: with the smallest that number counts


def norms_of(model: Any) -> list[Any]:
    """The norms of a model that one kernel can run."""
    return [part for part in model.modules() if _is_plain(part)]


def by_one_kernel(part: Any, states: torch.Tensor) -> torch.Tensor:
    """What such a norm gives."""
    if states.dtype != part.weight.dtype:  # what comes out of that is for the model to say
        made: torch.Tensor = own_forward(part, states)
        return made
    return functional.rms_norm(states, part.weight.shape, part.weight, _epsilon(part))


def _epsilon(part: Any) -> Any:
    return next((value for name in _EPSILONS if (value := getattr(part, name, None)) is not None), None)


def _is_plain(part: Any) -> bool:
    """Whether a part is a norm of this kind, and gives what the one kernel gives.

    Tried on a twin with weights of its own: models in training begin with ones, which hide much.
    """
    weight = getattr(part, "weight", None)
    if not type(part).__name__.endswith("RMSNorm") or has_own_forward(part):
        return False
    if weight is None or weight.dim() != 1 or not isinstance(_epsilon(part), float):
        return False
    noise = torch.Generator().manual_seed(0)  # the user's own draws stay as they are
    states = torch.randn(len(_SIZES), len(weight), generator=noise) * torch.tensor(_SIZES)[:, None]
    with torch.inference_mode():
        twin = deepcopy(part).to("cpu", torch.float32)
        twin.weight = torch.nn.Parameter(torch.randn(len(weight), generator=noise), requires_grad=False)
        expected = twin.forward(states)  # around hooks, which are not told of this
        with running_by([twin], by_one_kernel):
            return torch.allclose(twin.forward(states), expected, rtol=1e-4, atol=1e-6)
