"""Checks delivery counts against the deliveries that members saw and the responses that may have been lost."""

from __future__ import annotations

import numpy as np

_NO_LIFE = -1


class DeliveryCounts:
    """Deliveries of the records in `partitions` partitions with `size` records each.

    The broker counts deliveries in memory, and persists the count with an acknowledgement or release. After a crash a
    delivery without either has not happened. So a count may be repeated only after a crash, and it exceeds the number
    of deliveries that members saw by at most the number of lost responses.
    """

    def __init__(self, partitions: int, size: int) -> None:
        self.seen = np.zeros((partitions, size), np.int16)
        self.again = 0
        """Number of repeated deliveries."""
        self._last = np.zeros((partitions, size), np.int16)
        self._life = np.full((partitions, size), _NO_LIFE, np.int64)

    def give(self, partition: int, first: int, last: int, count: int, *, lost: int, life: int | None) -> str | None:
        """Record a delivery, and return what is wrong with its count; None if it is correct.

        Args:
            lost: Responses that may have been lost so far.
            life: Number of the broker process that counted; None if it is not known.
        """
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
            index = int(found[0])
            text = (
                f"{partition}: {first + index} has the delivery count {count} after {before[index]}; it was delivered "
                f"{seen[index]} times, and {lost} responses may have been lost"
            )
        before[:] = count
        return text
