"""One remote segment: its manifest and sizes, its indexes, and every batch as the broker had it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.check.batch_check import BatchCheck, EpochCheck
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.segment_check import SegmentCheck, SegmentResult
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.format.checkpoint import EpochEntry
from kafkalog_spark.log.format.layout import NO_TIMESTAMP, H
from kafkalog_spark.log.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.remote_dir_listing import epochs_within
from kafkalog_spark.log.read.remote_segment_file import HeldSegment, leader_epochs_of, open_remote, producers_after
from kafkalog_spark.log.tiered.key_wrap import KeyRing
from kafkalog_spark.log.tiered.remote_names import RemoteFile

if TYPE_CHECKING:
    from kafkalog_spark.log.check.record_check import RecordCheck

Batches = npt.NDArray[np.int64]
"""int64[n, 4]: base offset, last offset, CRC and byte position of each batch."""

T = TypeVar("T")

_KEPT_COLUMNS = [H.BASE_OFFSET, H.LAST_OFFSET, H.CRC, H.POSITION]


@dataclass(slots=True)
class RemoteSegmentCheck:
    """held: the segment. open_before: producer id to first offset of the transactions open where it begins, None where
    nothing tells. records: decodes them, None for not. on_bytes: how many bytes were looked at.

    batches: after `run`, of all good ones. open_after: as open_before, where it ends.
    """

    held: HeldSegment
    keys: KeyRing
    findings: Findings
    open_before: dict[int, int] | None
    records: RecordCheck | None
    on_bytes: Callable[[int], None]
    batches: Batches = field(default_factory=lambda: np.empty((0, 4), np.int64))
    open_after: dict[int, int] | None = None
    _tables: list[Batches] = field(default_factory=list)
    _largest: int = NO_TIMESTAMP
    _epochs: EpochCheck | None = None
    _transactions: TransactionCheck = field(init=False)

    def run(self) -> SegmentResult | None:
        """Check the segment; None when it went away meanwhile or cannot be read, of which a finding tells."""
        self._transactions = TransactionCheck(self.open_before)
        try:
            self._check_small_files()
            with open_remote(self.held, self.keys, self._name) as file:
                check = SegmentCheck(self.findings, self._name, True, None, self._on_window, self.on_bytes)
                start = self.held.segment.start_offset
                self._transactions.begin_segment(check.aborted(file))
                found = check.run(file, BatchCheck(start, self.held.segment.until, start - 1))
            self.batches = np.concatenate([self.batches, *self._tables])
            self._tables.clear()
            if not found.is_damaged:
                self._tell(self._transactions.finish_segment())
                self._tell(self._end_faults(found))
            return found
        except FileNotFoundError:
            return None
        except KafkalogError as error:
            self.findings.add_error(error, self.held.log_path, self._name)
        except OSError as error:
            self._cannot_read(error)
        return None

    @property
    def _name(self) -> str:
        partition = self.held.segment.partition
        return f"{partition.topic}-{partition.partition}"

    def _check_small_files(self) -> None:
        """What is copied besides the .log, as far as SegmentCheck does not look at it."""
        held = self.held
        self._check_indexes_object()
        epochs = self._parsed(RemoteFile.LEADER_EPOCHS, lambda: leader_epochs_of(held, self.keys)) or []
        self._epochs = EpochCheck(epochs, held.segment.start_offset)
        self._tell(self._epochs.order())
        if epochs:
            self._tell(self._epoch_faults(epochs))
        if held.has(RemoteFile.PRODUCER_SNAPSHOT):
            producers = self._parsed(RemoteFile.PRODUCER_SNAPSHOT, lambda: producers_after(held, self.keys))
            if producers is not None:
                self.open_after = open_transactions(producers)

    def _check_indexes_object(self) -> None:
        manifest = self.held.manifest
        if manifest is None or manifest.indexes is None or RemoteFile.INDEXES not in self.held.objects:
            return
        path = self.held.path_of(RemoteFile.INDEXES)
        with closing(self.held.place.store.open(path, self.held.objects[RemoteFile.INDEXES][1])) as file:
            size = file.size
        expected = max((place.position + place.size for place in manifest.indexes.values()), default=0)
        if size != expected:
            fault = Fault("the size of the object", expected=f"{expected} bytes by its manifest", got=str(size))
            self.findings.add(Severity.ERROR, path, fault, self._name)

    def _parsed(self, file: RemoteFile, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except FileNotFoundError:
            raise
        except (CorruptLog, UnsupportedFormat) as error:
            path = self.held.path_of(file if file in self.held.objects else RemoteFile.INDEXES)
            self.findings.add_error(error, path, self._name)
        except OSError as error:
            self._cannot_read(error)
        return None

    def _epoch_faults(self, epochs: list[EpochEntry]) -> Iterator[Fault]:
        segment = self.held.segment
        expected = epochs_within(epochs, segment.start_offset, segment.until)
        if tuple(segment.leader_epochs) != expected:
            yield Fault(
                "the leader epochs of the segment",
                offset=segment.start_offset,
                expected=_epochs_text(expected) + " by its leader-epoch checkpoint",
                got=_epochs_text(segment.leader_epochs),
            )

    def _end_faults(self, found: SegmentResult) -> Iterator[Fault]:
        segment = self.held.segment
        if found.next_offset != segment.until:
            yield Fault(
                "the segment's last offset", found.position, expected=str(segment.end_offset),
                got=str(found.next_offset - 1),
            )  # fmt: skip
        if segment.max_timestamp >= 0 and segment.max_timestamp != self._largest:
            yield Fault(
                "the segment's largest timestamp", expected=f"{segment.max_timestamp} ms", got=str(self._largest)
            )

    def _on_window(self, window: Window, batches: BatchCheck) -> Iterator[Fault]:
        table = window.table
        self._tables.append(table[:, _KEPT_COLUMNS])
        self._largest = max(self._largest, int(table[:, H.MAX_TIMESTAMP].max()))
        if self.records is not None:
            yield from self.records.take(window)
        yield from self._transactions.take(window, has_gaps=batches.has_gaps)
        if self._epochs is not None and self._epochs.entries:
            yield from self._epochs.take(table)

    def _tell(self, faults: Iterator[Fault]) -> None:
        for fault in faults:
            self.findings.add(Severity.ERROR, self.held.log_path, fault, self._name)

    def _cannot_read(self, error: OSError) -> None:
        fault = Fault(f"cannot be read: {error.strerror}")
        self.findings.add(Severity.ERROR, error.filename or self.held.log_path, fault, self._name)


def open_transactions(producers: list[ProducerEntry]) -> dict[int, int]:
    """Producer id to first offset, of a snapshot's entries."""
    return {entry.producer_id: entry.transaction_first_offset for entry in producers if entry.has_open_transaction}


def _epochs_text(epochs: tuple[EpochEntry, ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "none"


def overlap_faults(mine: Batches, other: Batches, other_path: str, start: int, until: int) -> Iterator[Fault]:
    """Batches within [start, until), which both segments hold, that differ: one of them holds other records."""
    here, there = (rows[(rows[:, 0] >= start) & (rows[:, 1] < until)] for rows in (mine, other))
    known = {int(base): (int(last), int(crc)) for base, last, crc, _ in there}
    for base, last, crc, position in here.tolist():
        found = known.get(base)
        if found is not None and found != (last, crc):
            yield Fault(
                "the batch is another one than in a segment that holds the same offsets", position, base,
                f"offsets {base} to {found[0]} with CRC {found[1]:#010x}, as in {other_path}",
                f"{base} to {last} with {crc:#010x}",
            )  # fmt: skip
