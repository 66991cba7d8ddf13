"""How near a masked prompt is to the full one, as a weight in the fit."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.registry import is_number, resolve
from ropelime.typing import Floats


class Kernel(ABC):
    """Gives every scored mask its weight in the fit."""

    name: ClassVar[str]  # what it is called in options and explanations

    @property
    def space(self) -> RopeSpace | None:
        """The rotary space in which the surrogate must measure distances, if any."""
        return None

    @abstractmethod
    def weigh(self, scores: Scores) -> Floats:
        """(N,) weights in [0, 1]; the full prompt weighs 1."""


@dataclass(frozen=True)
class RopeRWMD(Kernel):
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
        for field, known in (
            ("embedding", ("key", "hidden")),
            ("phase", ("relative", "raw")),
            ("mass", ("uniform", "tokens")),
        ):
            if (given := getattr(self, field)) not in known:
                raise InputError(
                    f"{field} of rope-rwmd must be {known[0]!r} or {known[1]!r}, not {given!r}."
                )
        if not is_number(self.layer):
            raise InputError(f"layer of rope-rwmd must be a number, not {self.layer!r}.")
        if not is_number(self.beta) or self.beta < 0:
            raise InputError(f"beta of rope-rwmd must be finite and at least 0, not {self.beta!r}.")
        if not isinstance(self.tight, bool):
            raise InputError(f"tight of rope-rwmd must be true or false, not {self.tight!r}.")

    @property
    def space(self) -> RopeSpace:
        """The rotary space of the distances."""
        fields = dataclasses.asdict(self)
        return RopeSpace(space=fields.pop("embedding"), **fields)

    def weigh(self, scores: Scores) -> Floats:
        """Gaussian weights of the distances that the surrogate measured."""
        if self.space not in scores.distances:
            raise ModelError(
                "The surrogate gave no distances in rotary space. Use kernel='hamming', 'cosine' or "
                "'uniform' with it."
            )
        return _gaussian(scores.distances[self.space])


@dataclass(frozen=True)
class Hamming(Kernel):
    """Gaussian in the fraction of features removed, with the median fraction as its width."""

    name: ClassVar[str] = "hamming"

    def weigh(self, scores: Scores) -> Floats:
        """Weights from the masks alone."""
        return _gaussian(1.0 - scores.masks.mean(1))


@dataclass(frozen=True)
class Cosine(Kernel):
    """LIME's text kernel: ``exp(-d^2 / width^2)``, d the cosine distance to the full mask."""

    width: float = 0.25
    name: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        if not is_number(self.width) or self.width <= 0:
            raise InputError(f"width of cosine must be above 0, not {self.width!r}.")

    def weigh(self, scores: Scores) -> Floats:
        """Weights from the masks alone; the empty mask is at distance 1."""
        distance = 1.0 - np.sqrt(scores.masks.mean(1))
        return _bell(distance, self.width)


@dataclass(frozen=True)
class Uniform(Kernel):
    """Every mask weighs the same."""

    name: ClassVar[str] = "uniform"

    def weigh(self, scores: Scores) -> Floats:
        """Ones."""
        return np.ones(len(scores.masks))


KERNELS: dict[str, type[Kernel]] = {cls.name: cls for cls in (RopeRWMD, Hamming, Cosine, Uniform)}
resolve_kernel = partial(resolve, "kernel", registry=KERNELS, base=Kernel)


def _gaussian(distance: Floats) -> Floats:
    """``exp(-d^2 / median^2)``; an undefined distance counts as the largest defined one.

    The full prompt comes first, at distance zero, and is left out of the median. Where the median is
    zero the mean takes its place, and where all distances are zero all weights are one.
    """
    known = np.isfinite(distance)
    distance = np.where(known, distance, distance[known].max(initial=0.0))
    others = distance[1:]
    if not others.any():
        return np.ones(len(distance))
    sigma = np.median(others) or others.mean()
    return _bell(distance, float(sigma))


def _bell(distance: Floats, width: float) -> Floats:
    """``exp(-d^2 / width^2)``; a distance that is too large to be squared weighs nothing."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-((distance / width) ** 2)))
