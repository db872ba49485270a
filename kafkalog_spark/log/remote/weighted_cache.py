"""LRU cache with a limit on the total weight of its values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class WeightedCache(Generic[V]):
    """LRU cache of values with a total weight of at most `most`, or of one heavier value. Thread-safe; two threads that
    need the same value at once may both make it.

    Args:
        weight: Returns the weight of a value, at least 1, in the unit of `most`.
    """

    def __init__(self, most: int, weight: Callable[[V], int]) -> None:
        self._most, self._weight = most, weight
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()  # the one used last comes last
        self._total = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, by `make` if it is not held. Raises what `make` raises."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._total += self._weight(value)
            while self._total > self._most and len(self._values) > 1:
                _, oldest = self._values.popitem(last=False)
                self._total -= self._weight(oldest)
        return value
