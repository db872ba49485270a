"""Rows of the table `transactions` of a partition, from its batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.control_record import transaction_end
from kafkalog_spark.format.layout import NO_TIMESTAMP, ControlType, HeaderColumn
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.repair.damaged_segment import windows_from
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.table import TransactionalId
from kafkalog_spark.log.tables.timestamps import timestamp_us

Coordinators = Mapping[int, TransactionalId]  # by producer ID
_UNFINISHED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States of a coordinator in which the partitions of a transaction still get a marker."""


def transactions_of_unit(unit: OpenUnit) -> Batches:
    """Return the rows of the table `transactions`."""
    return unit.batches(transaction_rows(unit.log, unit.coordinators))


@dataclass(slots=True)
class _Transaction:
    """A transaction in the partition: its first batch, and sums over its batches."""

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
    """Yield the transactions of a partition: ended ones in the order of their markers, then the open ones.

    A marker without a batch in the log gives no row.

    Raises:
        FileNotFoundError: If a segment is removed during the read.
        NotALogDirectory: If a segment cannot be read.
    """
    still_open: dict[int, _Transaction] = {}
    for window in windows_from(log, 0):
        table = window.table
        flags = table[:, HeaderColumn.ATTRIBUTES] & (layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL)
        for row in ((table[:, HeaderColumn.MAGIC] == 2) & (flags != 0)).nonzero()[0].tolist():
            header = window.header(row)
            if not header.is_control:
                still_open.setdefault(header.producer_id, _Transaction(header)).add(header)
                continue
            marker = marker_of(window, row, header)
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


def marker_of(window: Window, row: int, header: BatchHeader) -> tuple[ControlType, int] | None:
    """Return type and coordinator epoch of a transaction marker, None if its record is missing or cannot be decoded."""
    try:
        return transaction_end(window.batch(row)) if header.record_count else None
    except CorruptBatch:
        return None  # kafkalog-check reports it
