"""Samplers: which features each mask keeps.

Every sampler gives distinct masks and never the full prompt, which is always scored besides. With the
same seed, a smaller budget gives some of the masks of a larger one, so that a run can be extended.
"""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from ropelime.errors import InputError
from ropelime.registry import is_number, resolve, unknown
from ropelime.typing import Masks

MOST_EXHAUSTIVE = 16
MOST_MASKS = 1_000_000  # of one explanation: more would fill the memory before any is scored
_BLOCK = 1024  # masks that are drawn at a time; all masks of one size are listed up to so many


@dataclass(frozen=True)
class Sample:
    """The masks of one explanation."""

    masks: Masks  # (N, n) distinct, True = kept
    requested: int  # how many masks the sampler was to draw
    note: str = ""  # how the masks differ from the request, and why


class Sampler(ABC):
    """Draws masks over ``n`` features."""

    name: ClassVar[str]  # what it is called in options and explanations

    @abstractmethod
    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Draw at most ``budget`` masks, or the sampler's own number if None."""


@dataclass(frozen=True)
class NoMasks(Sampler):
    """No masks at all: the full prompt, and the prompt with no feature, are enough."""

    name: ClassVar[str] = "none"

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Nothing."""
        return Sample(np.zeros((0, n), dtype=bool), 0)


_KEEP = {"sqrt": 1.0, "2sqrt": 2.0, "4sqrt": 4.0}
_COUNT = ("M", "M/2", "M/4", "16k", "8k", "4k")


@dataclass(frozen=True)
class SparseK(Sampler):
    """Masks of one size ``k``, ``ceil(c ln k)`` of them: the paper's sampling.

    The logarithm is of ``k`` as the formula gives it; only the size of the masks is rounded and clipped
    to 1..M-1, because the clipped ``k`` of two features would allow a single mask.

    Attributes:
        k: ``"sqrt"``, ``"2sqrt"`` or ``"4sqrt"`` (times the root of M), or a number.
        c: ``"M"``, ``"M/2"``, ``"M/4"``, or ``"16k"``, ``"8k"``, ``"4k"`` for min(M, that), or a
            number.
        active: Whether ``k`` features are ``"kept"`` (the paper) or ``"removed"``.
        masks: Draw so many masks instead of ``ceil(c ln k)``.
    """

    k: str | int = "2sqrt"
    c: str | float = "16k"
    active: Literal["kept", "removed"] = "kept"
    masks: int | None = None
    name: ClassVar[str] = "sparse-k"

    def __post_init__(self) -> None:
        for field, known in (("k", _KEEP), ("c", _COUNT), ("active", ("kept", "removed"))):
            given = getattr(self, field)
            if (isinstance(given, str) or field == "active") and given not in known:
                raise unknown(f"{field} of sparse-k", given, known)
        if not isinstance(self.k, str) and not (is_number(self.k) and self.k >= 1):
            raise InputError(f"k of sparse-k must be at least 1, not {self.k!r}.")
        if not isinstance(self.c, str) and not (is_number(self.c) and self.c > 0):
            raise InputError(f"c of sparse-k must be above 0, not {self.c!r}.")
        if self.masks is not None:
            _check_count(self.name, self.masks)

    def size(self, n: int) -> float:
        """``k`` for ``n`` features, before it is rounded and clipped to 1..n-1."""
        return _KEEP[self.k] * math.sqrt(n) if isinstance(self.k, str) else float(self.k)

    def count(self, n: int) -> int:
        """The number of masks ``N`` for ``n`` features."""
        if self.masks is not None:
            return self.masks
        k = self.size(n)
        if isinstance(self.c, str):
            c = {"M": n, "M/2": n / 2, "M/4": n / 4}.get(self.c) or min(n, int(self.c[:-1]) * k)
        else:
            c = self.c
        return max(1, math.ceil(c * math.log(k))) if k > 1 else 1

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Draw masks of size k; where too few distinct ones exist, of the neighbouring sizes."""
        requested = self.count(n) if budget is None else budget
        if requested > MOST_MASKS:
            raise InputError(
                f"sparse-k asks for {requested:,} masks of {n} features; at most {MOST_MASKS:,} can be "
                "drawn. Choose a smaller c, or a budget."
            )
        k = min(max(round(self.size(n)), 1), n - 1)
        kept = k if self.active == "kept" else n - k
        found: dict[int, Masks] = {}
        for size in sorted(range(1, n), key=lambda s: (abs(s - kept), -s)):
            missing = requested - sum(map(len, found.values()))
            if missing <= 0:
                break
            found[size] = _of_size(n, size, missing, rng)
        masks = np.concatenate(list(found.values()))
        note = ""
        if len(masks) < requested:
            note = (
                f"Sparse-K asked for {requested} masks; {n} features have only {len(masks)} that keep "
                "some and remove some, and all were taken."
            )
        elif len(found) > 1:
            added = ", ".join(map(str, [*found][1:]))
            note = (
                f"Sparse-K asked for {requested} masks that keep {kept} of {n} features; only "
                f"{len(found[kept])} exist, so masks that keep {added} were added."
            )
        return Sample(masks, requested, note)


