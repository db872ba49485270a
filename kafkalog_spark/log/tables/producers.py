"""Rows of the table `producers`: the producer state that a broker would have at the end of a partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import NO_SEQUENCE, HeaderColumn
from kafkalog_spark.format.producer_snapshot import NO_TRANSACTION, ProducerEntry
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.repair.damaged_segment import windows_from
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.timestamps import timestamp_us
from kafkalog_spark.log.tables.transactions import Coordinators, marker_of


def producers_of_unit(unit: OpenUnit) -> Batches:
    """Return the rows of the table `producers`."""
    return unit.batches(producer_rows(unit.log, unit.coordinators))


def producer_rows(log: PartitionLog, coordinators: Coordinators) -> Iterator[dict[str, Any]]:
    """Yield the producers known at the end of the partition, in the order of their IDs.

    Raises as `transaction_rows`.
    """
    snapshot, entries = log.latest_snapshot(log.log_end_offset) or (None, [])
    producers = {entry.producer_id: entry for entry in entries}
    start = log.log_start_offset if snapshot is None else snapshot
    for window in windows_from(log, start):
        for row in (window.table[:, HeaderColumn.PRODUCER_ID] >= 0).nonzero()[0].tolist():
            header = window.header(row)
            if header.base_offset >= start and header.magic == 2:
                _update(producers, window, row, header)
    for _, entry in sorted(producers.items()):
        owner = coordinators.get(entry.producer_id)
        columns = {
            "topic": log.topic,
            "partition": log.partition,
            "last_timestamp": timestamp_us(entry.timestamp),
            "snapshot_offset": snapshot,
            "transactional_id": None if owner is None else owner["transactional_id"],
        } | entry._asdict()
        yield columns if entry.has_open_transaction else columns | {"transaction_first_offset": None}


def _update(producers: dict[int, ProducerEntry], window: Window, row: int, header: BatchHeader) -> None:
    """Update the entry of a producer by a batch of records, or by a marker, which ends the transaction.

    Kafka: `ProducerAppendInfo`.
    """
    before = producers.get(header.producer_id)
    if before is None:
        before = ProducerEntry(header.producer_id, header.producer_epoch, NO_SEQUENCE, -1, 0, -1, -1, NO_TRANSACTION)
    if header.is_control:
        marker = marker_of(window, row, header)
        if marker is None:
            return
        _, coordinator_epoch = marker
        if header.producer_epoch > before.producer_epoch:  # sequences start again
            before = before._replace(last_sequence=NO_SEQUENCE, last_offset=-1, offset_delta=0)
        producers[header.producer_id] = before._replace(
            producer_epoch=header.producer_epoch,
            timestamp=header.max_timestamp,
            coordinator_epoch=coordinator_epoch,
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
