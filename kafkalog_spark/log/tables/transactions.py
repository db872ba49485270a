"""The tables `transactions` and `producers` of any partition, from its batches and producer snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.control_record import transaction_end
from kafkalog_spark.format.layout import NO_SEQUENCE, NO_TIMESTAMP, ControlType, HeaderColumn
from kafkalog_spark.format.producer_snapshot import NO_TRANSACTION, ProducerEntry
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import Window
from kafkalog_spark.log.repair.damaged_segment import windows_from
from kafkalog_spark.log.tables.table import TransactionalId, timestamp_us

Coordinators = Mapping[int, TransactionalId]  # by producer id
_UNFINISHED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States of a coordinator: a partition of a transaction in one of these waits for its marker."""


@dataclass(slots=True)
class _Transaction:
    first: BatchHeader
    batches: int = 0
    records: int = 0
    size: int = 0
    last_timestamp: int = NO_TIMESTAMP

    def add(self, header: BatchHeader) -> None:
        self.batches += 1
        self.records += max(header.record_count, 0)
        self.size += header.size
        self.last_timestamp = max(self.last_timestamp, header.max_timestamp)

    def row(self, log: PartitionLog, coordinators: Coordinators, state: str) -> dict[str, Any]:
        first = self.first
        has_base = not first.attributes & layout.ATTRIBUTE_DELETE_HORIZON
        row: dict[str, Any] = {
            "topic": log.topic,
            "partition": log.partition,
            "producer_id": first.producer_id,
            "producer_epoch": first.producer_epoch,
            "state": state,
            "first_offset": first.base_offset,
            "batches": self.batches,
            "records": self.records,
            "size": self.size,
            "started_at": timestamp_us(first.base_timestamp) if has_base else None,
            "last_timestamp": timestamp_us(self.last_timestamp),
        }
        owner = coordinators.get(first.producer_id)
        if owner is not None:
            row |= {"transactional_id": owner["transactional_id"], "coordinator_state": owner["state"]}
            will_end = (
                owner["state"] in _UNFINISHED
                and {"topic": log.topic, "partition": log.partition} in owner["partitions"]
                and owner["producer_epoch"] >= first.producer_epoch
            )
            if state == "open" and not will_end:
                row["state"] = "hanging"
        return row


def transaction_rows(log: PartitionLog, coordinators: Coordinators) -> Iterator[dict[str, Any]]:
    """The transactions of a partition: those that have ended in the order of their markers, then the open ones. A
    marker without a batch in the log is no row. Raises FileNotFoundError when a segment goes away, NotALogDirectory."""
    still_open: dict[int, _Transaction] = {}
    for window in windows_from(log, 0):
        table = window.table
        flags = table[:, HeaderColumn.ATTRIBUTES] & (layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL)
        for row in ((table[:, HeaderColumn.MAGIC] == 2) & (flags != 0)).nonzero()[0].tolist():
            header = window.header(row)
            if not header.is_control:
                still_open.setdefault(header.producer_id, _Transaction(header)).add(header)
                continue
            marker = _marker(window, row, header)
            if marker is None or header.producer_id not in still_open:
                continue
            control_type, coordinator_epoch = marker
            state = "committed" if control_type is ControlType.COMMIT else "aborted"
            yield still_open.pop(header.producer_id).row(log, coordinators, state) | {
                "last_offset": header.base_offset,
                "ended_at": timestamp_us(header.max_timestamp),
                "coordinator_epoch": coordinator_epoch,
            }
    yield from (transaction.row(log, coordinators, "open") for transaction in still_open.values())


def _marker(window: Window, row: int, header: BatchHeader) -> tuple[ControlType, int] | None:
    try:
        return transaction_end(window.batch(row)) if header.record_count else None
    except CorruptBatch:
        return None  # kafkalog-check says so


def producer_rows(log: PartitionLog, coordinators: Coordinators) -> Iterator[dict[str, Any]]:
    """The producers that a broker would know at the partition's end, by id. Raises as transaction_rows."""
    snapshot, entries = log.latest_snapshot(log.log_end_offset) or (None, [])
    producers = {entry.producer_id: entry for entry in entries}
    start = log.log_start_offset if snapshot is None else snapshot
    for window in windows_from(log, start):
        for at in (window.table[:, HeaderColumn.PRODUCER_ID] >= 0).nonzero()[0].tolist():
            header = window.header(at)
            if header.base_offset >= start and header.magic == 2:
                _update(producers, window, at, header)
    for _, entry in sorted(producers.items()):
        owner = coordinators.get(entry.producer_id)
        row = {
            "topic": log.topic,
            "partition": log.partition,
            "last_timestamp": timestamp_us(entry.timestamp),
            "snapshot_offset": snapshot,
            "transactional_id": None if owner is None else owner["transactional_id"],
        } | entry._asdict()
        yield row if entry.has_open_transaction else row | {"transaction_first_offset": None}


def _update(producers: dict[int, ProducerEntry], window: Window, row: int, header: BatchHeader) -> None:
    """Kafka's ProducerAppendInfo: a batch of records, or a marker, which raises the epoch and ends the transaction."""
    before = producers.get(header.producer_id)
    if before is None:
        before = ProducerEntry(header.producer_id, header.producer_epoch, NO_SEQUENCE, -1, 0, -1, -1, NO_TRANSACTION)
    if header.is_control:
        marker = _marker(window, row, header)
        if marker is None:
            return
        if header.producer_epoch > before.producer_epoch:  # its sequences begin again
            before = before._replace(last_sequence=NO_SEQUENCE, last_offset=-1, offset_delta=0)
        producers[header.producer_id] = before._replace(
            producer_epoch=header.producer_epoch,
            timestamp=header.max_timestamp,
            coordinator_epoch=marker[1],
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