SPARSE_K_SETTINGS = tuple(f"sparse-k:{k}:{c}" for k in _KEEP for c in _COUNT)


@dataclass(frozen=True)
class BestSparseK(Sampler):
    """Sparse-K at the setting that the paper's sweep ranks first for the number of features.

    For 9 to 11 features the paper names two: its sweep ranks (4√M, M) first, its summary shows
    (2√M, min(M, 16k)), which differs by 0.002 in IoU there. The first one is taken.
    """

    name: ClassVar[str] = "sparse-k-best"

    @staticmethod
    def setting(n: int) -> SparseK:
        """The paper's choice for ``n`` features."""
        best = ((3, "4sqrt", "M/2"), (5, "2sqrt", "M"), (8, "4sqrt", "8k"), (11, "4sqrt", "M"))
        return next((SparseK(k, c) for most, k, c in best if n <= most), SparseK("4sqrt", "4k"))

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Draw as that setting does."""
        return self.setting(n).sample(n, budget=budget, rng=rng)


@dataclass(frozen=True)
class LeaveOneOut(Sampler):
    """Every mask that removes exactly one feature."""

    name: ClassVar[str] = "leave-one-out"

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """All n of them; with a smaller budget, a random part."""
        return _part(~np.eye(n, dtype=bool), budget, rng, self.name)


@dataclass(frozen=True)
class LeaveOneOutFirst(Sampler):
    """Leave-one-out masks; with a larger budget, random-half masks after them."""

    name: ClassVar[str] = "leave-one-out-first"

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """All leave-one-out masks, a random part of them, or :class:`Hadamard` masks on top."""
        if budget is None or budget <= n:
            return LeaveOneOut().sample(n, budget=budget, rng=rng)
        draws = itertools.chain(~np.eye(n, dtype=bool), Hadamard()._draws(n, budget, rng))
        return _distinct(draws, n, budget, self.name)


@dataclass(frozen=True)
class OneAtATime(Sampler):
    """Every mask that keeps exactly one feature: about one prompt in tokens, all together."""

    name: ClassVar[str] = "one-at-a-time"

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """All n of them; with a smaller budget, a random part."""
        return _part(np.eye(n, dtype=bool), budget, rng, self.name)


@dataclass(frozen=True)
class _Random(Sampler):
    """Draws at random until there are enough distinct masks."""

    count: int = 64  # masks drawn where no budget is given
    _never: ClassVar[int] = 1  # how many masks are not drawn: the full prompt

    def __post_init__(self) -> None:
        _check_count(self.name, self.count)

    @abstractmethod
    def _draws(self, n: int, count: int, rng: np.random.Generator) -> Iterator[Masks]:
        """Masks without end, some of them twice; about ``count`` will be taken."""

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Draw distinct masks."""
        requested = self.count if budget is None else budget
        return _distinct(self._draws(n, requested, rng), n, requested, self.name, self._never)


@dataclass(frozen=True)
class Bernoulli(_Random):
    """Each feature kept with probability ``p``, independently: LIME and ContextCite."""

    p: float = 0.5
    name: ClassVar[str] = "bernoulli"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.p) or not 0 < self.p < 1:
            raise InputError(f"p of bernoulli must lie between 0 and 1, not {self.p!r}.")

    def _draws(self, n: int, count: int, rng: np.random.Generator) -> Iterator[Masks]:
        while True:
            yield from rng.random((min(count, _BLOCK), n)) < self.p


@dataclass(frozen=True)
class Hadamard(_Random):
    """Random-half masks with orthogonal columns.

    Features take random columns of a Hadamard matrix with random signs. Every mask is still a random
    half, but no two features are removed together more often than any others. Beyond the rows of one
    matrix another is begun.
    """

    name: ClassVar[str] = "hadamard"

    def _draws(self, n: int, count: int, rng: np.random.Generator) -> Iterator[Masks]:
        """Rows of Sylvester's matrix, one by one: whole, it would be larger than all masks together.

        Its entry in row i and column j is negative where i and j have an odd number of bits in common.
        """
        size = 2 ** n.bit_length()
        while True:
            columns = 1 + rng.permutation(size - 1)[:n]  # the first column is constant
            flipped = rng.random(n) < 0.5
            for row in rng.permutation(size):
                odd = np.bitwise_count(row & columns) & 1
                yield (odd == 0) ^ flipped


@dataclass(frozen=True)
class ShapleyKernel(_Random):
    """Sizes drawn in proportion to the Shapley kernel, each mask with its complement."""

    name: ClassVar[str] = "shapley"
    _never: ClassVar[int] = 2  # nor the prompt with no feature

    def _draws(self, n: int, count: int, rng: np.random.Generator) -> Iterator[Masks]:
        sizes = np.arange(1, n)
        weights = (n - 1) / (sizes * (n - sizes))  # the kernel summed over all masks of a size
        up_to = np.cumsum(weights) / weights.sum()
        while True:  # one after the other: drawn together, they would depend on how many are wanted
            mask = rng.permutation(n) < sizes[np.searchsorted(up_to[:-1], rng.random(), side="right")]
            yield mask
            yield ~mask


