"""Threads of a broker: one pool for blocking I/O, another for computation that releases the interpreter lock."""

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

_BLOCKING_THREADS = 8
T = TypeVar("T")


class Workers:
    """Thread pools of a broker. Call the methods from the event loop. Threads are started on demand."""

    def __init__(self) -> None:
        self._blocking = ThreadPoolExecutor(_BLOCKING_THREADS, thread_name_prefix="kafkalog-broker")
        self._computing = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="kafkalog-computing")
        self._tasks: set[asyncio.Task[None]] = set()
        self._trim = IdleTrim(self._blocking.submit)

    async def run_blocking(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a function that blocks on I/O in a thread, and return its result."""
        return await self.begin_blocking(partial(function, *arguments, **named))

    def begin_blocking(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Start a function that blocks on I/O. It runs to its end even if the future is abandoned."""
        return asyncio.get_running_loop().run_in_executor(self._blocking, function)

    async def run_computing(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a long computation that releases the interpreter lock, such as decompression, in a thread.

        The pool is separate, so that flushes never wait for computation. Free memory is returned to the system once no
        computation has run for TRIM_AFTER_S.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._computing, partial(function, *arguments, **named))
        finally:
            self._trim.soon()

    def compute_then(self, compute: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `compute` in a thread, and call `done` in the event loop with its result or its exception."""

        async def run() -> None:
            outcome: T | Exception
            try:
                outcome = await self.run_computing(compute)
            except Exception as error:  # noqa: BLE001 - passed to `done`
                _log.exception("work in the background failed")
                outcome = error
            done(outcome)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._tasks.discard)

    def run_in_background(self, function: Callable[[], object]) -> None:
        """Run a function in a thread without waiting for it. An exception is logged."""
        self._blocking.submit(function).add_done_callback(_report_failure)

    def shutdown(self) -> None:
        """Stop the threads and wait until they have ended."""
        self._trim.cancel()
        self._computing.shutdown()
        self._blocking.shutdown()


def _report_failure(done: Future[object]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _log.error("work in the background failed: %s: %s", type(error).__name__, error, exc_info=error)
