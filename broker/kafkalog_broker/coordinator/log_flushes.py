"""Flushes that responses wait for: of logs with flush.messages=1, whose records are on disk when they are acknowledged.

Kafka flushes such a log within the append, so no code of a coordinator can forget it. Here an append does not block.
Instead `CoordinatorLog.append` registers the log, and the dispatcher waits for `flush_registered` before it encodes any
response that may depend on a coordinator's records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.log import EVERY_APPEND, Log

BeginBlocking = Callable[[Callable[[], None]], asyncio.Future[None]]  # starts a call in a thread


class LogFlushes:
    """Not thread-safe; call from the event loop.

    `registered` holds the logs that may have a record which is not on disk; callers only test whether it is empty.
    `failures` counts registered logs that went offline before their records were on disk. A request that sees it change
    cannot know whether the lost records were its own, and must fail.
    """

    def __init__(self, begin_blocking: BeginBlocking) -> None:
        self._begin_blocking = begin_blocking
        self.registered: dict[Log, None] = {}
        self._running: dict[Log, asyncio.Future[None]] = {}
        self.failures = 0

    def register(self, log: Log) -> None:
        """Let responses wait until all present records of `log` are on disk, if its flush.messages is 1."""
        if log.config.flush_messages == EVERY_APPEND:
            self.registered[log] = None

    async def flush_registered(self) -> None:
        """Return when all records that are in registered logs now are on disk.

        Raises:
            BrokerError: kafka_storage_error, if a log cannot be flushed.
        """
        ends = [(log, log.log_end_offset) for log in self.registered]
        for log, _ in ends[1:]:
            self._begin(log)  # start all flushes before waiting for the first
        error: BrokerError | None = None
        for log, end in ends:
            try:
                await self.flush(log, end)
            except BrokerError as failure:
                if not log.is_closed:  # a deleted topic has nothing left to flush
                    error = failure
            self._forget_if_done(log)
        if error is not None:
            raise error

    async def flush(self, log: Log, up_to: int) -> None:
        """Return when all records below `up_to` are on disk and, as flush.messages is 1, below the high watermark.

        A flush that was running may have begun before the last append, so another one can follow. All callers that wait
        meanwhile share it.

        Raises:
            BrokerError: As `Log.flush`.
        """
        while log.recovery_point < up_to or (
            log.high_watermark < up_to and log.config.flush_messages == EVERY_APPEND and not log.is_follower
        ):
            await asyncio.shield(self._begin(log))
            if log.is_closed:
                log.check()

    def _begin(self, log: Log) -> asyncio.Future[None]:
        """Return the flush of `log` that is running, or start one."""
        running = self._running.get(log)
        if running is None or running.done():  # a flush that has ended stays here until its callback runs
            running = self._running[log] = self._begin_blocking(partial(log.flush, log.log_end_offset))
            running.add_done_callback(partial(self._ended, log))
        return running

    def _ended(self, log: Log, flush: asyncio.Future[None]) -> None:
        if self._running.get(log) is flush:
            del self._running[log]
        if not flush.cancelled():
            flush.exception()  # marks the exception as retrieved, since no caller may be waiting
        self._forget_if_done(log)

    def _forget_if_done(self, log: Log) -> None:
        if log not in self.registered:
            return
        if log.failure is not None and not log.is_closed:
            self.failures += 1
        elif log.recovery_point < log.log_end_offset and not log.is_closed:
            return
        del self.registered[log]
