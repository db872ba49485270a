"""Let a log end earlier: at an offset, or as a whole, to begin at another one (UnifiedLog.truncateTo).

Files change in an order in which they are a log at every step, a beginning of the old one: segments from the last one
on, then the .log that is cut, its indexes, then producer snapshots and leader epochs, which loading compares with the
log's end. Where truncation begins below the recovery point of a checkpoint, that has to be lowered before
(LogManager.lower_checkpoints): what is written next is not on disk yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.partition.availability import Availability
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.partition.log_removal import LogRemoval
from kafkalog_broker.storage.partition.producer_snapshots import ProducerSnapshots
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_broker.storage.recovery.producers_at import producers_at
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat


class TruncationPoint(NamedTuple):
    """Where a log is to end, and what is known of its producers there."""

    log_end_offset: int
    producers: ProducerState


class Truncation:
    """Of one log, in whose owner's thread all but `plan` is called."""

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        removal: LogRemoval,
        availability: Availability,
    ) -> None:
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._snapshots = snapshots
        self._removal = removal
        self._availability = availability

    def plan(self, offset: int) -> TruncationPoint:
        """Where the log ends when nothing at or above `offset` is to stay: there, or where the batch begins that holds
        it. Reads producer snapshots and up to a segment; any thread, while nobody appends. Raises BrokerError."""
        self._availability.check()
        try:
            segments = self._local.segments
            if offset <= segments[0].base_offset:
                return TruncationPoint(max(offset, 0), ProducerState(max(offset, 0)))
            kept = [segment for segment in segments if segment.base_offset <= offset]
            bounds = kept[-1].locate(offset)
            end = offset if bounds is None else min(offset, bounds.base_offset)
            sizes = [(segment.base_offset, segment.size) for segment in kept]
            if bounds is not None:
                sizes[-1] = (sizes[-1][0], bounds.position)
            return TruncationPoint(end, producers_at(self._local.directory, end, self._snapshots.offsets(), sizes))
        except (OSError, CorruptLog) as error:
            self._availability.fail(error, nothing_happened=True)
        except UnsupportedFormat as error:
            self._availability.fail(OSError(str(error)))

    def apply(self, point: TruncationPoint) -> list[Path]:
        """Cut the log there; the files, renamed `.deleted`, that may be removed now. Waits for a flush under way.
        Raises BrokerError."""
        self._availability.check()
        end = point.log_end_offset
        if end >= self._local.log_end_offset:
            # As Kafka: an epoch that began at the end and has written nothing may be another one at the leader.
            self._guarded_epochs(self._local.log_end_offset)
            return []
        if end < self._local.segments[0].base_offset:
            return self.start_over(end, end)
        with self._local.flushing.lock:
            try:
                gone = [path for _, files in self._local.truncate_to(end) for path in files]
                gone += self._snapshots.truncate(end)
            except (OSError, CorruptLog) as error:
                self._availability.fail(error)
            self._guarded_epochs(end)
            self._producers.become(point.producers)
            self._local.log_start_offset = min(self._local.log_start_offset, end)
        return gone

    def start_over(self, offset: int, log_start_offset: int) -> list[Path]:
        """Forget everything and begin at `offset` (truncateFullyAndStartAt); records below `log_start_offset` will not
        be read. As `apply`."""
        self._availability.check()
        with self._local.flushing.lock:
            try:
                gone = [path for _, files in self._local.start_over(offset) for path in files]
                gone += self._snapshots.truncate(-1)
                self._epochs.clear()
            except (OSError, CorruptLog) as error:
                self._availability.fail(error)
            self._producers.clear(offset)
            self._local.log_start_offset = log_start_offset
        return gone

    def _guarded_epochs(self, end: int) -> None:
        try:
            self._epochs.truncate_from_end(end)
        except OSError as error:
            self._availability.fail(error)
