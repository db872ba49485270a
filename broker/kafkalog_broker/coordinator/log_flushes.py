"""Flushes of coordinator logs with flush.messages=1, whose records are on disk before a response acknowledges them.

Kafka flushes such a log within the append. Here an append must not block the event loop. Instead
`CoordinatorLog.append` registers the log, and the dispatcher waits for `flush_registered` before it encodes a response
that may depend on a coordinator's records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.log import EVERY_APPEND, Log

BeginBlocking = Callable[[Callable[[], None]], asyncio.Future[None]]  # starts a call in a thread


class LogFlushes:
    """The registered logs and their running flushes. Not thread-safe; call from the event loop.

    Attributes:
        registered: Logs that may have records which are not on disk. Callers only test whether it is empty.
        failures: Number of registered logs that went offline before their records were on disk. If it changes during
            a request, the request must fail, because the lost records may be those that it appended.
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
        """Return when all present records of the registered logs are on disk.

        Raises:
            BrokerError: kafka_storage_error, if a log cannot be flushed.
        """
        ends = [(log, log.log_end_offset) for log in self.registered]
        for log, _ in ends[1:]:
            self._begin_flush(log)  # start the other flushes; `flush` starts the first
        error: BrokerError | None = None
        for log, end in ends:
            try:
                await self.flush(log, end)
            except BrokerError as failure:
                if not log.is_closed:  # a deleted topic has nothing left to flush
                    error = failure
            self._unregister_if_flushed(log)
        if error is not None:
            raise error

    async def flush(self, log: Log, up_to: int) -> None:
        """Wait until all records below `up_to` are on disk.

        With flush.messages=1, also wait for the high watermark to reach `up_to`.

        A flush that is already running may have begun before the last append. Then another one follows it, which all
        waiting callers share.

        Raises:
            BrokerError: As `Log.flush`.
        """
        while log.recovery_point < up_to or (
            log.high_watermark < up_to and log.config.flush_messages == EVERY_APPEND and not log.is_follower
        ):
            await asyncio.shield(self._begin_flush(log))
            if log.is_closed:
                log.check_online()  # raises, because the log is closed

    def _begin_flush(self, log: Log) -> asyncio.Future[None]:
        """Return the running flush of `log`, or start one."""
        running = self._running.get(log)
        if running is None or running.done():  # a flush that has ended stays here until its callback runs
            running = self._running[log] = self._begin_blocking(partial(log.flush, log.log_end_offset))
            running.add_done_callback(partial(self._flush_ended, log))
        return running

    def _flush_ended(self, log: Log, flush: asyncio.Future[None]) -> None:
        if self._running.get(log) is flush:
            del self._running[log]
        if not flush.cancelled():
            flush.exception()  # marks the exception as retrieved, since no caller may be waiting
        self._unregister_if_flushed(log)

    def _unregister_if_flushed(self, log: Log) -> None:
        if log not in self.registered:
            return
        if log.failure is not None and not log.is_closed:
            self.failures += 1
        elif log.recovery_point < log.log_end_offset and not log.is_closed:
            return
        del self.registered[log]
