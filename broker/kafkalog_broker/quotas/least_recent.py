"""What is remembered of many, a bounded number: those that were used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecent(Generic[K, V]):
    """A table that makes what is not in it, and then forgets the one of `bound` that was not used for longest."""

    def __init__(self, bound: int, make: Callable[[], V]) -> None:
        self._bound, self._make = bound, make
        self._kept: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, key: K) -> V:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        if len(self._kept) >= self._bound:
            self._kept.popitem(last=False)
        made = self._kept[key] = self._make()
        return made
