"""The tables `transactional_ids`, from a partition of __transaction_state, and `transactions`, from any partition's
batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, CorruptLog, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, transaction_end
from kafkalog_spark.format.layout import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, ControlType, H
from kafkalog_spark.format.messages import message
from kafkalog_spark.format.producer_snapshot import NO_TRANSACTION, ProducerEntry
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import Window
from kafkalog_spark.log.tables.damage import committed_records, stretches
from kafkalog_spark.log.tables.table import PRODUCERS, TRANSACTIONAL_IDS, TRANSACTIONS, collected, timestamp_us

STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""By number; Kafka's TransactionState."""
UNFINISHED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""A partition of a transaction in one of these waits for its marker."""


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """state: of STATES. Times in ms, -1 where there is none; producer ids -1 for none. partitions: (topic, number)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout: int
    state: str
    partitions: tuple[tuple[str, int], ...]
    last_update: int
    start: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID

    def waits_for(self, topic: str, partition: int, producer_epoch: int) -> bool:
        """True if its coordinator knows of a transaction of that epoch in the partition, and will end it."""
        return (
            self.state in UNFINISHED and (topic, partition) in self.partitions and self.producer_epoch >= producer_epoch
        )


_KEY, _VALUE = message("TransactionLogKey"), message("TransactionLogValue")


def _transactional_id(key: bytes) -> str:
    """Raises CorruptLog; UnsupportedFormat for another version."""
    return str(_KEY.decode(key, "a key of __transaction_state").transactional_id)


def _transaction(transactional_id: str, data: bytes) -> TransactionalId:
    """Decode the coordinator's record. Raises CorruptLog; UnsupportedFormat for another version or state."""
    what = f"the record of transactional id {transactional_id!r}"
    found = _VALUE.decode(data, what)
    state = found.transaction_status
    if not 0 <= state < len(STATES):
        raise UnsupportedFormat(f"{what} has state {state}, expected 0 to {len(STATES) - 1}")
    partitions = ((topic, index) for topic, indexes in found.transaction_partitions or () for index in indexes)
    return TransactionalId(
        transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        STATES[state],
        tuple(sorted(partitions)),
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
        found.previous_producer_id,
        found.next_producer_id,
    )


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
            name = _transactional_id(key or b"")
            yield _Change(offset, name, None if value is None else _transaction(name, value))
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
    """Transactional ids by producer id, from the given partitions of __transaction_state."""
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


# The table `producers`: what a partition knows of each at its end, as a broker does that loads it.

_NO_COORDINATOR = -1
_NO_OFFSET = -1


def producer_rows(log: PartitionLog, columns: tuple[str, ...], known: Coordinators) -> Iterator[pa.RecordBatch]:
    """The producers of a partition, by id. Raises FileNotFoundError when a segment goes away, NotALogDirectory."""
    snapshot, producers = _snapshot(log)
    start = log.log_start_offset if snapshot is None else snapshot
    for window in _windows_from(log, start):
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


def _windows_from(log: PartitionLog, start: int) -> Iterator[Window]:
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
