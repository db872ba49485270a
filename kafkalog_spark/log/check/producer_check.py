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
        batches = _batches_by_producer(table)
        if self._has_sequences and not has_gaps:
            yield from self._check_sequences(batches)
        for row in np.flatnonzero(np.diff(batches.producer_ids, append=-1)).tolist():  # last batch of each producer
            self._last_batches[int(batches.producer_ids[row])] = LastBatch(
                int(batches.epochs[row]),
                int(batches.last_sequences[row]),
                int(batches.headers[row, HeaderColumn.LAST_OFFSET]),
            )

    def _check_sequences(self, batches: _ProducerBatches) -> Iterator[Fault]:
        producer_ids, epochs = batches.producer_ids, batches.epochs
        # Each batch is compared with the batch of the same producer before it: the row above, or, for the first row of
        # a producer, its last batch in earlier windows. Epoch -2 (none) if there is no such batch.
        previous_epochs, previous_sequences = np.roll(epochs, 1), np.roll(batches.last_sequences, 1)
        for row in np.flatnonzero(np.diff(producer_ids, prepend=-1)).tolist():
            previous = self._last_batches.get(int(producer_ids[row]))
            previous_epochs[row] = -2 if previous is None else previous.epoch
            previous_sequences[row] = 0 if previous is None else previous.last_sequence
        expected = (previous_sequences + 1) & MAX_INT32
        is_wrong = (previous_epochs == epochs) & (batches.headers[:, HeaderColumn.BASE_SEQUENCE] != expected)
        for row in np.flatnonzero(is_wrong).tolist():
            header = batches.headers[row]
            yield Fault(
                f"the sequence of producer id {int(producer_ids[row])}, epoch {int(epochs[row])}",
                int(header[HeaderColumn.POSITION]),
                int(header[HeaderColumn.BASE_OFFSET]),
                str(int(expected[row])),
                str(int(header[HeaderColumn.BASE_SEQUENCE])),
            )

    def compare_snapshot(self, entries: Sequence[ProducerEntry], *, has_gaps: bool) -> Iterator[Fault]:
        """Yield the faults of a producer snapshot that was taken after the batches that were checked so far.

        It is not a fault if a producer is missing in the snapshot: it has expired.
        """
        for entry in entries:
            last = self._last_batches.get(entry.producer_id)
            is_unknown_or_older = last is None or last.last_offset < entry.last_offset
            if entry.last_offset < self.first_offset or (has_gaps and is_unknown_or_older):
                continue  # its last batch was deleted or compacted away
            listed = LastBatch(entry.producer_epoch, entry.last_sequence, entry.last_offset)
            # A marker raises the epoch without a batch of records.
            if (
                last is None
                or (last.last_sequence, last.last_offset) != (listed.last_sequence, listed.last_offset)
                or last.epoch > listed.epoch
            ):
                expected = "no batch" if last is None else str(last)
                yield Fault(
                    f"producer id {entry.producer_id}", offset=entry.last_offset, expected=expected, got=str(listed)
                )


class _ProducerBatches(NamedTuple):
    """Batches of idempotent producers, sorted by producer and then by offset; each array has an entry per batch.

    Attributes:
        headers: Rows of the header table.
        last_sequences: Sequence of the last record.
    """

    headers: HeaderTable
    producer_ids: np.ndarray
    epochs: np.ndarray
    last_sequences: np.ndarray


def _batches_by_producer(table: HeaderTable) -> _ProducerBatches:
    """Select the batches of records that have a sequence."""
    has_sequence = (table[:, HeaderColumn.PRODUCER_ID] >= 0) & (table[:, HeaderColumn.BASE_SEQUENCE] >= 0)
    is_marker = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    rows = np.flatnonzero(has_sequence & ~is_marker)
    headers = table[rows[np.argsort(table[rows, HeaderColumn.PRODUCER_ID], kind="stable")]]
    last_offset_deltas = headers[:, HeaderColumn.LAST_OFFSET] - headers[:, HeaderColumn.BASE_OFFSET]
    return _ProducerBatches(
        headers,
        headers[:, HeaderColumn.PRODUCER_ID],
        headers[:, HeaderColumn.PRODUCER_EPOCH],
        (headers[:, HeaderColumn.BASE_SEQUENCE] + last_offset_deltas) & MAX_INT32,
    )
