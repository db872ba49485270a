"""Checks one remote segment, and compares the batches of two segments with the same offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.log.check.batch_check import BatchCheck
from kafkalog_spark.log.check.epoch_check import EpochCheck
from kafkalog_spark.log.check.finding import Content, Fault, Findings, Severity
from kafkalog_spark.log.check.segment_check import SegmentCheck, SegmentResult
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.remote.remote_indexes import read_leader_epochs, read_producers
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.lineage import epochs_within
from kafkalog_spark.log.tiered.object_keys import RemoteFile

Batches = npt.NDArray[np.int64]
"""int64[n, 4]: base offset, last offset, CRC and byte position of each batch."""


@dataclass(slots=True)
class RemoteSegmentCheck:
    """Checks one remote segment.

    Attributes:
        stored: The segment.
        keys: Private keys, for encrypted segments.
        findings: Gets the faults.
        open_before: First offset by producer id of the transactions that are open where the segment begins; None if
            they are unknown.
        decode_records: Also decode the records.
        on_bytes: Called with the number of bytes that were checked since the last call.
        open_after: As `open_before`, where the segment ends. Set by `run`.
    """

    stored: StoredSegment
    keys: KeyRing
    findings: Findings
    open_before: dict[int, int] | None
    decode_records: bool
    on_bytes: Callable[[int], None]
    open_after: dict[int, int] | None = None
    _tables: list[Batches] = field(default_factory=lambda: [np.empty((0, 4), np.int64)])
    _largest: int = NO_TIMESTAMP
    _epochs: EpochCheck = field(init=False)

    @property
    def batches(self) -> Batches:
        """All good batches; complete after `run`."""
        return np.concatenate(self._tables)

    def run(self) -> SegmentResult | None:
        """Check the segment. Returns None if it was deleted during the check, or if it cannot be read (reported)."""
        try:
            self._check_small_files()
            partition = self.stored.segment.partition
            with open_remote(self.stored, self.keys, f"{partition.topic}-{partition.partition}") as file:
                start = self.stored.segment.start_offset
                batches = BatchCheck(start, self.stored.segment.until, start - 1)
                transactions = TransactionCheck(self.open_before)
                result = SegmentCheck(
                    file,
                    batches,
                    transactions,
                    self.findings,
                    decode_records=self.decode_records,
                    was_closed_cleanly=True,
                    recovery_point=None,
                    on_window=self._on_window,
                    on_bytes=self.on_bytes,
                ).run()
            if not result.is_damaged:
                self._add(self._end_faults(result))
            return result
        except FileNotFoundError:
            return None
        except (KafkalogError, OSError) as error:
            self.findings.add_unreadable(error, self.stored.log_path)
        return None

    def _check_small_files(self) -> None:
        """Check the files beside the .log object that SegmentCheck does not check."""
        stored = self.stored
        manifest = stored.manifest
        if manifest is not None and manifest.indexes is not None and RemoteFile.INDEXES in stored.objects:
            path = stored.path_of(RemoteFile.INDEXES)
            with closing(stored.remote_dir.store.open(path, stored.objects[RemoteFile.INDEXES][1])) as file:
                size = file.size
            expected = max((index.position + index.size for index in manifest.indexes.values()), default=0)
            if size != expected:
                fault = Fault("the size of the object", expected=f"{expected} bytes by its manifest", got=str(size))
                self.findings.add(Severity.ERROR, path, fault)
        epochs = self._read(RemoteFile.LEADER_EPOCHS, lambda: read_leader_epochs(stored, self.keys)) or []
        # Records may have been deleted before the segment was copied.
        starts = [stored.segment.start_offset, *(entry.start_offset for entry in stored.segment.leader_epochs[:1])]
        self._epochs = EpochCheck(epochs, max(starts))
        self._add(self._epochs.check_order())
        segment = stored.segment
        expected_epochs = epochs_within(epochs, segment.start_offset, segment.until)
        if epochs and segment.leader_epochs != expected_epochs:
            fault = Fault(
                "the leader epochs of the segment",
                offset=segment.start_offset,
                expected=_epochs_text(expected_epochs) + " by its leader-epoch checkpoint",
                got=_epochs_text(segment.leader_epochs),
            )
            self.findings.add(Severity.ERROR, stored.log_path, fault)
        if stored.has(RemoteFile.PRODUCER_SNAPSHOT):
            producers = self._read(RemoteFile.PRODUCER_SNAPSHOT, lambda: read_producers(stored, self.keys))
            if producers is not None:
                self.open_after = open_transactions(producers)

    def _read(self, file: RemoteFile, read: Callable[[], Content]) -> Content | None:
        try:
            return read()
        except FileNotFoundError:
            raise
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            candidates = (file, RemoteFile.INDEXES, RemoteFile.LOG)
            existing = next(candidate for candidate in candidates if candidate in self.stored.objects)
            self.findings.add_unreadable(error, self.stored.path_of(existing))
        return None

    def _end_faults(self, result: SegmentResult) -> Iterator[Fault]:
        """Yield the faults of the last offset and the largest timestamp in the segment's metadata."""
        segment = self.stored.segment
        if result.next_offset != segment.until:
            yield Fault(
                "the segment's last offset",
                result.position,
                expected=str(segment.end_offset),
                got=str(result.next_offset - 1),
            )
        if segment.max_timestamp >= 0 and segment.max_timestamp != self._largest:
            yield Fault(
                "the segment's largest timestamp", expected=f"{segment.max_timestamp} ms", got=str(self._largest)
            )

    def _on_window(self, window: Window, batches: BatchCheck) -> Iterator[Fault]:
        table = window.table
        self._tables.append(
            table[:, [HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET, HeaderColumn.CRC, HeaderColumn.POSITION]]
        )
        self._largest = max(self._largest, int(table[:, HeaderColumn.MAX_TIMESTAMP].max()))
        if self._epochs.entries:
            yield from self._epochs.check_batches(table)

    def _add(self, faults: Iterator[Fault]) -> None:
        self.findings.add_errors(self.stored.log_path, faults)


def _epochs_text(epochs: tuple[EpochEntry, ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "none"


def overlap_faults(batches: Batches, others: Batches, other_path: str, start: int, until: int) -> Iterator[Fault]:
    """Yield a fault for each of `batches` in [start, until) that differs from the one with its base offset in `others`.

    other_path: path of the segment of `others`, for the faults.
    """
    batches, others = (rows[(rows[:, 0] >= start) & (rows[:, 1] < until)] for rows in (batches, others))
    by_base_offset = {base: (last, crc) for base, last, crc, _ in others.tolist()}
    for base, last, crc, position in batches.tolist():
        other_last, other_crc = by_base_offset.get(base, (last, crc))
        if (other_last, other_crc) != (last, crc):
            yield Fault(
                "the batch differs from that of another segment with the same offsets",
                position,
                base,
                f"offsets {base} to {other_last} with CRC {other_crc:#010x}, as in {other_path}",
                f"{base} to {last} with {crc:#010x}",
            )
