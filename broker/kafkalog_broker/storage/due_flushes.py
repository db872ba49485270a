"""Flushing a log right after an append, as flush.messages and flush.ms say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kafkalog_broker.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_flush import EVERY_APPEND

_log = logging.getLogger(__name__)


class DueFlushes:
    """run_blocking: where a flush, which waits for the disk, happens. Used in the event loop."""

    def __init__(self, clock: Clock, run_blocking: Callable[..., Awaitable[Any]]) -> None:
        self._clock = clock
        self._run_blocking = run_blocking
        self._flushing: dict[str, asyncio.Task[None]] = {}

    async def if_due(self, log: Log) -> None:
        """With flush.messages=1 the answer waits, otherwise nobody does. Raises BrokerError."""
        if not log.needs_flush(self._clock.now_ms()):
            return
        if log.config.flush_messages == EVERY_APPEND:
            await self._run_blocking(log.flush, log.log_end_offset)
        elif log.name not in self._flushing:
            task = asyncio.create_task(self._flush(log))
            self._flushing[log.name] = task
            task.add_done_callback(lambda done: self._flushed(log.name, done))

    async def _flush(self, log: Log) -> None:
        await self._run_blocking(log.flush)

    def _flushed(self, name: str, task: asyncio.Task[None]) -> None:
        del self._flushing[name]
        if not task.cancelled() and task.exception() is not None:
            _log.error("flushing %s failed: %s", name, task.exception())

    async def ended(self) -> None:
        """Return when nothing is flushed any more."""
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)
