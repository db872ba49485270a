"""LRU cache with a limit on the total weight of its values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class WeightedCache(Generic[V]):
    """LRU cache of values with a limited total weight. A single value may be heavier than the limit.

    Thread-safe. Two threads that request the same missing value at once may both compute it.

    Args:
        max_weight: Largest total weight.
        weight: Returns the weight of a value, at least 1, in the unit of `max_weight`.
    """

    def __init__(self, max_weight: int, weight: Callable[[V], int]) -> None:
        self._max_weight, self._weight = max_weight, weight
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()  # in order of the last use
        self._total = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, compute: Callable[[], V]) -> V:
        """Return the value of `key`, calling `compute` if it is not cached. Raises the errors of `compute`."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = compute()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._total += self._weight(value)
            while self._total > self._max_weight and len(self._values) > 1:
                _, oldest = self._values.popitem(last=False)
                self._total -= self._weight(oldest)
        return value
