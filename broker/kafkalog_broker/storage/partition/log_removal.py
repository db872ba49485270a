"""What leaves a log: records below a new log start offset, segments by retention, segments that compaction replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition import retention
from kafkalog_broker.storage.partition.availability import Availability
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_snapshots import ProducerSnapshots
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_broker.storage.partition.subscribers import Subscribers


class LogRemoval:
    """Moves the log start offset of `local`, and with it what epochs, producers and snapshots know of what is gone."""

    def __init__(
        self,
        name: str,
        local: LocalLog,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        availability: Availability,
        subscribers: Subscribers,
    ) -> None:
        self._name = name
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._snapshots = snapshots
        self._availability = availability
        self._subscribers = subscribers

    def delete_records(self, offset: int, high_watermark: int) -> None:
        """As Log.delete_records."""
        self._availability.check()
        if not self._local.config.is_deleted:
            raise BrokerError(
                ErrorCode.policy_violation,
                "records are deleted only of topics whose cleanup.policy contains delete",
                topic_partition=self._name,
            )
        wanted = high_watermark if offset == -1 else offset
        if not 0 <= wanted <= high_watermark:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, records can be deleted up to the high watermark {high_watermark}",
                topic_partition=self._name,
                offset=offset,
            )
        self.move_log_start(wanted)

    def move_log_start(self, offset: int) -> None:
        """Let the log begin at `offset`, not above the high watermark; nothing where it begins there already, or
        later."""
        if offset <= self._local.log_start_offset:
            return
        self._local.log_start_offset = offset
        try:
            self._epochs.truncate_from_start(offset)
        except OSError as error:
            self._availability.fail(error)
        self._producers.on_log_start_offset(offset)
        self._subscribers.wake()

    def delete_old_segments(self, high_watermark: int, now_ms: int, roll: Callable[[int], None]) -> list[Path]:
        """As Log.delete_old_segments. roll: begins a new segment, at `now_ms`."""
        self._availability.check()
        local, config = self._local, self._local.config
        try:
            deletion = retention.decide(
                [
                    retention.SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp)
                    for segment in local.segments
                ],
                retention.RetentionPolicy(config.retention_ms, config.retention_bytes, config.is_deleted),
                log_start_offset=local.log_start_offset,
                high_watermark=high_watermark,
                log_end_offset=local.log_end_offset,
                now_ms=now_ms,
            )
            if not deletion:
                return []
            if deletion.roll_first:
                roll(now_ms)
            # Of producers whose records are gone a start after a crash knows what snapshots say. These are written
            # first, as Kafka does at the roll; while they cannot be, nothing goes until the next check.
            if not local.flushing.write_snapshots():
                return []
            self.move_log_start(deletion.log_start_offset)
            gone: list[Path] = []
            for segment, files in local.remove_first(deletion.count):
                gone += files + self._snapshots.remove(segment.base_offset)
            return gone
        except OSError as error:
            self._availability.fail(error)

    def replace_segments(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment], now_ms: int) -> list[Path]:
        """As Log.replace_segments."""
        self._availability.check()
        try:
            gone: list[Path] = []
            for segment, files in self._local.replace(old, cleaned, now_ms):
                gone += files
                if all(segment.base_offset != piece.base_offset for piece in cleaned):
                    gone += self._snapshots.remove(segment.base_offset)
            return gone
        except OSError as error:
            self._availability.fail(error)
