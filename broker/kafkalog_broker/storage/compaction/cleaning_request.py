"""Request, host and statistics of a cleaning: its interface to the log and its thread. Loads no kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, publish, withdraw
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_spark.format.atomic_file import fsync_directory

_POLL_S = 0.2  # interval at which a thread that waits for the logs' thread looks whether it is to stop

T = TypeVar("T")


class CleaningAborted(Exception):
    """The log is gone or changed under the cleaner: nothing is wrong, and what was not swapped in is as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """Cleaning of one log. segments: all of it, the active one last."""

    directory: Path
    segments: Sequence[LogSegment]
    config: LogConfig
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int


@dataclass(eq=False)
class OwnerThread:
    """Thread that owns the logs, as seen from another thread. call_soon: runs a function there."""

    _call_soon: Callable[[Callable[[], object]], object]
    is_stopping: threading.Event = field(init=False, default_factory=threading.Event)

    def ask(self, function: Callable[[], T]) -> T:
        """Run `function` in that thread and return its result.

        Raises:
            CleaningAborted: If the cleaner stops, or the event loop is closed, before the function has begun.
            Exception: Whatever the function raises, TimeoutError included.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                    future.set_exception(error)

        try:
            self._call_soon(run)
        except RuntimeError as error:  # the event loop is closed
            raise CleaningAborted(str(error)) from None
        # Not `future.result(_POLL_S)`: a TimeoutError of the wait would look like one that the function raised.
        while not future.done():
            wait([future], _POLL_S)
            if self.is_stopping.is_set():
                future.cancel()  # has no effect on a function that has begun
        if future.cancelled():
            raise CleaningAborted("the broker stops")
        return future.result()


@dataclass
class CleaningHost:
    """Access of a cleaning thread to its log; may block. schedule_removal: given a renamed file, and in how many ms."""

    _log: Log
    _owner: OwnerThread
    _now_ms: Callable[[], int]
    _throttler: Throttler
    _schedule_removal: Callable[[Path, int], None]

    def check(self) -> None:
        """Raise CleaningAborted when the cleaning is not to go on. Called for each window of bytes."""
        if self._owner.is_stopping.is_set():
            raise CleaningAborted("the broker stops")
        if self._log.is_closed or self._log.failure is not None:
            raise CleaningAborted("the log was closed, or is offline")
        if not self._log.config.is_compacted:
            raise CleaningAborted("cleanup.policy contains compact no more")

    def throttle(self, size: int) -> None:
        self._throttler.observed(size)

    def producers(self) -> list[Producer]:
        return self._owner.ask(self._log.producer_state.producers)

    def replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> None:
        """Replace `old` by finished segments; on disk on return.

        Only the two steps that change the log run in its owner thread; this thread waits for the disk between them.
        Raises CleaningAborted if not all of `old` are there any more; nothing has changed then.
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
        if not self._log.is_closed:  # else the next start completes the replacement, or the partition was deleted
            with self._log.offline_on_error():
                self._log.local.finish_replace(new, cleaned)


@dataclass(slots=True)
class CleanerStatistics:
    """Totals of a cleaning, in bytes. map_utilization: 0 to 1. unreadable_batches: those that stay as they are because
    their records are malformed; first_unreadable: the base offset of the first one."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    map_utilization: float = 0.0
    unreadable_batches: int = 0
    first_unreadable: int | None = None


_CHECK_S = 0.3
"""Interval at which the rate is looked at, as in Kafka: shorter, and sleeps would be too short to be exact."""


@dataclass(eq=False)
class Throttler:
    """Limits a rate by sleeping (Kafka's Throttler); shared by threads, all of which wait. rate: bytes per second; may
    be changed: a wait that has begun ends as it was meant. monotonic: a clock in seconds."""

    rate: float
    wait: Callable[[float], object] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock, self._since, self._observed = threading.Lock(), self.monotonic(), 0

    def observed(self, size: int) -> None:
        with self._lock:
            self._observed += size
            elapsed = self.monotonic() - self._since
            if elapsed < _CHECK_S or not self._observed:
                return
            due = self._observed / max(self.rate, 1.0)  # a rate of 0 is not for ever
            if due > elapsed:
                self.wait(due - elapsed)
            self._since = self.monotonic()
            self._observed = 0
