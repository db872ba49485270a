"""Members by the number of their partitions, from both ends (UniformHeterogeneousAssignmentBuilder's balancer)."""

from __future__ import annotations

from collections.abc import Sequence


class Balancer:
    """Hands out the members that have least, and takes from those that have most, of one topic's subscribers.

    sizes: partitions of each member, shared with who moves them. Two ranges of `members`, sorted by size: [0, low_end)
    is filled level by level, [high_start, high_end) is lowered level by level.
    """

    def __init__(self, members: Sequence[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._members = sorted(members, key=lambda member: (sizes[member], member))
        self._low_end = 0
        self._low_level = sizes[self._members[0]] - 1
        self._next_low = 0
        self._high_start = self._high_end = len(self._members)
        self._high_level = sizes[self._members[-1]] + 1
        self._next_high = len(self._members) - 1
        self.imbalance = sizes[self._members[-1]] - sizes[self._members[0]]
        """What the fullest had more than the emptiest at the beginning."""

    def least_loaded(self) -> int:
        """Who gets the next partition."""
        if self._next_low >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._size_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._members[self._next_low - 1]

    def most_loaded(self) -> int | None:
        """Who gives the next partition; None when nobody is left who could."""
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All of the range were excluded: go on with who comes next.
                self._high_level = self._size_at(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._size_at(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        self._next_high -= 1
        return self._members[self._next_high + 1]

    def exclude_most_loaded(self) -> None:
        """Who `most_loaded` gave last has nothing of this topic."""
        self._high_end -= 1
        at, last = self._next_high + 1, self._high_end
        self._members[at], self._members[last] = self._members[last], self._members[at]

    @property
    def is_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def _size_at(self, place: int) -> int:
        return self._sizes[self._members[place]]
