"""A binary heap that returns items in the order of java.util.PriorityQueue, also those with equal priority."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

E = TypeVar("E")


class JavaPriorityQueue(Generic[E]):
    """A min-heap by load. Items with equal load have the same order as in Java, because assignments depend on it."""

    def __init__(self, items: Iterable[E], load_of: Callable[[E], float]) -> None:
        self._items: list[E] = []
        self._load_of = load_of
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: E) -> None:
        items = self._items
        load = self._load_of(item)
        index = len(self._items)
        items.append(item)
        while index and load < self._load_of(items[parent := (index - 1) >> 1]):
            items[index] = items[parent]
            index = parent
        items[index] = item

    def pop(self) -> E:
        items = self._items
        last = self._items.pop()
        if not items:
            return last
        first = items[0]
        load = self._load_of(last)
        index = 0
        while (child := 2 * index + 1) < len(items):
            if child + 1 < len(items) and self._load_of(items[child + 1]) < self._load_of(items[child]):
                child += 1
            if load <= self._load_of(items[child]):
                break
            items[index] = items[child]
            index = child
        items[index] = last
        return first
