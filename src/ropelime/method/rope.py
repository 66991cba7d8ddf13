"""Geometry of rotary space: planes, span means, the polar distance and the relaxed mover's distance.

Every function takes NumPy arrays or torch tensors and gives back the same kind. ``D`` is the number of
planes (all key heads side by side), ``n`` the features of the prompt, ``m`` those kept.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = Any  # a numpy.ndarray or a torch.Tensor
Pairing = Literal["half", "interleaved"]

_ELEMENTS_AT_ONCE = 1 << 20  # bounds the (n, m, D) differences of phases held in memory


@dataclass(frozen=True)
class RopeSpace:
    """Which embedding the distance is taken in, and how.

    Attributes:
        layer: A layer number (negative counts from the end), or a share of the depth in [0, 1).
        space: ``"key"``, the rotated keys that attention reads, or ``"hidden"``, the hidden states
            turned as if they were keys.
        phase: ``"relative"`` turns every span back by the rotation of its first token, so a span
            looks the same wherever it stands; ``"raw"`` leaves the phases as they are.
        beta: Weight of the phases against the magnitudes.
        mass: ``"uniform"`` or ``"tokens"``: how much a feature counts in the mean.
        tight: Take the larger of both directions, the tighter bound on the mover's distance.
    """

    layer: int | float = 0.5
    space: Literal["key", "hidden"] = "key"
    phase: Literal["relative", "raw"] = "relative"
    beta: float = 1.0
    mass: Literal["uniform", "tokens"] = "uniform"
    tight: bool = False


def planes(x: Array, pairing: Pairing) -> tuple[Array, Array]:
    """Split (..., d) vectors into the two (..., d/2) coordinates of the planes that rotate together.

    Llama, Qwen, Gemma and most others in transformers turn dimension ``k`` with ``k + d/2``
    (``"half"``); GPT-J, GLM and Cohere turn ``2k`` with ``2k + 1`` (``"interleaved"``).
    """
    if pairing == "half":
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]
    return x[..., 0::2], x[..., 1::2]


def turn(a: Array, b: Array, angle: Array) -> tuple[Array, Array]:
    """Rotate the points (a, b) of each plane by ``angle`` radians."""
    xp = _namespace(a)
    cos, sin = xp.cos(angle), xp.sin(angle)
    return a * cos - b * sin, a * sin + b * cos


def span_means(a: Array, b: Array, span: Array, count: int) -> tuple[Array, Array]:
    """(count, D) mean magnitudes, and circular mean phases in (-pi, pi], over the tokens of each span.

    ``a`` and ``b`` are (tokens, D) coordinates in each plane, ``span`` (tokens,) the span that each
    token belongs to. Every span has at least one.
    """
    xp = _namespace(a)
    size = xp.hypot(a, b)
    safe = xp.where(size > 0, size, xp.ones_like(size))
    tokens = _sums(xp.ones_like(a[:, :1]), span, count)
    phase = xp.arctan2(_sums(b / safe, span, count), _sums(a / safe, span, count))
    return _sums(size, span, count) / tokens, phase


def _sums(values: Array, span: Array, count: int) -> Array:
    """(count, D) sums of the (tokens, D) values of each span."""
    xp = _namespace(values)
    if xp is np:
        sums = np.zeros((count, values.shape[1]), dtype=values.dtype)
        np.add.at(sums, span, values)
        return sums
    into = xp.as_tensor(span, device=values.device)
    return values.new_zeros(count, values.shape[1]).index_add(0, into, values)


def wrap(angle: Array) -> Array:
    """Bring an angle into [-pi, pi]."""
    return angle - math.tau * _namespace(angle).round(angle / math.tau)


def polar_distances(r_x: Array, theta_x: Array, r_y: Array, theta_y: Array, beta: float = 1.0) -> Array:
    """(n, m) polar distances between every span of x and every span of y.

    ``d^2 = sum_k (r_x - r_y)^2 + beta * sum_k wrap(theta_x - theta_y)^2``, with mean magnitudes r and
    mean phases theta, (n, D) of x and (m, D) of y.
    """
    xp = _namespace(r_x)
    rows = max(1, _ELEMENTS_AT_ONCE // max(1, r_y.shape[0] * r_y.shape[1]))
    blocks = []
    for at in range(0, r_x.shape[0], rows):
        radial = r_x[at : at + rows, None, :] - r_y[None]
        phase = wrap(theta_x[at : at + rows, None, :] - theta_y[None])
        blocks.append((radial * radial).sum(-1) + beta * (phase * phase).sum(-1))
    return xp.concatenate(blocks) ** 0.5


def rwmd(distances: Array, mass_x: Array, mass_y: Array, *, tight: bool = False) -> Array:
    """Relaxed Word Mover's Distance from a prompt to what is left of it; NaN if that is nothing.

    ``distances`` (n, m) go from every feature to every kept one, with masses (n,) and (m,). ``tight``
    takes the larger of the two one-sided relaxations.
    """
    xp = _namespace(distances)
    if distances.shape[1] == 0:
        return distances.sum() * float("nan")
    forth = (xp.amin(distances, 1) * mass_x).sum() / mass_x.sum()
    if not tight:
        return forth
    back = (xp.amin(distances, 0) * mass_y).sum() / mass_y.sum()
    return xp.maximum(forth, back)


def _namespace(x: Array) -> Any:
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(x, torch.Tensor) else np
