"""A binary heap that orders equal items like java.util.PriorityQueue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

E = TypeVar("E")


class JavaPriorityQueue(Generic[E]):
    """A binary heap whose order among equals is that of java.util.PriorityQueue."""

    def __init__(self, items: Iterable[E], load: Callable[[E], float]) -> None:
        self._items: list[E] = []
        self._load = load
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: E) -> None:
        items, load, at = self._items, self._load(item), len(self._items)
        items.append(item)
        while at and load < self._load(items[parent := (at - 1) >> 1]):
            items[at] = items[parent]
            at = parent
        items[at] = item

    def pop(self) -> E:
        items, last = self._items, self._items.pop()
        if not items:
            return last
        first, load, at = items[0], self._load(last), 0
        while (child := 2 * at + 1) < len(items):
            if child + 1 < len(items) and self._load(items[child + 1]) < self._load(items[child]):
                child += 1
            if load <= self._load(items[child]):
                break
            items[at] = items[child]
            at = child
        items[at] = last
        return first
