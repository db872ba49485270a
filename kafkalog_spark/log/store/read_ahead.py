"""Threads that fetch ahead, and how much they may hold: shared by all files of a process.

A process that was forked begins with threads and a budget of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

WORKER_BYTES = 256 << 20
"""Bytes fetched ahead, or being fetched, of all files of a process: a worker may take 300 MB, and decodes too."""
FILE_BYTES = 32 << 20
"""The same, of one file: the block that is read, the one before it, and two ahead."""
THREADS = 16
"""Four files of a task with four requests each: a request waits for the network, not for a core."""


class Budget:
    """Bytes that may be held; thread safe."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._left = size

    def take(self, size: int, *, must: bool = False) -> bool:
        """Take `size` bytes; False when there are not as many. must: what somebody waits for is taken in any case."""
        with self._lock:
            if self._left < size and not must:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size

    @property
    def left(self) -> int:
        with self._lock:
            return self._left


class ReadAhead:
    """The threads and the budget of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.budget = Budget(WORKER_BYTES)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kafkalog-fetch")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._threads.submit(work)


_lock = threading.Lock()
_made: ReadAhead | None = None


def read_ahead() -> ReadAhead:
    """The one of this process."""
    global _made
    with _lock:
        if _made is None or _made.pid != os.getpid():
            _made = ReadAhead()
        return _made


def _forget() -> None:
    """In a fork: threads are not inherited, and a lock may have been held by one of them."""
    global _lock, _made
    _lock, _made = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
