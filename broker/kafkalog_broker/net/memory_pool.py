"""Limit on the memory of requests that are being read or wait to be handled (Kafka: SimpleMemoryPool, KIP-72)."""

from __future__ import annotations

from collections.abc import Callable


class MemoryPool:
    """Bytes of requests in memory, limited by queued.max.request.bytes. Not thread-safe.

    As in Kafka, a frame reserves its announced size when it begins. The frame that uses the pool up may exceed the
    limit, so that a limit below the size of a request blocks no client. Once the pool is used up, no connection begins
    another frame; frames that have begun are read completely.
    """

    def __init__(self, limit: int = -1) -> None:
        """`limit` is at least 1, or -1 for no limit. Callers do not use a pool without a limit."""
        self.limit = limit
        self.is_limited = limit > 0
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}  # an ordered set

    @property
    def is_used_up(self) -> bool:
        return self.is_limited and self.used >= self.limit

    def try_allocate(self, size: int) -> bool:
        """Reserve `size` bytes, or return False if the pool is used up."""
        if self.is_used_up:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Release bytes. If the pool is no longer used up, callbacks run in the order of `call_when_free`."""
        self.used -= size
        while self._waiting and not self.is_used_up:
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    def call_when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when there is memory again."""
        self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Cancel `call_when_free`. A no-op if it was not called."""
        self._waiting.pop(callback, None)
