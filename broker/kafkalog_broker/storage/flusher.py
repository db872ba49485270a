"""Which logs are flushed in the background, and that no log is flushed twice at once (LogManager.flushDirtyLogs)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.log import Log

_log = logging.getLogger(__name__)

RunBlocking = Callable[[Callable[[], object]], object]
"""Runs something that blocks: at once, or in a thread of its own choice."""


class Flusher:
    """run_blocking: where a flush, which waits for the disk, may happen. Use it from one thread."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._flushing: set[Log] = set()

    def check(self, logs: Iterable[Log], now_ms: int) -> int:
        """Begin to flush the logs whose flush.messages, flush.ms or rolled segments ask for it; returns how many."""
        due = [log for log in logs if log not in self._flushing and log.needs_flush(now_ms)]
        for log in due:
            self._flushing.add(log)
            self._run_blocking(lambda log=log: self._flush(log))  # type: ignore[misc]
        return len(due)

    def _flush(self, log: Log) -> None:
        try:
            log.flush()
        except BrokerError as error:
            # The log has gone offline and whoever it belongs to was informed (Log.on_failure): this is where it shows.
            if not log.is_closed:  # else it was deleted meanwhile
                _log.error("%s could not be flushed: %s", log, error)
        finally:
            self._flushing.discard(log)
