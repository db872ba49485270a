"""The tables `transactional_ids`, from a partition of __transaction_state, and `transactions`, from any partition's
batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, CorruptLog, UnsupportedFormat
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.batch_header import BatchHeader
from kafkalog_spark.log.format.control_record import transaction_end
from kafkalog_spark.log.format.layout import NO_PRODUCER_ID, NO_TIMESTAMP, ControlType, H
from kafkalog_spark.log.format.transaction_records import (
    TransactionalId,
    parse_transaction,
    parse_transactional_id,
)
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.arrow_rows import collected, timestamp_us
from kafkalog_spark.log.tables.columns import TRANSACTIONAL_IDS, TRANSACTIONS
from kafkalog_spark.log.tables.damage import stretches
from kafkalog_spark.log.tables.internal_records import committed_records

Coordinators = Mapping[int, TransactionalId]
"""By producer id."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A record of __transaction_state. state: None for a tombstone, or with an error."""

    offset: int
    transactional_id: str | None
    state: TransactionalId | None
    error: str | None = None


def _changes(log: PartitionLog) -> Iterator[_Change]:
    for offset, key, value in committed_records(log):
        name = None
        try:
            name = parse_transactional_id(key or b"")
            yield _Change(offset, name, None if value is None else parse_transaction(name, value))
        except (CorruptLog, UnsupportedFormat) as error:
            yield _Change(offset, name, None, error.what)


def _latest(changes: Iterable[_Change]) -> list[_Change]:
    """Compaction, applied."""
    last: dict[object, _Change] = {}
    for change in changes:
        key = change.offset if change.transactional_id is None else change.transactional_id
        last.pop(key, None)
        if change.state is not None or change.error is not None:
            last[key] = change
    return list(last.values())


def coordinators(logs: Iterable[PartitionLog]) -> dict[int, TransactionalId]:
    """What the given partitions of __transaction_state say now, by producer id."""
    states = [change.state for log in logs for change in _latest(_changes(log)) if change.state is not None]
    return {state.producer_id: state for state in states}


def transactional_id_rows(log: PartitionLog, columns: tuple[str, ...], *, history: bool) -> Iterator[pa.RecordBatch]:
    """The latest state of each transactional id, or all of them. Raises as committed_records."""
    changes = _changes(log) if history else _latest(_changes(log))
    rows = (_state_row(change, log.partition) for change in changes)
    yield from collected(TRANSACTIONAL_IDS.schema(columns), ([row.get(name) for name in columns] for row in rows))


def _state_row(change: _Change, source: int) -> dict[str, Any]:
    row = {
        "transactional_id": change.transactional_id,
        "source_partition": source,
        "source_offset": change.offset,
        "deleted": change.state is None and change.error is None,
        "error": change.error,
    }
    state = change.state
    if state is None:
        return row
    return row | {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.state,
        "timeout_ms": state.timeout,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in state.partitions],
        "last_update": timestamp_us(state.last_update),
        "started_at": timestamp_us(state.start),
        "previous_producer_id": None if state.previous_producer_id == NO_PRODUCER_ID else state.previous_producer_id,
        "next_producer_id": None if state.next_producer_id == NO_PRODUCER_ID else state.next_producer_id,
    }


# ---- transactions of a partition


@dataclass(slots=True)
class _Transaction:
    producer_id: int
    producer_epoch: int
    first_offset: int
    started: int
    batches: int = 0
    records: int = 0
    size: int = 0
    last_timestamp: int = NO_TIMESTAMP

    @classmethod
    def of(cls, header: BatchHeader) -> _Transaction:
        has_base = not header.attributes & layout.ATTRIBUTE_DELETE_HORIZON
        started = header.base_timestamp if has_base else NO_TIMESTAMP
        return cls(header.producer_id, header.producer_epoch, header.base_offset, started)

    def take(self, header: BatchHeader) -> None:
        self.batches += 1
        self.records += max(header.record_count, 0)
        self.size += header.size
        self.last_timestamp = max(self.last_timestamp, header.max_timestamp)

    def row(self) -> dict[str, Any]:
        return {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "first_offset": self.first_offset,
            "batches": self.batches,
            "records": self.records,
            "size": self.size,
            "started_at": timestamp_us(self.started),
            "last_timestamp": timestamp_us(self.last_timestamp),
        }


def transaction_rows(log: PartitionLog, columns: tuple[str, ...], known: Coordinators) -> Iterator[pa.RecordBatch]:
    """The transactions of a partition: those that have ended in the order of their markers, then the open ones.

    A marker whose transaction has no batch in the log (an empty one, or one that was deleted) is no row. Raises
    FileNotFoundError when a segment goes away, NotALogDirectory.
    """
    rows = (_with_owner(row, log, known) for row in _transactions(log))
    yield from collected(TRANSACTIONS.schema(columns), ([row.get(name) for name in columns] for row in rows))


def _transactions(log: PartitionLog) -> Iterator[dict[str, Any]]:
    going_on: dict[int, _Transaction] = {}
    for window in _windows(log):
        table = window.table
        flags = table[:, H.ATTRIBUTES] & (layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL)
        for row in ((table[:, H.MAGIC] == 2) & (flags != 0)).nonzero()[0].tolist():
            header = window.header(row)
            if not header.is_control:
                going_on.setdefault(header.producer_id, _Transaction.of(header)).take(header)
                continue
            ended = going_on.get(header.producer_id)
            marker = _marker(window, row) if header.record_count else None
            if marker is None or ended is None:
                continue
            kind, coordinator_epoch = marker
            del going_on[header.producer_id]
            yield ended.row() | {
                "state": "committed" if kind is ControlType.COMMIT else "aborted",
                "last_offset": header.base_offset,
                "ended_at": timestamp_us(header.max_timestamp),
                "coordinator_epoch": coordinator_epoch,
            }
    yield from (transaction.row() | {"state": "open"} for transaction in going_on.values())


def _windows(log: PartitionLog) -> Iterator[Window]:
    for index in range(len(log.segments)):
        with log.open_segment(index) as file:
            yield from (found for found in stretches(file, 0, log.recovery_point) if isinstance(found, Window))


def _marker(window: Window, row: int) -> tuple[ControlType, int] | None:
    try:
        return transaction_end(window.batch(row))
    except CorruptBatch:
        return None  # kafkalog-check says so


def _with_owner(row: dict[str, Any], log: PartitionLog, known: Coordinators) -> dict[str, Any]:
    row |= {"topic": log.topic, "partition": log.partition}
    owner = known.get(row["producer_id"])
    if owner is None:
        return row
    row |= {"transactional_id": owner.transactional_id, "coordinator_state": owner.state}
    if row["state"] == "open" and not owner.waits_for(log.topic, log.partition, row["producer_epoch"]):
        row["state"] = "hanging"
    return row
