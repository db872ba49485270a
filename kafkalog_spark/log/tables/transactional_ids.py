"""Rows of the table `transactional_ids`, from a partition of __transaction_state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.layout import NO_PRODUCER_ID
from kafkalog_spark.format.messages.internal import message
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.internal_topic_records import Entry, committed_records, latest_entries
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.table import TransactionalId
from kafkalog_spark.log.tables.timestamps import timestamp_us

_TRANSACTION_KEY, _TRANSACTION_VALUE = message("TransactionLogKey"), message("TransactionLogValue")

_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""Names by number (Kafka: `TransactionState`)."""


def transactional_ids_of_unit(unit: OpenUnit) -> Batches:
    """Return the rows of the table `transactional_ids`."""
    return unit.batches(transactional_id_rows(unit.log, history=unit.query.history))


def current_states(log: PartitionLog) -> list[TransactionalId]:
    """Return the latest state of each transactional ID whose record can be decoded."""
    return [entry.value for entry in latest_entries(_transaction_entries(log)) if entry.value is not None]


def _transaction_entries(log: PartitionLog) -> Iterator[Entry]:
    """Yield the records. The key is a transactional ID, the value a TransactionalId."""
    for offset, key, value in committed_records(log):
        name = None
        try:
            name = _TRANSACTION_KEY.decode(key or b"", "a key of __transaction_state").transactional_id
            yield Entry(offset, name, None if value is None else _transactional_id(name, value))
        except (CorruptLog, UnsupportedFormat) as error:
            yield Entry(offset, name, None, error.what)


def _transactional_id(name: str, data: bytes) -> TransactionalId:
    """Decode the value of a record. Raises CorruptLog, UnsupportedFormat for an unknown version or state."""
    described = f"the record of transactional id {name!r}"
    value = _TRANSACTION_VALUE.decode(data, described)
    state = value.transaction_status
    if not 0 <= state < len(_STATES):
        raise UnsupportedFormat(f"{described} has state {state}, expected 0 to {len(_STATES) - 1}")
    partitions = ((topic, index) for topic, indexes in value.transaction_partitions or () for index in indexes)
    before, after = value.previous_producer_id, value.next_producer_id
    return {
        "transactional_id": name,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "state": _STATES[state],
        "timeout_ms": value.transaction_timeout_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(partitions)],
        "last_update": timestamp_us(value.transaction_last_update_timestamp_ms),
        "started_at": timestamp_us(value.transaction_start_timestamp_ms),
        "previous_producer_id": None if before == NO_PRODUCER_ID else before,
        "next_producer_id": None if after == NO_PRODUCER_ID else after,
    }


def transactional_id_rows(log: PartitionLog, *, history: bool) -> Iterator[dict[str, Any]]:
    """Yield the latest state of each transactional ID; all states with `history`."""
    entries = _transaction_entries(log)
    for entry in entries if history else latest_entries(entries):
        yield entry.source_columns(log.partition) | {"transactional_id": entry.key} | (entry.value or {})
