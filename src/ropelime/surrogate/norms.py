"""RMSNorm by torch's fused function: on a GPU one kernel, where models write out seven steps.

Used on GPUs only, where it makes scoring 16 to 24 % faster. The result is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import torch
from torch.nn import functional

_EPSILONS = ("variance_epsilon", "eps")  # what models call the number that keeps them from zero
_SIZES = (1e-3, 1.0, 1e3)  # of the states that are tried: small where epsilon counts, and large ones
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}  # relative; half precision rounds more coarsely


def plain_norms(model: Any) -> list[Any]:
    """The norms of a model that torch's function computes."""
    return [module for module in model.modules() if _looks_plain(module) and _agrees(module)]


@contextmanager
def fused_norms(norms: Sequence[Any]) -> Iterator[None]:
    """Let norms run by torch's function, except those that somebody else has changed or observes."""
    ours = [norm for norm in norms if not _is_changed(norm)]
    try:
        for norm in ours:
            norm.forward = partial(fused_norm, norm)
        yield
    finally:
        for norm in ours:
            vars(norm).pop("forward", None)


def fused_norm(norm: Any, states: torch.Tensor) -> torch.Tensor:
    """What a plain norm returns, by torch's function."""
    if states.dtype != norm.weight.dtype:  # the model defines the dtype that comes out of that
        made: torch.Tensor = type(norm).forward(norm, states)
        return made
    return functional.rms_norm(states, norm.weight.shape, norm.weight, _epsilon(norm))


def _epsilon(norm: Any) -> Any:
    return next((value for name in _EPSILONS if (value := getattr(norm, name, None)) is not None), None)


def _is_changed(norm: Any) -> bool:
    """Whether accelerate, or anybody else, has given this one module a forward or hooks."""
    return "forward" in vars(norm) or bool(norm._forward_hooks or norm._forward_pre_hooks)


def _looks_plain(module: Any) -> bool:
    """Whether a module has the name and the parameters of a plain RMSNorm."""
    weight = getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNorm") or "forward" in vars(module):
        return False
    if weight is None or weight.dim() != 1 or set(module._parameters) != {"weight"}:
        return False
    return isinstance(_epsilon(module), float)


def _agrees(norm: Any) -> bool:
    """Whether a norm returns what torch's function returns."""
    try:
        # In its own dtype too: some releases of torch take squares in half precision.
        return all(_agrees_in(norm, dtype) for dtype in {torch.float32, norm.weight.dtype})
    except Exception:  # a norm that needs more arguments, or other states, keeps its own forward
        return False


def _agrees_in(norm: Any, dtype: torch.dtype) -> bool:
    """Tried on a copy with random weights, because the ones of an untrained model hide much."""
    noise = torch.Generator().manual_seed(0)  # the user's own draws stay as they are
    where = {"dtype": dtype, "device": norm.weight.device}
    weight = torch.randn(len(norm.weight), generator=noise, device="cpu")
    states = torch.randn(len(_SIZES), len(weight), generator=noise, device="cpu")
    states *= torch.tensor(_SIZES, device="cpu")[:, None]
    twin = copy(norm)
    vars(twin)["_parameters"] = {"weight": weight.to(**where)}
    with torch.inference_mode():
        expected = twin.forward(states.to(**where))  # not called, so that hooks do not see it
        made = fused_norm(twin, states.to(**where))
    return torch.allclose(made, expected, rtol=_TOLERANCE.get(dtype, 0.03), atol=1e-6)
