"""Check of a partition directory: its segments in order, and the small files alongside them.

The names in the directory are checked first (partition_names.py). Batches are checked segment by segment; producers and
leader epochs, which continue across segments, are checked with each window of batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kafkalog_spark.format.names import OFFSETS_TOPIC, producer_snapshots
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.log.check.batch_check import BatchCheck
from kafkalog_spark.log.check.epoch_check import EpochCheck
from kafkalog_spark.log.check.finding import Content, Fault, Findings, Severity
from kafkalog_spark.log.check.partition_names import check_has_segments, check_names
from kafkalog_spark.log.check.producer_check import ProducerCheck
from kafkalog_spark.log.check.segment_check import SegmentCheck, SegmentResult
from kafkalog_spark.log.check.snapshot_check import ProducerSnapshot, SnapshotCheck
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.read import partition_log, state_files
from kafkalog_spark.log.read.header_windows import Window


@dataclass(slots=True)
class PartitionResult:
    """Totals of a partition.

    Attributes:
        records: Number of records by the batch headers.
        is_incomplete: A batch or a segment was not read, because it is damaged or was removed meanwhile. Faults that
            depend on it are not reported.
        has_torn_tail: The last segment ends in an incomplete write, which the next start of a broker truncates.
        is_deleted: The partition was deleted during the check.
    """

    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    is_incomplete: bool = False
    has_torn_tail: bool = False
    is_deleted: bool = False

    def add(self, segment: SegmentResult) -> None:
        self.batches += segment.batches
        self.records += segment.records
        self.is_incomplete |= segment.is_damaged
        self.has_torn_tail |= segment.has_torn_tail
        self.log_end_offset = max(self.log_end_offset, segment.next_offset)


@dataclass(slots=True)
class PartitionCheck:
    """Check of one partition.

    Attributes:
        log: The log, opened with the checkpoints, so that log start offset and recovery point are known.
        findings: Gets the faults.
        was_closed_cleanly: The broker was stopped cleanly; see SegmentCheck.
        on_bytes: Called with the number of bytes that were checked since the last call.
        decode_records: Also decode the records.
    """

    log: partition_log.PartitionLog
    findings: Findings
    was_closed_cleanly: bool
    on_bytes: Callable[[int], None]
    decode_records: bool = False
    _result: PartitionResult = field(default_factory=PartitionResult)
    _transactions: TransactionCheck = field(init=False)
    _epochs: EpochCheck = field(init=False)
    _producers: SnapshotCheck = field(init=False)

    def run(self) -> PartitionResult:
        """Check the partition. Files that a broker removes meanwhile are not reported."""
        result, log = self._result, self.log
        result.segments = len(log.segments)
        result.log_start_offset = log.log_start_offset
        result.log_end_offset = log.segments[0].base_offset if log.segments else log.log_start_offset
        check_names(log, self.findings)
        check_has_segments(log, self.findings)
        self._read(PARTITION_METADATA_FILE, partial(state_files.read_partition_metadata, log.store, log.directory))
        epochs = self._read(LEADER_EPOCH_CHECKPOINT, partial(state_files.read_leader_epochs, log.store, log.directory))
        self._epochs = EpochCheck(epochs or [], log.log_start_offset)
        self.findings.add_errors(self._path(LEADER_EPOCH_CHECKPOINT), self._epochs.check_order())
        first_offset = log.segments[0].base_offset if log.segments else 0
        snapshots = self._read_snapshots()
        # Which transactions are open before the first batch: none at offset 0, those of the snapshot with that offset,
        # otherwise unknown (None).
        open_at_start: dict[int, int] | None = {} if first_offset == 0 else None
        for snapshot in snapshots:
            if open_at_start is None and snapshot.offset == first_offset:
                open_at_start = open_transactions(snapshot.entries)
        self._transactions = TransactionCheck(open_at_start)
        producers = ProducerCheck(first_offset, has_sequences=log.topic != OFFSETS_TOPIC)
        self._producers = SnapshotCheck(producers, snapshots, self.findings)
        self._check_segments()
        if not result.is_deleted:
            self._check_past_end()
        return result

    def _read_snapshots(self) -> list[ProducerSnapshot]:
        """Read the producer snapshots, in the order of their offsets. Unreadable ones are reported."""
        snapshots = []
        for offset, name in producer_snapshots(self.log.names):
            path = self._path(name)
            entries = self._read(name, partial(state_files.read_producer_snapshot, self.log.store, path))
            if entries is not None:
                snapshots.append(ProducerSnapshot(offset, path, entries))
        return snapshots

    def _read(self, name: str, read: Callable[[], Content]) -> Content | None:
        return self.findings.read(self._path(name), read)

    def _check_segments(self) -> None:
        """Check the segments in order, each with the state of the previous one's batches."""
        log, result = self.log, self._result
        batch_check = BatchCheck(0, None, log.segments[0].base_offset - 1 if log.segments else -1)
        for segment_files in list(log.segments):
            base_offset, segment_result = segment_files.base_offset, None
            # A refresh lists the directory again: the segment may have another index then, or be gone.
            index = log.segment_index(base_offset)
            if index < len(log.segments) and log.segments[index].base_offset == base_offset:
                next_base_offset = log.next_base_offset(index)
                batch_check = replace(batch_check, base_offset=base_offset, next_base_offset=next_base_offset)
                try:
                    segment_result = self._check_segment(index, batch_check)
                except FileNotFoundError:
                    if not self._refresh_without(segment_files.log):
                        result.is_deleted = True
                        return
                except KafkalogError as error:  # an I/O error ends the check of the partition
                    self.findings.add_unreadable(error, self._path(segment_files.log))
                    result.is_incomplete = True
                    return
            if segment_result is None:
                # The segment was removed by retention or the cleaner, or does not exist, as `_refresh_without` has
                # reported. The following segments are still checked, but no longer compared with the earlier ones.
                result.is_incomplete = batch_check.has_gaps = True
                segment_result = SegmentResult(base_offset)
            result.add(segment_result)

    def _refresh_without(self, segment_name: str) -> bool:
        """List the partition again, because a segment does not exist. Report it if it is still listed.

        Returns:
            False if the partition was deleted.
        """
        self.log.refresh()
        if self.log.is_deleted:
            return False
        if segment_name in self.log.names:
            fault = Fault("listed in its directory, but does not exist when it is opened")
            self.findings.add(Severity.ERROR, self._path(segment_name), fault)
        return True

    def _check_segment(self, index: int, batches: BatchCheck) -> SegmentResult:
        with self.log.open_segment(index) as file:
            return SegmentCheck(
                file,
                batches,
                self._transactions,
                self.findings,
                decode_records=self.decode_records,
                was_closed_cleanly=self.was_closed_cleanly,
                recovery_point=self.log.recovery_point,
                on_window=self._on_window,
                on_bytes=self.on_bytes,
            ).run()

    def _on_window(self, window: Window, batches: BatchCheck) -> Iterator[Fault]:
        """Check what continues across segments. Yield the faults of producers, which the caller adds for the segment.

        Faults of leader epochs are added here, for the checkpoint.
        """
        yield from self._producers.check_batches(window.table, has_gaps=batches.has_gaps)
        if self._epochs.entries:
            self.findings.add_errors(self._path(LEADER_EPOCH_CHECKPOINT), self._epochs.check_batches(window.table))

    def _check_past_end(self) -> None:
        """Report files with offsets past the log end offset, unless a segment that was not read leaves it unknown."""
        if self._result.is_incomplete:
            return
        end = self._result.log_end_offset
        for snapshot in self._producers.finish(end):
            self._add_past_end(snapshot.path, "the offset of a producer snapshot", snapshot.offset, end)
        for entry in self._epochs.entries:
            if entry.start_offset > end:
                what_has_offset = f"the start offset of leader epoch {entry.epoch}"
                self._add_past_end(self._path(LEADER_EPOCH_CHECKPOINT), what_has_offset, entry.start_offset, end)

    def _add_past_end(self, path: str, what_has_offset: str, offset: int, end: int) -> None:
        severity = Severity.NOTE if self._result.has_torn_tail else Severity.ERROR
        fault = Fault(what_has_offset, offset=offset, expected=f"at most {end}, the log end offset", got=str(offset))
        self.findings.add(severity, path, fault)

    def _path(self, name: str) -> str:
        return os.path.join(self.log.directory, name)
