"""Asyncio tasks that work on partitions, in bounded number, with worker threads for their blocking calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from kafkalog_broker.remote.remote_partition import RemotePartition

_log = logging.getLogger(__name__)

MAX_THREADS = 64
"""Largest number of threads of one kind. Kafka's properties, which may change at run time, limit the number in use."""


class PartitionTasks:
    """Runs `work` on partitions, on at most `current_limit()` partitions at a time. Used from the event loop.

    Attributes:
        threads: Executor for the blocking calls of the work.
    """

    def __init__(
        self, work: Callable[[RemotePartition], Awaitable[None]], current_limit: Callable[[], int], thread_names: str
    ) -> None:
        self._work = work
        self._current_limit = current_limit
        self._waiting: dict[RemotePartition, None] = {}
        self._running: dict[RemotePartition, asyncio.Task[None]] = {}
        self.threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=thread_names)
        self._is_stopped = False

    def add(self, partition: RemotePartition) -> None:
        """Queue a partition; no-op if it is queued already or its task is running."""
        if partition not in self._running:
            self._waiting[partition] = None
        self._begin()

    async def wait_until_idle(self) -> None:
        """Return when no work is running."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    async def stop(self, until: float) -> None:
        """Wait until no task runs. Tasks that do not end by `until`, in the loop's time, are cancelled.

        A thread that waits for a store then continues alone. Its result is not recorded, so the next start repeats the
        work.
        """
        self._is_stopped = True
        self._waiting.clear()
        running = list(self._running.values())
        if running:
            _, late = await asyncio.wait(running, timeout=max(until - asyncio.get_running_loop().time(), 0))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._waiting and not self._is_stopped and len(self._running) < self._current_limit():
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            self._running[partition] = asyncio.create_task(self._run(partition))

    async def _run(self, partition: RemotePartition) -> None:
        try:
            await self._work(partition)
        except Exception:  # noqa: BLE001 - no caller awaits the task, so the log is the only place to report it
            _log.exception("work on the remote segments of %s failed", partition.remote.partition)
        finally:
            del self._running[partition]
            self._begin()