@dataclass(frozen=True)
class Exhaustive(Sampler):
    """Every mask but the full prompt: 2^n - 1 of them."""

    name: ClassVar[str] = "exhaustive"

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """All masks; with a smaller budget, a random part."""
        if n > MOST_EXHAUSTIVE:
            raise InputError(
                f"Exhaustive sampling of {n} features would need {2**n - 1:,} passes; it is offered "
                f"up to {MOST_EXHAUSTIVE}. Use 'shapley' or 'bernoulli', or coarser features."
            )
        masks = (np.arange(2**n - 1)[:, None] >> np.arange(n)[::-1]) & 1 > 0
        return _part(masks, budget, rng, self.name)


@dataclass(frozen=True)
class Mixed(Sampler):
    """Several samplers one after the other; masks that occur twice are taken once.

    Attributes:
        parts: Names of the samplers, joined by ``+``, with ``/`` before each of their parameters:
            ``"leave-one-out+sparse-k/sqrt/M/2"``.
    """

    parts: str = "one-at-a-time+leave-one-out"
    name: ClassVar[str] = "mixed"

    def __post_init__(self) -> None:
        self._samplers()  # a wrong name is an error now and not after the model was loaded

    def _samplers(self) -> list[Sampler]:
        # The slash of M/2 and M/4 is part of the parameter.
        specs = [re.sub(r"(?<!/M)/|/(?![24])", ":", part) for part in str(self.parts).split("+")]
        return [resolve_sampler(spec) for spec in specs]

    def sample(self, n: int, *, budget: int | None, rng: np.random.Generator) -> Sample:
        """Draw from every part; with a smaller budget, a random part of it all."""
        drawn = [sampler.sample(n, budget=None, rng=rng) for sampler in self._samplers()]
        masks = np.concatenate([part.masks for part in drawn])
        _, first = np.unique(masks, axis=0, return_index=True)
        requested = sum(part.requested for part in drawn) if budget is None else budget
        whole = _part(masks[np.sort(first)], requested, rng, self.name)
        notes = [*(part.note for part in drawn), whole.note]
        return replace(whole, note=" ".join(filter(None, notes)))


SAMPLERS: dict[str, type[Sampler]] = {cls.name: cls for cls in (
    SparseK, BestSparseK, LeaveOneOut, LeaveOneOutFirst, OneAtATime,
    Bernoulli, Hadamard, Exhaustive, ShapleyKernel, Mixed, NoMasks,
)}  # fmt: skip
resolve_sampler = partial(resolve, "sampler", registry=SAMPLERS, base=Sampler)


def _check_count(name: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_MASKS:
        raise InputError(
            f"count of {name} must be a whole number of at least 1 and at most {MOST_MASKS:,}, not "
            f"{count!r}."
        )


def _of_size(n: int, size: int, count: int, rng: np.random.Generator) -> Masks:
    """At most ``count`` distinct masks that keep exactly ``size`` of ``n`` features."""
    total = math.comb(n, size)
    if total <= max(count, _BLOCK):
        chosen = np.zeros((total, n), dtype=bool)
        for row, kept in enumerate(itertools.combinations(range(n), size)):
            chosen[row, list(kept)] = True
        return chosen if total <= count else chosen[rng.permutation(total)[:count]]
    draws = (rng.permutation(n) < size for _ in itertools.count())
    return _new(draws, n, count)


def _new(draws: Iterable[Masks], n: int, count: int) -> Masks:
    """The first ``count`` draws that are new and not full; gives up when such get rare."""
    found: dict[bytes, Masks] = {}
    misses = 0
    for draw in draws:
        if draw.all() or draw.tobytes() in found:
            misses += 1
        else:
            found[draw.tobytes()] = draw
        if len(found) == count or misses > 100 + 20 * count:
            break
    return np.array(list(found.values()), dtype=bool).reshape(-1, n)


def _distinct(draws: Iterable[Masks], n: int, requested: int, name: str, never: int = 1) -> Sample:
    """As many of the 2^n masks as requested, where ``never`` of them are not drawn."""
    masks = _new(draws, n, min(requested, 2**n - never))
    note = f"{name} asked for {requested} masks and found {len(masks)} distinct ones of {n} features."
    return Sample(masks, requested, note if len(masks) < requested else "")


def _part(masks: Masks, budget: int | None, rng: np.random.Generator, name: str) -> Sample:
    """All masks; with a smaller budget, a random part of them in their order."""
    total = len(masks)
    if budget is None or budget == total:
        return Sample(masks, total)
    if budget > total:
        note = f"{name} has only {total} distinct masks; {budget} were requested."
        return Sample(masks, budget, note)
    some = np.sort(rng.permutation(total)[:budget])
    return Sample(masks[some], budget, f"{name} has {total} masks; the budget allowed {budget}.")
