"""The threads of a broker: for what waits for a disk, and for what computes without the interpreter."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kafkalog_broker.runtime.memory_trim import IdleTrim

_log = logging.getLogger(__name__)

_THREADS = 8  # for what waits for a disk
T = TypeVar("T")


class Workers:
    """Used from the event loop. Threads are started when they are first needed."""

    def __init__(self) -> None:
        self._blocking = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-broker")
        self._computing = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="kafkalog-computing")
        self._tasks: set[asyncio.Task[None]] = set()
        self._trim = IdleTrim(self._blocking.submit)

    async def run_blocking(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run what waits for a disk in a thread."""
        return await self.begin_blocking(partial(function, *arguments, **named))

    def begin_blocking(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """As run_blocking; it goes on when nobody waits any more."""
        return asyncio.get_running_loop().run_in_executor(self._blocking, function)

    async def run_computing(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run what takes long without the interpreter, decompressing above all, in a thread of its own kind: what
        flushes never waits for it. What it used goes back to the system when nothing of the kind came for a second."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._computing, partial(function, *arguments, **named))
        finally:
            self._trim.soon()

    def compute_then(self, compute: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """`done` is called in the event loop with what `compute` returned in a thread, or with what it raised."""

        async def run() -> None:
            found: T | Exception
            try:
                found = await self.run_computing(compute)
            except Exception as error:  # noqa: BLE001 - handed on
                _log.exception("work in the background failed")
                found = error
            done(found)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._tasks.discard)

    def run_in_background(self, function: Callable[[], object]) -> None:
        """Run it in a thread; nobody waits, so what it raises is reported in the log."""
        self._blocking.submit(function).add_done_callback(_report_failure)

    def shutdown(self) -> None:
        """Return when all of them have ended."""
        self._trim.cancel()
        self._computing.shutdown()
        self._blocking.shutdown()


def _report_failure(done: Future[object]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _log.error("work in the background failed: %s: %s", type(error).__name__, error, exc_info=error)
