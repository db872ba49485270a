"""Check of a partition directory: its segments in order, and the small files alongside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.partition_metadata import OWN_FILES, PARTITION_METADATA_FILE, UNFINISHED
from kafkalog_spark.format.producer_snapshot import ProducerEntry, open_transactions
from kafkalog_spark.log.check.batch_check import BatchCheck, EpochCheck
from kafkalog_spark.log.check.finding import Content, Fault, Findings, Severity
from kafkalog_spark.log.check.producer_check import ProducerCheck
from kafkalog_spark.log.check.segment_check import SegmentCheck, SegmentResult
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.read import partition_log, state_files
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.missing_segments import compressed_segments, explain_content, is_new, is_segment


@dataclass(slots=True)
class PartitionResult:
    """Totals of a partition.

    Attributes:
        records: Number of records by the batch headers.
        is_damaged: A batch or a segment cannot be read, so faults that depend on it are not reported.
        has_torn_tail: The last segment ends in an incomplete write, which the next start of a broker truncates.
        is_deleted: The partition was deleted during the check.
    """

    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    is_damaged: bool = False
    has_torn_tail: bool = False
    is_deleted: bool = False

    def add(self, segment: SegmentResult) -> None:
        self.batches += segment.batches
        self.records += segment.records
        self.is_damaged |= segment.is_damaged
        self.has_torn_tail |= segment.has_torn_tail
        self.log_end_offset = max(self.log_end_offset, segment.next_offset)


@dataclass(slots=True)
class PartitionCheck:
    """Check of one partition.

    Attributes:
        log: The log, opened with the offsets in the checkpoints.
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
    _producers: ProducerCheck = field(init=False)
    _transactions: TransactionCheck = field(init=False)
    _epochs: EpochCheck = field(init=False)
    _snapshots: list[tuple[int, str, list[ProducerEntry]]] = field(default_factory=list)
    _has_gaps: bool = False  # compaction has removed batches

    def run(self) -> PartitionResult:
        """Check the partition. Files that a broker removes meanwhile are not reported."""
        result, log = self._result, self.log
        result.segments = len(log.segments)
        result.log_start_offset = log.log_start_offset
        result.log_end_offset = log.segments[0].base_offset if log.segments else log.log_start_offset
        self._check_names()
        self._check_has_segments()
        self._read(PARTITION_METADATA_FILE, partial(state_files.read_partition_metadata, log.store, log.directory))
        epochs = self._read(LEADER_EPOCH_CHECKPOINT, partial(state_files.read_leader_epochs, log.store, log.directory))
        self._epochs = EpochCheck(epochs or [], log.log_start_offset)
        self.findings.add_errors(self._path(LEADER_EPOCH_CHECKPOINT), self._epochs.check_order())
        first = log.segments[0].base_offset if log.segments else 0
        for offset, name in names.producer_snapshots(log.names):
            entries = self._read(name, partial(state_files.read_producer_snapshot, log.store, self._path(name)))
            if entries is not None:
                self._snapshots.append((offset, self._path(name), entries))
        self._producers = ProducerCheck(first, has_sequences=log.topic != names.OFFSETS_TOPIC)
        # Transactions that are open before the first batch; None if no snapshot gives them.
        snapshots = (open_transactions(entries) for offset, _, entries in self._snapshots if offset == first)
        self._transactions = TransactionCheck({} if first == 0 else next(snapshots, None))
        self._check_segments()
        if not result.is_deleted:
            self._check_ends()
        return result

    def _check_segments(self) -> None:
        log, result = self.log, self._result
        batches = BatchCheck(0, None, log.segments[0].base_offset - 1 if log.segments else -1)
        for files in list(log.segments):
            # A refresh below lists the directory again: the segment may have another index then, or be gone.
            index = log.segment_index(files.base_offset)
            is_listed = index < len(log.segments) and log.segments[index].base_offset == files.base_offset
            segment = None
            if is_listed:
                batches = replace(batches, base_offset=files.base_offset, next_base_offset=log.next_base_offset(index))
                try:
                    segment = self._check_segment(index, batches)
                except FileNotFoundError:
                    log.refresh()
                    if log.is_deleted:
                        result.is_deleted = True
                        return
                    if files.log in log.names:
                        fault = Fault("listed in its directory, but does not exist when it is opened")
                        self.findings.add(Severity.ERROR, self._path(files.log), fault)
                except KafkalogError as error:  # I/O error
                    self.findings.add_unreadable(error, self._path(files.log))
                    result.is_damaged = True
                    return
            if segment is None:
                # Retention or the cleaner removed the segment. The following segments are still checked, but no longer
                # compared with the earlier ones.
                result.is_damaged = batches.has_gaps = True
                segment = SegmentResult(files.base_offset)
            result.add(segment)

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
        """Yield the faults that depend on more than one segment: those of producers and leader epochs."""
        table, done, self._has_gaps = window.table, 0, batches.has_gaps
        while self._snapshots:  # compare each snapshot once the batches below its offset were checked
            row = int((table[:, HeaderColumn.LAST_OFFSET] < self._snapshots[0][0]).sum())
            if row == len(table):
                break
            if row > done:
                yield from self._producers.check_batches(table[done:row], has_gaps=batches.has_gaps)
                done = row
            self._compare_snapshot(has_gaps=batches.has_gaps)
        if done < len(table):
            yield from self._producers.check_batches(table[done:], has_gaps=batches.has_gaps)
        if self._epochs.entries:
            self.findings.add_errors(self._path(LEADER_EPOCH_CHECKPOINT), self._epochs.check_batches(table))

    def _compare_snapshot(self, *, has_gaps: bool) -> None:
        _, path, entries = self._snapshots.pop(0)
        self.findings.add_errors(path, self._producers.compare_snapshot(entries, has_gaps=has_gaps))

    def _check_names(self) -> None:
        live = {
            name
            for segment in self.log.segments
            for name in (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
        }
        for name in sorted(set(self.log.names) - live - OWN_FILES):
            file = names.parse_segment_file(name)
            what = "left over from a cleaning or a crash; the next start of a broker removes it"
            severity = Severity.NOTE
            if file is None and compressed_segments([name]):
                what, severity = "compressed segment file, which readers skip: decompress it", Severity.ERROR
            elif file is None:
                what = what if name in UNFINISHED else "not a file of a partition"
            elif file.transient_suffix is None and file.suffix == names.PRODUCER_SNAPSHOT_SUFFIX:
                continue
            elif file.transient_suffix is None and file.suffix != names.LOG_SUFFIX:
                what = "index without a .log; the next start of a broker removes it"
            elif file.transient_suffix == names.DELETED_SUFFIX:
                what = "file of a deleted segment; a broker removes it after file.delete.delay.ms, or at its start"
            self.findings.add(severity, self._path(name), Fault(what))

    def _check_has_segments(self) -> None:
        """Report a directory without a .log: an error, because a broker writes the first one before all other files.

        It is only a note for an empty directory, which a crash during the creation of a partition leaves, and for one
        with partition.metadata alone, as the sink creates it in a bucket.
        """
        log = self.log
        if log.segments or log.is_deleted:
            return
        listing = log.store.list(log.directory)
        if any(map(is_segment, listing.names)):
            return  # created since the log was opened
        instead = explain_content(log.directory, log.store, listing)
        fault = Fault(f"holds no segment (.log file){f': {instead}' if instead else ''}")
        may_be_new = not listing.names or is_new(listing)
        self.findings.add(Severity.NOTE if may_be_new else Severity.ERROR, log.directory, fault)

    def _read(self, name: str, read: Callable[[], Content]) -> Content | None:
        return self.findings.read(self._path(name), read)

    def _check_ends(self) -> None:
        """Report files with offsets past the log end offset, unless damage leaves the log end offset unknown."""
        if self._result.is_damaged:
            return
        end = self._result.log_end_offset
        while self._snapshots:
            offset, path, _ = self._snapshots[0]
            if offset <= end:
                self._compare_snapshot(has_gaps=self._has_gaps)
                continue
            self._snapshots.pop(0)
            self._add_past_end(path, "the offset of a producer snapshot", offset, end)
        for entry in self._epochs.entries:
            if entry.start_offset > end:
                what = f"the start offset of leader epoch {entry.epoch}"
                self._add_past_end(self._path(LEADER_EPOCH_CHECKPOINT), what, entry.start_offset, end)

    def _add_past_end(self, path: str, what: str, offset: int, end: int) -> None:
        severity = Severity.NOTE if self._result.has_torn_tail else Severity.ERROR
        fault = Fault(what, offset=offset, expected=f"{end}, the log end offset, at most", got=str(offset))
        self.findings.add(severity, path, fault)

    def _path(self, name: str) -> str:
        return os.path.join(self.log.directory, name)
