"""The table `producers`: what a partition knows of each at its end, as a broker does that loads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, CorruptLog, UnsupportedFormat
from kafkalog_spark.log.format.batch_header import BatchHeader
from kafkalog_spark.log.format.control_record import transaction_end
from kafkalog_spark.log.format.layout import NO_SEQUENCE, H
from kafkalog_spark.log.format.producer_snapshot import NO_TRANSACTION, ProducerEntry
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.arrow_rows import collected, timestamp_us
from kafkalog_spark.log.tables.columns import PRODUCERS
from kafkalog_spark.log.tables.damage import stretches
from kafkalog_spark.log.tables.transactions import Coordinators

_NO_COORDINATOR = -1
_NO_OFFSET = -1


def producer_rows(log: PartitionLog, columns: tuple[str, ...], known: Coordinators) -> Iterator[pa.RecordBatch]:
    """The producers of a partition, by id. Raises FileNotFoundError when a segment goes away, NotALogDirectory."""
    snapshot, producers = _snapshot(log)
    start = log.log_start_offset if snapshot is None else snapshot
    for window in _windows(log, start):
        for row in (window.table[:, H.PRODUCER_ID] >= 0).nonzero()[0].tolist():
            header = window.header(row)
            if header.base_offset >= start and header.magic == 2:
                _take(producers, window, row, header)
    rows = (_row(entry, snapshot, log, known) for _, entry in sorted(producers.items()))
    yield from collected(PRODUCERS.schema(columns), ([row.get(name) for name in columns] for row in rows))


def _snapshot(log: PartitionLog) -> tuple[int | None, dict[int, ProducerEntry]]:
    """The latest that can be read, and where it was taken."""
    for at, path in log.snapshots_up_to(log.log_end_offset):
        if at < log.log_start_offset:
            break
        try:
            return at, {entry.producer_id: entry for entry in log.read_snapshot(path)}
        except (CorruptLog, UnsupportedFormat, OSError):
            continue  # Kafka takes an older one
    return None, {}


def _windows(log: PartitionLog, start: int) -> Iterator[Window]:
    for index in range(log.segment_index(start), len(log.segments)):
        with log.open_segment(index) as file:
            for found in stretches(file, file.locate(start), log.recovery_point):
                if isinstance(found, Window):
                    yield found


def _take(producers: dict[int, ProducerEntry], window: Window, row: int, header: BatchHeader) -> None:
    """Kafka's ProducerAppendInfo: a batch of records, or a marker, which raises the epoch and ends the transaction."""
    before = producers.get(header.producer_id)
    if before is None:
        before = ProducerEntry(
            header.producer_id, header.producer_epoch, NO_SEQUENCE, _NO_OFFSET, 0, -1, _NO_COORDINATOR, NO_TRANSACTION
        )
    if header.is_control:
        try:
            end = transaction_end(window.batch(row)) if header.record_count else None
        except CorruptBatch:
            end = None
        if end is None:
            return
        if header.producer_epoch > before.producer_epoch:  # its sequences begin again
            before = before._replace(last_sequence=NO_SEQUENCE, last_offset=_NO_OFFSET, offset_delta=0)
        producers[header.producer_id] = before._replace(
            producer_epoch=header.producer_epoch,
            timestamp=header.max_timestamp,
            coordinator_epoch=end[1],
            transaction_first_offset=NO_TRANSACTION,
        )
        return
    first = before.transaction_first_offset
    if header.is_transactional and first == NO_TRANSACTION:
        first = header.base_offset
    producers[header.producer_id] = before._replace(
        producer_epoch=header.producer_epoch,
        last_sequence=header.last_sequence,
        last_offset=header.last_offset,
        offset_delta=header.last_offset - header.base_offset,
        timestamp=header.max_timestamp,
        transaction_first_offset=first,
    )


def _row(entry: ProducerEntry, snapshot: int | None, log: PartitionLog, known: Coordinators) -> dict[str, Any]:
    owner = known.get(entry.producer_id)
    return {
        "topic": log.topic,
        "partition": log.partition,
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_offset": entry.last_offset,
        "last_timestamp": timestamp_us(entry.timestamp),
        "coordinator_epoch": entry.coordinator_epoch,
        "transaction_first_offset": entry.transaction_first_offset if entry.has_open_transaction else None,
        "snapshot_offset": snapshot,
        "transactional_id": None if owner is None else owner.transactional_id,
    }
