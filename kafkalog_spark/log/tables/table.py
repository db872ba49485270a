"""The tables beside `records`: columns with name and type, and the unit of work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""As in `records`. What lies outside of what it can hold (year 294,247 and more) is null."""
_LARGEST_MS = (2**63 - 1) // 1000
_ROWS_A_BATCH = 8 << 10  # batch size of tables whose rows are made one by one
TEXT, BOOL, INT, LONG, DOUBLE = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()


@dataclass(frozen=True, slots=True)
class Table:
    """on_demand: columns that are read only where a query names them, because they cost more than the others.
    has_ranges: whether its unit of work is a segment, not a partition, and options for starts and ends narrow it.
    topic: the internal one that it is about; then it has a history, and no subscription chooses."""

    name: str
    columns: Mapping[str, pa.DataType]
    on_demand: tuple[str, ...] = ()
    has_ranges: bool = False
    topic: str | None = None

    @property
    def of_topics(self) -> bool:
        return self.topic is None

    @property
    def has_history(self) -> bool:
        return self.topic is not None

    @property
    def default_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.on_demand)

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """Raises OptionError for a name that is not a column."""
        for name in columns:
            if name not in self.columns:
                raise OptionError(
                    f"the table '{self.name}' has no column '{name}'", hint=f"its columns are {', '.join(self.columns)}"
                )
        return pa.schema([(name, self.columns[name]) for name in columns])

    def batches(self, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """These columns of rows, null where a row has no value of a name; timestamps are in microseconds."""
        schema, left = self.schema(columns), iter(rows)
        while chunk := list(islice(left, _ROWS_A_BATCH)):
            yield pa.RecordBatch.from_pylist(chunk, schema)


# What the columns mean is said in README.md beside this, whose names and types a test holds against these declarations.
# Every column can be null, and in rows about damage most are. Columns are called what Kafka calls them.

_EPOCHS = pa.list_(pa.struct([("epoch", INT), ("start_offset", LONG)]))
_PARTITIONS = pa.list_(pa.struct([("topic", TEXT), ("partition", INT)]))
_MEMBERS = pa.list_(
    pa.struct(
        [
            *((name, TEXT) for name in ("member_id", "group_instance_id", "client_id", "client_host")),
            *((name, INT) for name in ("rebalance_timeout_ms", "session_timeout_ms")),
        ]
    )
)
_PARTITION = {"topic": TEXT, "partition": INT}
_SOURCE = {"source_partition": INT, "source_offset": LONG, "deleted": BOOL, "error": TEXT}
"""The record of an internal topic that a row comes from: whether it is a tombstone, and why it cannot be read."""

BATCHES = Table(
    "batches",
    {
        **_PARTITION, "segment": LONG, "position": LONG, "size": LONG, "base_offset": LONG, "last_offset": LONG,
        "record_count": INT, "magic": INT, "codec": TEXT, "timestamp_type": TEXT, "base_timestamp": TIMESTAMP,
        "max_timestamp": TIMESTAMP, "delete_horizon": TIMESTAMP, "producer_id": LONG, "producer_epoch": INT,
        "base_sequence": INT, "last_sequence": INT, "transactional": BOOL, "control": BOOL, "leader_epoch": INT,
        "crc_stored": LONG, "crc_computed": LONG, "valid": BOOL, "error": TEXT, "file": TEXT, "uncompressed_size": LONG,
        "compression_ratio": DOUBLE,
    },
    on_demand=("file", "uncompressed_size", "compression_ratio"),
    has_ranges=True,
)  # fmt: skip
SEGMENTS = Table(
    "segments",
    {
        **_PARTITION, "segment": LONG, "state": TEXT, "file": TEXT, "size": LONG, "closed": BOOL, "end_offset": LONG,
        "batches": LONG, "records": LONG, "first_timestamp": TIMESTAMP, "max_timestamp": TIMESTAMP,
        "offset_index_entries": INT, "offset_index_wrong": INT, "time_index_entries": INT, "time_index_wrong": INT,
        "aborted_transactions": INT, "has_snapshot": BOOL, "damaged_bytes": LONG, "error": TEXT,
    },
    has_ranges=True,
)  # fmt: skip
PARTITIONS = Table(
    "partitions",
    {
        **_PARTITION, "directory": TEXT, "topic_id": TEXT, "segments": INT, "size": LONG, "log_start_offset": LONG,
        "last_stable_offset": LONG, "log_end_offset": LONG, "high_watermark": LONG, "recovery_point": LONG,
        "leader_epochs": _EPOCHS, "clean_shutdown": BOOL, "error": TEXT,
    },
)  # fmt: skip
CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    {
        "group_id": TEXT, **_PARTITION, "offset": LONG, "leader_epoch": INT, "metadata": TEXT,
        "committed_at": TIMESTAMP, "expires_at": TIMESTAMP, "topic_id": TEXT, "log_end_offset": LONG, "lag": LONG,
        **_SOURCE,
    },
    topic=OFFSETS_TOPIC,
)  # fmt: skip
GROUPS = Table(
    "groups",
    {
        "group_id": TEXT, "kind": TEXT, "generation": INT, "protocol_type": TEXT, "protocol": TEXT, "leader": TEXT,
        "state_since": TIMESTAMP, "members": _MEMBERS, "member_count": INT, "committed_partitions": INT, "lag": LONG,
        **_SOURCE,
    },
    topic=OFFSETS_TOPIC,
)  # fmt: skip
TRANSACTIONS = Table(
    "transactions",
    {
        **_PARTITION, "producer_id": LONG, "producer_epoch": INT, "state": TEXT, "first_offset": LONG,
        "last_offset": LONG, "batches": LONG, "records": LONG, "size": LONG, "started_at": TIMESTAMP,
        "last_timestamp": TIMESTAMP, "ended_at": TIMESTAMP, "coordinator_epoch": INT, "transactional_id": TEXT,
        "coordinator_state": TEXT,
    },
)  # fmt: skip
TRANSACTIONAL_IDS = Table(
    "transactional_ids",
    {
        "transactional_id": TEXT, "producer_id": LONG, "producer_epoch": INT, "state": TEXT, "timeout_ms": INT,
        "partitions": _PARTITIONS, "last_update": TIMESTAMP, "started_at": TIMESTAMP, "previous_producer_id": LONG,
        "next_producer_id": LONG, **_SOURCE,
    },
    topic=TRANSACTION_TOPIC,
)  # fmt: skip
PRODUCERS = Table(
    "producers",
    {
        **_PARTITION, "producer_id": LONG, "producer_epoch": INT, "last_sequence": INT, "last_offset": LONG,
        "last_timestamp": TIMESTAMP, "coordinator_epoch": INT, "transaction_first_offset": LONG,
        "snapshot_offset": LONG, "transactional_id": TEXT,
    },
)  # fmt: skip
FINDINGS = Table(
    "findings",
    {
        **_PARTITION, "severity": TEXT, "path": TEXT, "position": LONG, "offset": LONG, "what": TEXT, "expected": TEXT,
        "got": TEXT,
    },
)  # fmt: skip

RECORDS = "records"  # the table that a read is of by default: record_schema

TABLES = {
    table.name: table
    for table in (
        BATCHES, SEGMENTS, PARTITIONS, CONSUMER_OFFSETS, GROUPS, TRANSACTIONS, TRANSACTIONAL_IDS, PRODUCERS, FINDINGS,
    )
}  # fmt: skip


def timestamps(ms: npt.NDArray[np.int64], known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Milliseconds as a column; null for -1, for what is not `known`, and for what microseconds cannot hold."""
    good = (ms != NO_TIMESTAMP) & (ms >= -_LARGEST_MS) & (ms <= _LARGEST_MS)
    if known is not None:
        good &= known
    return pa.array(np.where(good, ms, 0) * 1000, mask=~good).cast(TIMESTAMP)


def timestamp_us(ms: int) -> int | None:
    """`timestamps` of one value."""
    return ms * 1000 if ms != NO_TIMESTAMP and abs(ms) <= _LARGEST_MS else None


def constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)
