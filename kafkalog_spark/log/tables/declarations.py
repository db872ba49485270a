"""Declarations of the metadata tables: the columns, row function, unit and needs of each table.

README.md of this directory describes the columns; a test compares names and types. Columns have Kafka's names. Every
column may be null; in rows about damage, most are.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.log.tables.table import Need, Table, TableQuery, Unit
from kafkalog_spark.log.tables.timestamps import TIMESTAMP

TEXT, BOOL, INT, LONG, DOUBLE = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()
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
"""Columns about the record of an internal topic that a row comes from. `deleted` is true for a tombstone; `error` is
the reason why the record cannot be decoded."""

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
    rows="batches.batches_of_unit",
    unit=Unit.SEGMENT,
    on_demand=("file", "uncompressed_size", "compression_ratio"),
)  # fmt: skip
SEGMENTS = Table(
    "segments",
    {
        **_PARTITION, "segment": LONG, "state": TEXT, "file": TEXT, "size": LONG, "closed": BOOL, "end_offset": LONG,
        "batches": LONG, "records": LONG, "first_timestamp": TIMESTAMP, "max_timestamp": TIMESTAMP,
        "offset_index_entries": INT, "offset_index_wrong": INT, "time_index_entries": INT, "time_index_wrong": INT,
        "aborted_transactions": INT, "has_snapshot": BOOL, "damaged_bytes": LONG, "error": TEXT,
    },
    rows="segments.segments_of_unit",
    unit=Unit.SEGMENT,
    has_left_overs=True,
)  # fmt: skip
PARTITIONS = Table(
    "partitions",
    {
        **_PARTITION, "directory": TEXT, "topic_id": TEXT, "segments": INT, "size": LONG, "log_start_offset": LONG,
        "last_stable_offset": LONG, "log_end_offset": LONG, "high_watermark": LONG, "recovery_point": LONG,
        "leader_epochs": _EPOCHS, "clean_shutdown": BOOL, "error": TEXT,
    },
    rows="partitions.partition_of_unit",
)  # fmt: skip
CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    {
        "group_id": TEXT, **_PARTITION, "offset": LONG, "leader_epoch": INT, "metadata": TEXT,
        "committed_at": TIMESTAMP, "expires_at": TIMESTAMP, "topic_id": TEXT, "log_end_offset": LONG, "lag": LONG,
        **_SOURCE,
    },
    rows="consumer_groups.consumer_offsets_of_unit",
    needs={Need.LOG_ENDS: ("log_end_offset", "lag")},
    topic=OFFSETS_TOPIC,
)  # fmt: skip
GROUPS = Table(
    "groups",
    {
        "group_id": TEXT, "kind": TEXT, "generation": INT, "protocol_type": TEXT, "protocol": TEXT, "leader": TEXT,
        "state_since": TIMESTAMP, "members": _MEMBERS, "member_count": INT, "committed_partitions": INT, "lag": LONG,
        **_SOURCE,
    },
    rows="consumer_groups.groups_of_unit",
    needs={Need.LOG_ENDS: ("lag",)},
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
    rows="transactions.transactions_of_unit",
    needs={Need.COORDINATORS: ("state", "transactional_id", "coordinator_state")},
)  # fmt: skip
TRANSACTIONAL_IDS = Table(
    "transactional_ids",
    {
        "transactional_id": TEXT, "producer_id": LONG, "producer_epoch": INT, "state": TEXT, "timeout_ms": INT,
        "partitions": _PARTITIONS, "last_update": TIMESTAMP, "started_at": TIMESTAMP, "previous_producer_id": LONG,
        "next_producer_id": LONG, **_SOURCE,
    },
    rows="transactional_ids.transactional_ids_of_unit",
    topic=TRANSACTION_TOPIC,
)  # fmt: skip
PRODUCERS = Table(
    "producers",
    {
        **_PARTITION, "producer_id": LONG, "producer_epoch": INT, "last_sequence": INT, "last_offset": LONG,
        "last_timestamp": TIMESTAMP, "coordinator_epoch": INT, "transaction_first_offset": LONG,
        "snapshot_offset": LONG, "transactional_id": TEXT,
    },
    rows="producers.producers_of_unit",
    needs={Need.COORDINATORS: ("transactional_id",)},
)  # fmt: skip
FINDINGS = Table(
    "findings",
    {
        **_PARTITION, "severity": TEXT, "path": TEXT, "position": LONG, "offset": LONG, "what": TEXT, "expected": TEXT,
        "got": TEXT,
    },
    rows="findings.findings_of_unit",
    needs={Need.LOG_DIRS: ()},
    has_log_dir_rows=True,
)  # fmt: skip

RECORDS = "records"
"""Name of the table that is read by default. Its columns are in `record_schema`."""

TABLES = {
    table.name: table
    for table in (
        BATCHES, SEGMENTS, PARTITIONS, CONSUMER_OFFSETS, GROUPS, TRANSACTIONS, TRANSACTIONAL_IDS, PRODUCERS, FINDINGS,
    )
}  # fmt: skip


def table_query(
    name: str, columns: Iterable[str] | None = None, *, of_topics: bool = False, history: bool = False
) -> TableQuery:
    """Return a query of a table.

    Args:
        name: Name of the table.
        columns: Names, in the order of the result; None for all but those that must be named.
        of_topics: True if the query is narrowed to topics.
        history: Every record of an internal topic instead of the latest one of each key.

    Raises:
        OptionError: For an unknown table or column, and for a history or topics if the table has none.
    """
    table = TABLES.get(name)
    if table is None and name == RECORDS:
        raise OptionError(
            f"the table '{name}' has no history", hint="its records are the history, as far as compaction has left it"
        )
    if table is None:
        raise OptionError(f"there is no table '{name}'", hint=f"there are {', '.join((RECORDS, *TABLES))}")
    if history and table.topic is None:
        with_history = ", ".join(table.name for table in TABLES.values() if table.topic is not None)
        raise OptionError(f"the table '{name}' has no history", hint=f"these have one: {with_history}")
    if of_topics and table.topic is not None:
        raise OptionError(
            f"the table '{name}' cannot be narrowed to topics", hint="leave the topic out and filter its rows"
        )
    chosen = table.default_columns if columns is None else tuple(columns)
    table.schema(chosen)
    return TableQuery(table, chosen, history)
