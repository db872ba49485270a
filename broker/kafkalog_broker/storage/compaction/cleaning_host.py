"""The log that is being cleaned, as a cleaner thread sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted
from kafkalog_broker.storage.compaction.owner_thread import OwnerThread
from kafkalog_broker.storage.compaction.throttler import Throttler
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, publish, withdraw
from kafkalog_broker.storage.partition.local_log import SegmentsReplaced
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_spark.format.fsync import fsync_directory


@dataclass
class CleaningHost:
    """Access to the log that is being cleaned. Used on a cleaner thread; methods may block."""

    _log: Log
    _owner: OwnerThread
    _now_ms: Callable[[], int]
    _throttler: Throttler
    _schedule_removal: Callable[[Path, int], None]

    def check_not_aborted(self) -> None:
        """Raise CleaningAborted if the cleaning must stop. The cleaner calls this for each window of bytes."""
        if self._owner.is_stopping.is_set():
            raise CleaningAborted("the broker is stopping")
        if self._log.is_closed or self._log.failure is not None:
            raise CleaningAborted("the log was closed, or is offline")
        if not self._log.config.is_compacted:
            raise CleaningAborted("cleanup.policy no longer contains compact")

    def throttle(self, size: int) -> None:
        """Count `size` bytes of I/O, and sleep if the rate is too high."""
        self._throttler.maybe_throttle(size)

    def producers(self) -> list[Producer]:
        """Return the log's producers."""
        return self._owner.call(self._log.producer_state.producers)

    def replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> None:
        """Replace the segments `old` by finished cleaned ones. The replacement is on disk when this returns.

        Only the two steps that change the log run on its owning thread. The cleaner thread does the fsyncs.

        Raises:
            CleaningAborted: In one of three cases:
                - The cleaning must stop before the first step, or not all of `old` are in the log any more. The log is
                  unchanged.
                - A step fails. The log is then offline, and its next start completes the replacement if it had begun.
                - The broker stops between the steps. The log has the new segments, and its next start renames them.
            OSError: If a cleaned file cannot be renamed or synced.
        """
        try:
            publish(cleaned)
        except OSError:
            withdraw(cleaned)
            raise
        try:
            new = self._owner.call(partial(self._begin_replace, cleaned, old))
        except SegmentsReplaced as error:
            withdraw(cleaned)
            raise CleaningAborted(str(error)) from error
        except CleaningAborted:
            withdraw(cleaned)
            raise
        except BrokerError as error:
            # Some of `old` may be renamed `.deleted`. Only the `.swap` files still hold their records.
            raise CleaningAborted(str(error)) from error
        fsync_directory(self._log.directory)
        try:
            self._owner.call(partial(self._finish_replace, cleaned, new))
        except BrokerError as error:
            raise CleaningAborted(str(error)) from error
        fsync_directory(self._log.directory)

    def _begin_replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> list[LogSegment]:
        self.check_not_aborted()
        with self._log.offline_on_error():
            new, renamed = self._log.local.begin_replace(old, cleaned, self._now_ms())
        for path in renamed:
            self._schedule_removal(path, self._log.config.file_delete_delay_ms)
        return new

    def _finish_replace(self, cleaned: Sequence[CleanedSegment], new: Sequence[LogSegment]) -> None:
        if not self._log.is_closed:  # otherwise the next start completes the replacement, or the partition is deleted
            with self._log.offline_on_error():
                self._log.local.finish_replace(new, cleaned)
