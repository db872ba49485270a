"""queued.max.request.bytes: how many bytes of requests may be in memory at once (Kafka's SimpleMemoryPool, KIP-72).

As in Kafka a frame takes what its size announces, as soon as it has begun, and may be the one that goes over the limit:
a limit that is smaller than a request stops nobody. When nothing is left, no connection begins another frame; those
that have begun one read it to its end.
"""

from __future__ import annotations

from collections.abc import Callable

UNLIMITED = -1
"""Kafka's default."""


class MemoryPool:
    """`limit` in bytes, UNLIMITED or at least 1. Without a limit nothing is taken or given back. For one thread."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.limited = limit > 0
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_used_up(self) -> bool:
        return self.limited and self.used >= self.limit

    def take(self, size: int) -> bool:
        """Take `size` bytes, unless the pool is used up."""
        if self.is_used_up:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Those that wait are called when there is memory again, in the order in which they came."""
        self.used -= size
        while self._waiting and not self.is_used_up:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            waiting()

    def call_when_free(self, waiting: Callable[[], None]) -> None:
        """Call `waiting` once when there is memory again."""
        self._waiting[waiting] = None

    def forget(self, waiting: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._waiting.pop(waiting, None)
