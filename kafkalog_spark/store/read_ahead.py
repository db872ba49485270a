"""Read-ahead of object stores: threads and a memory budget that all files of a process share.

A forked process gets its own threads and budget.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

WORKER_BYTES = 256 << 20
"""Bytes that all files of a process may have fetched ahead, so that a Spark worker stays within about 300 MB."""
MAX_THREADS = 16  # four files of a task with four requests each; a request waits for the network, not for a core


class ReadAhead:
    """Threads that fetch ahead, and a budget of bytes. Thread-safe.

    Attributes:
        available: Remaining bytes; negative while readers wait for more than the budget.
    """

    def __init__(self, size: int = WORKER_BYTES) -> None:
        self.available = size
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="kafkalog-fetch")

    def reserve(self, size: int, *, force: bool = False) -> bool:
        """Reserve `size` bytes of the budget.

        Args:
            size: Bytes.
            force: True to reserve them even if the budget is exhausted.

        Returns:
            False if the budget has fewer bytes left.
        """
        with self._lock:
            if self.available < size and not force:
                return False
            self.available -= size
            return True

    def release(self, size: int) -> None:
        """Give `size` bytes back to the budget."""
        with self._lock:
            self.available += size

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._threads.submit(work)


_of_process = ReadAhead()  # starts its threads with the first block


def read_ahead() -> ReadAhead:
    """Return the read-ahead of this process."""
    return _of_process


def _reset_after_fork() -> None:
    """Replace the read-ahead in a fork: threads are not inherited, and one of them may have held the lock."""
    global _of_process
    _of_process = ReadAhead()


os.register_at_fork(after_in_child=_reset_after_fork)
