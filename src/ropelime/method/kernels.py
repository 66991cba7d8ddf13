"""How near a masked prompt is to the full one, as a weight in the fit."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Floats, Scores
from ropelime.registry import resolve


class Kernel(Protocol):
    """Gives every reading its weight."""

    @property
    def space(self) -> RopeSpace | None:
        """The rotary space that the surrogate must read distances in, if any."""
        ...

    def weigh(self, scores: Scores) -> Floats:
        """(N,) weights in [0, 1]; the unmasked prompt weighs 1."""
        ...


@dataclass(frozen=True)
class RopeRWMD:
    """Relaxed Word Mover's Distance between spans in rotary space: the paper's kernel.

    ``w = exp(-d^2 / sigma^2)`` with sigma the median distance. The fields are those of
    :class:`ropelime.method.rope.RopeSpace`.
    """

    layer: int | float = 0.5
    embedding: Literal["key", "hidden"] = "key"
    phase: Literal["relative", "raw"] = "relative"
    beta: float = 1.0
    mass: Literal["uniform", "tokens"] = "uniform"
    tight: bool = False
    name: ClassVar[str] = "rope-rwmd"

    def __post_init__(self) -> None:
        for field, choices in (
            ("embedding", ("key", "hidden")),
            ("phase", ("relative", "raw")),
            ("mass", ("uniform", "tokens")),
        ):
            if getattr(self, field) not in choices:
                raise InputError(
                    f"{field} of rope-rwmd must be {' or '.join(map(repr, choices))}, "
                    f"not {getattr(self, field)!r}."
                )
        if isinstance(self.layer, bool) or not (
            isinstance(self.layer, (int, float)) and math.isfinite(self.layer)
        ):
            raise InputError(f"layer of rope-rwmd must be a number, not {self.layer!r}.")
        if not 0 <= self.beta < math.inf:
            raise InputError(f"beta of rope-rwmd must be finite and at least 0, not {self.beta}.")

    @property
    def space(self) -> RopeSpace:
        """The rotary space of the distances."""
        fields = dataclasses.asdict(self)
        return RopeSpace(space=fields.pop("embedding"), **fields)

    def weigh(self, scores: Scores) -> Floats:
        """Gaussian weights of the distances that the surrogate read."""
        if self.space not in scores.distances:
            raise ModelError(
                "The surrogate gave no distances in rotary space. Use kernel='hamming', 'cosine' or "
                "'uniform' with it."
            )
        return _gaussian(scores.distances[self.space])


@dataclass(frozen=True)
class Hamming:
    """Gaussian in the share of features removed, with the median share as its width."""

    name: ClassVar[str] = "hamming"
    space: ClassVar[None] = None

    def weigh(self, scores: Scores) -> Floats:
        """Weights from the masks alone."""
        return _gaussian(1.0 - scores.masks.mean(1))


@dataclass(frozen=True)
class Cosine:
    """LIME's text kernel: ``exp(-d^2 / width^2)``, d the cosine distance to the full mask.

    Attributes:
        width: Width of the kernel.
    """

    width: float = 0.25
    name: ClassVar[str] = "cosine"
    space: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not isinstance(self.width, (int, float)) or not self.width > 0:
            raise InputError(f"width of cosine must be above 0, not {self.width!r}.")

    def weigh(self, scores: Scores) -> Floats:
        """Weights from the masks alone; the empty mask is at distance 1."""
        distance = 1.0 - np.sqrt(scores.masks.mean(1))
        return np.asarray(np.exp(-((distance / self.width) ** 2)))


@dataclass(frozen=True)
class Uniform:
    """Every reading weighs the same."""

    name: ClassVar[str] = "uniform"
    space: ClassVar[None] = None

    def weigh(self, scores: Scores) -> Floats:
        """Ones."""
        return np.ones(len(scores.masks))


KERNELS: dict[str, type[Kernel]] = {cls.name: cls for cls in (RopeRWMD, Hamming, Cosine, Uniform)}


def resolve_kernel(spec: object) -> Kernel:
    """A kernel by name or as an object."""
    return resolve("kernel", spec, KERNELS, method="weigh")


def _gaussian(distance: Floats) -> Floats:
    """``exp(-d^2 / median^2)``; an undefined distance counts as the largest defined one.

    The first row is the unmasked prompt at distance zero and is left out of the median. Where the
    median is zero every distance that is not zero would weigh nothing, so the mean takes its place;
    where all distances are zero all weights are one.
    """
    known = np.isfinite(distance)
    distance = np.where(known, distance, distance[known].max(initial=0.0))
    others = distance[1:]
    sigma = float(np.median(others)) if len(others) else 0.0
    sigma = sigma if sigma > 0 else float(others.mean()) if len(others) else 0.0
    if sigma <= 0:
        return np.ones(len(distance))
    return np.asarray(np.exp(-((distance / sigma) ** 2)))
