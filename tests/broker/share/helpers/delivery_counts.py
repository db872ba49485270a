"""Which delivery counts records may have, given what members were given and how often an answer may have been lost."""

from __future__ import annotations

import numpy as np

_NO_LIFE = -1


class DeliveryCounts:
    """Of `partitions` partitions with `size` records each. Each delivery is one more, also where nobody saw it.

    A broker counts in memory, and writes the count with what becomes of the delivery: after a crash a delivery that was
    neither acknowledged nor released has not been (SharePartition). So a count may come again after a crash, and
    only then; and it is above the number of deliveries that were seen by no more than answers may have been lost.
    """

    def __init__(self, partitions: int, size: int) -> None:
        self.seen = np.zeros((partitions, size), np.int16)
        self.again = 0
        """Deliveries that were not the first."""
        self._last = np.zeros((partitions, size), np.int16)
        self._life = np.full((partitions, size), _NO_LIFE, np.int64)

    def give(self, partition: int, first: int, last: int, count: int, *, lost: int, life: int | None) -> str | None:
        """What is wrong with a count, None for nothing. lost: answers that may have been lost so far. life: which
        process of the broker counted; None where that is not known."""
        run = slice(first, last + 1)
        seen, before = self.seen[partition, run], self._last[partition, run]
        seen += 1
        self.again += int((seen > 1).sum())
        wrong = (count < 1) | (count > seen + lost)
        if life is not None:
            wrong |= (self._life[partition, run] == life) & (count <= before)
            self._life[partition, run] = life
        found = np.flatnonzero(wrong)
        text = None
        if len(found):
            place = int(found[0])
            text = (
                f"{partition}: {first + place} has the delivery count {count} after {before[place]}; it was given "
                f"{seen[place]} times, and {lost} answers may have been lost"
            )
        before[:] = count
        return text
