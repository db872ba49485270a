"""Checks the sequence numbers of idempotent producers, and compares producer snapshots with the log. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_INT32, HeaderColumn
from kafkalog_spark.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import HeaderTable


class LastBatch(NamedTuple):
    """A producer's last batch of records."""

    epoch: int
    last_sequence: int
    last_offset: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}, sequence {self.last_sequence}, offset {self.last_offset}"


class ProducerCheck:
    """Checks the producers of one partition, from its first batch on.

    Args:
        first_offset: Base offset of the first segment.
        has_sequences: False for __consumer_offsets. The group coordinator gives each batch of a transaction's offsets
            sequence 0, and Kafka's ProducerAppendInfo does not check batches of coordinators.
    """

    def __init__(self, first_offset: int, *, has_sequences: bool = True) -> None:
        self.first_offset = first_offset
        self._has_sequences = has_sequences
        self._last_batches: dict[int, LastBatch] = {}

    def check_batches(self, table: HeaderTable, *, has_gaps: bool) -> Iterator[Fault]:
        """Yield a fault for each of the next batches whose sequence does not follow the producer's previous batch.

        With `has_gaps`, batches may be missing, and sequences are not compared.
        """
        has_sequence = (table[:, HeaderColumn.PRODUCER_ID] >= 0) & (table[:, HeaderColumn.BASE_SEQUENCE] >= 0)
        is_marker = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
        rows = np.flatnonzero(has_sequence & ~is_marker)
        rows = rows[np.argsort(table[rows, HeaderColumn.PRODUCER_ID], kind="stable")]
        ids, epochs = table[rows, HeaderColumn.PRODUCER_ID], table[rows, HeaderColumn.PRODUCER_EPOCH]
        first = table[rows, HeaderColumn.BASE_SEQUENCE]
        last = (first + table[rows, HeaderColumn.LAST_OFFSET] - table[rows, HeaderColumn.BASE_OFFSET]) & MAX_INT32
        epochs_before, lasts_before = np.roll(epochs, 1), np.roll(last, 1)
        for begin in np.flatnonzero(np.diff(ids, prepend=-1)).tolist():
            before = self._last_batches.get(int(ids[begin]))
            epochs_before[begin], lasts_before[begin] = (-2, 0) if before is None else before[:2]
        if self._has_sequences and not has_gaps:
            expected = (lasts_before + 1) & MAX_INT32
            for invalid in np.flatnonzero((epochs_before == epochs) & (first != expected)).tolist():
                row = table[rows[invalid]]
                producer_id, epoch = int(row[HeaderColumn.PRODUCER_ID]), int(row[HeaderColumn.PRODUCER_EPOCH])
                what = f"the sequence of producer id {producer_id}, epoch {epoch}"
                position, offset = int(row[HeaderColumn.POSITION]), int(row[HeaderColumn.BASE_OFFSET])
                got = str(int(row[HeaderColumn.BASE_SEQUENCE]))
                yield Fault(what, position, offset, str(int(expected[invalid])), got)
        for end in np.flatnonzero(np.diff(ids, append=-1)).tolist():
            offset = int(table[rows[end], HeaderColumn.LAST_OFFSET])
            self._last_batches[int(ids[end])] = LastBatch(int(epochs[end]), int(last[end]), offset)

    def compare_snapshot(self, entries: Sequence[ProducerEntry], *, has_gaps: bool) -> Iterator[Fault]:
        """Yield the faults of a producer snapshot at the end of the batches that were checked so far.

        It is not a fault if a producer is missing in the snapshot: it has expired.
        """
        for entry in entries:
            last = self._last_batches.get(entry.producer_id)
            is_older = last is None or last.last_offset < entry.last_offset
            if entry.last_offset < self.first_offset or (has_gaps and is_older):
                continue  # its last batch was deleted or compacted away
            listed = LastBatch(entry.producer_epoch, entry.last_sequence, entry.last_offset)
            # A marker raises the epoch without a batch of records.
            if last is None or last[1:] != listed[1:] or last.epoch > listed.epoch:
                expected = "no batch" if last is None else str(last)
                yield Fault(
                    f"producer id {entry.producer_id}", offset=entry.last_offset, expected=expected, got=str(listed)
                )
