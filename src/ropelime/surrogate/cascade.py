"""Neighbouring rows that look back at nearly the same tokens: groups that gather those only once.

Each row of leave-one-out looks back at the whole prompt less one feature. What all rows of a group see
is gathered and attended to for the group, what is left to a row for the row: with groups of √N out of N
rows that is about as much for the groups as for the rows, and 2√N prompts instead of N in all. Pure
arithmetic on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropelime.method.scores import Masks

_LEAST = 1_000  # keys in common, below which a call of its own does not pay


@dataclass(frozen=True)
class Group:
    """Segments of a chunk that look back at the same path.

    Attributes:
        first: The number of the first of them; the others follow it.
        count: How many there are.
        common: (p,) which tokens of the path all of them look back at.
        shared: How many those are.
        keys: The tokens that each of them looks at, its own as well, of all together,
        longest: and of the one that looks at most.
    """

    first: int
    count: int
    common: Masks
    shared: int
    keys: int
    longest: int

    @classmethod
    def of(cls, number: int, sees: Masks, own: int) -> Group:
        """One segment by itself, with its own tokens."""
        seen = int(np.count_nonzero(sees))
        return cls(number, 1, sees, seen, seen + own, seen + own)

    @property
    def gathered(self) -> int:
        """How many keys are gathered: those in common once, the others for each."""
        return self.keys - (self.count - 1) * self.shared

    def joined(self, other: Group) -> Group | None:
        """With one more segment; None where that does not pay.

        It has to lower what is gathered for a segment on average, and to leave most of what each of
        them sees in common.
        """
        if len(other.common) != len(self.common):
            return None
        common = self.common & other.common
        shared = int(np.count_nonzero(common))
        keys, longest = self.keys + other.keys, max(self.longest, other.longest)
        both = Group(self.first, self.count + 1, common, shared, keys, longest)
        pays = both.gathered * self.count < self.gathered * both.count
        return both if pays and shared >= _LEAST and 2 * shared > longest else None


class Groups:
    """The groups of a chunk that is being packed, found one segment after the other."""

    def __init__(self) -> None:
        """Begin with none."""
        self._made: list[Group] = []
        self._open = False

    def offer(self, number: int, sees: Masks, own: int) -> tuple[Group, int]:
        """The group that a segment would belong to, and how many keys more that would gather."""
        alone = Group.of(number, sees, own)
        last = self._made[-1] if self._open else None
        both = last.joined(alone) if last else None
        if last is None or both is None:
            return alone, alone.gathered
        return both, both.gathered - last.gathered

    def take(self, group: Group) -> None:
        """Go on with a group that was offered."""
        if self._open and group.first == self._made[-1].first:
            self._made.pop()
        self._made.append(group)
        self._open = True

    def close(self) -> None:
        """Nothing more can join: the path is another one from here on."""
        self._open = False

    def found(self) -> tuple[Group, ...]:
        """The groups of more than one segment."""
        return tuple(group for group in self._made if group.count > 1)
