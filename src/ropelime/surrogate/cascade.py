"""Cascade attention: sequences that attend to nearly the same cached tokens gather those only once.

Each sequence of leave-one-out attends to the whole prompt less one feature. The keys that a group of
sequences has in common are gathered and attended to once for the group, the others for each sequence,
and the two results are merged. With groups of √N out of N sequences about as many keys are gathered
for the groups as for the sequences: 2√N prompts instead of N in all. Pure arithmetic on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropelime.typing import Masks

_LEAST = 1_000  # keys in common, below which a call of its own does not pay


@dataclass(frozen=True)
class CascadeGroup:
    """Segments of a chunk that attend to the same prefix.

    Attributes:
        first: The number of the first of them; the others follow it.
        count: How many there are.
        common: (p,) which tokens of the prefix all of them attend to.
        shared: How many those are.
        keys: The tokens that each of them attends to, its own as well, of all together,
        longest: and of the one that attends to most.
    """

    first: int
    count: int
    common: Masks
    shared: int
    keys: int
    longest: int

    @classmethod
    def of(cls, number: int, prefix_mask: Masks, own: int) -> CascadeGroup:
        """One segment by itself, with its own tokens."""
        shared = int(np.count_nonzero(prefix_mask))
        return cls(number, 1, prefix_mask, shared, shared + own, shared + own)

    @property
    def gathered(self) -> int:
        """How many keys are gathered: those in common once, the others for each."""
        return self.keys - (self.count - 1) * self.shared

    def joined(self, other: CascadeGroup) -> CascadeGroup | None:
        """With one more segment; None where that does not pay.

        It has to lower the keys that are gathered for a segment on average, and to leave most keys of
        each segment in common.
        """
        if len(other.common) != len(self.common):
            return None
        common = self.common & other.common
        shared = int(np.count_nonzero(common))
        keys, longest = self.keys + other.keys, max(self.longest, other.longest)
        both = CascadeGroup(self.first, self.count + 1, common, shared, keys, longest)
        pays = both.gathered * self.count < self.gathered * both.count
        return both if pays and shared >= _LEAST and 2 * shared > longest else None


class Cascade:
    """The groups of a chunk that is being packed, found one segment after the other."""

    def __init__(self) -> None:
        """Begin with none."""
        self._groups: list[CascadeGroup] = []
        self._open = False

    def offer(self, number: int, prefix_mask: Masks, own: int) -> tuple[CascadeGroup, int]:
        """The group that a segment would belong to, and how many more keys that would gather."""
        alone = CascadeGroup.of(number, prefix_mask, own)
        last = self._groups[-1] if self._open else None
        both = last.joined(alone) if last else None
        if last is None or both is None:
            return alone, alone.gathered
        return both, both.gathered - last.gathered

    def take(self, group: CascadeGroup) -> None:
        """Add a group that was offered, in place of the one that it extends."""
        if self._open and group.first == self._groups[-1].first:
            self._groups.pop()
        self._groups.append(group)
        self._open = True

    def close(self) -> None:
        """Let no further segment join the last group, because the prefix changes."""
        self._open = False

    def found(self) -> tuple[CascadeGroup, ...]:
        """The groups of more than one segment."""
        return tuple(group for group in self._groups if group.count > 1)
