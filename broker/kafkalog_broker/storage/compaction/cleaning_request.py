"""Interface of a cleaning to its log and to the log's thread: request, host, statistics. Loads no kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.compaction.throttler import Throttler
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, publish, withdraw
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_spark.format.fsync import fsync_directory

_POLL_S = 0.2  # interval at which a thread that waits for the owning thread checks whether it must stop

T = TypeVar("T")


class CleaningAborted(Exception):
    """The log was closed or changed during the cleaning.

    This is not an error; segments not yet replaced are unchanged.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """Cleaning of one log. `segments` are all segments, the active one last."""

    directory: Path
    segments: Sequence[LogSegment]
    config: LogConfig
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int


@dataclass(eq=False)
class OwnerThread:
    """The thread that owns the logs, as seen from another thread."""

    _call_soon: Callable[[Callable[[], object]], object]
    is_stopping: threading.Event = field(init=False, default_factory=threading.Event)

    def ask(self, function: Callable[[], T]) -> T:
        """Run `function` on the owning thread and return its result.

        Raises:
            CleaningAborted: If the cleaner stops, or the event loop is closed, before the function has begun.
            Exception: Any exception that the function raises, including TimeoutError.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - raised by `future.result()` on the calling thread
                    future.set_exception(error)

        try:
            self._call_soon(run)
        except RuntimeError as error:  # the event loop is closed
            raise CleaningAborted(str(error)) from None
        # Not `future.result(_POLL_S)`, whose TimeoutError could not be told from one that the function raised.
        while not future.done():
            wait([future], _POLL_S)
            if self.is_stopping.is_set():
                future.cancel()  # no-op once the function has begun
        if future.cancelled():
            raise CleaningAborted("the broker stops")
        return future.result()


@dataclass
class CleaningHost:
    """Access of a cleaning thread to its log. Methods may block."""

    _log: Log
    _owner: OwnerThread
    _now_ms: Callable[[], int]
    _throttler: Throttler
    _schedule_removal: Callable[[Path, int], None]

    def check(self) -> None:
        """Raise CleaningAborted if the cleaning must stop. Called for each window of bytes."""
        if self._owner.is_stopping.is_set():
            raise CleaningAborted("the broker stops")
        if self._log.is_closed or self._log.failure is not None:
            raise CleaningAborted("the log was closed, or is offline")
        if not self._log.config.is_compacted:
            raise CleaningAborted("cleanup.policy no longer contains compact")

    def throttle(self, size: int) -> None:
        """Count `size` bytes of I/O, and sleep if the rate is too high."""
        self._throttler.maybe_throttle(size)

    def producers(self) -> list[Producer]:
        """Return the log's producers."""
        return self._owner.ask(self._log.producer_state.producers)

    def replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> None:
        """Replace `old` with finished segments; on disk on return.

        Only the two steps that change the log run on its owning thread. This thread waits for the disk between them.

        Raises:
            CleaningAborted: If not all of `old` are in the log any more; nothing has changed then.
            OSError: If a file cannot be renamed or synced.
        """
        try:
            publish(cleaned)
            new = self._owner.ask(partial(self._begin_replace, cleaned, old))
        except (LookupError, BrokerError) as error:
            withdraw(cleaned)
            raise CleaningAborted(str(error)) from error
        except (CleaningAborted, OSError):
            withdraw(cleaned)
            raise
        fsync_directory(self._log.directory)
        try:
            self._owner.ask(partial(self._finish_replace, cleaned, new))
        except BrokerError as error:
            raise CleaningAborted(str(error)) from error
        fsync_directory(self._log.directory)

    def _begin_replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> list[LogSegment]:
        self.check()
        with self._log.offline_on_error():
            new, renamed = self._log.local.begin_replace(old, cleaned, self._now_ms())
        for path in renamed:
            self._schedule_removal(path, self._log.config.file_delete_delay_ms)
        return new

    def _finish_replace(self, cleaned: Sequence[CleanedSegment], new: Sequence[LogSegment]) -> None:
        if not self._log.is_closed:  # otherwise the next start completes the replacement, or the partition is deleted
            with self._log.offline_on_error():
                self._log.local.finish_replace(new, cleaned)


@dataclass(slots=True)
class CleanerStatistics:
    """Totals of a cleaning; sizes in bytes.

    Attributes:
        map_utilization: 0 to 1.
        unreadable_batches: Number of batches kept unchanged because their records are malformed.
        first_unreadable: Base offset of the first one.
    """

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    map_utilization: float = 0.0
    unreadable_batches: int = 0
    first_unreadable: int | None = None
