"""Definition of a table: columns with name, type and meaning, and the unit of work (segment, partition, directory)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import NO_TIMESTAMP

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""As in `records`. What lies outside of what it can hold (year 294,247 and more) is null."""
_LARGEST_MS = (2**63 - 1) // 1000
_ROWS_A_BATCH = 8 << 10
"""Of tables whose rows are made one by one."""
TEXT, BOOL, INT, LONG, DOUBLE = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()


class Unit(Enum):
    """Unit of work of a table, and the field that range options apply to."""

    SEGMENT = "segment"
    PARTITION = "partition"
    OFFSETS_TOPIC = "partition of __consumer_offsets"
    TRANSACTION_TOPIC = "partition of __transaction_state"


@dataclass(frozen=True, slots=True)
class Column:
    """asked: read only where a query names it, because it costs more than the others."""

    name: str
    type: pa.DataType
    meaning: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. has_ranges: whether the options for starts and ends narrow it; has_history: whether `history` does."""

    name: str
    meaning: str
    unit: Unit
    columns: tuple[Column, ...]
    has_ranges: bool = False
    has_history: bool = False

    @property
    def of_topics(self) -> bool:
        """True if a subscription chooses what it is about."""
        return self.unit in (Unit.SEGMENT, Unit.PARTITION)

    @property
    def default_columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if not column.asked)

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """The Arrow schema of these columns, in this order. Raises OptionError for a name that is not a column."""
        by_name = {column.name: column for column in self.columns}
        for name in columns:
            if name not in by_name:
                raise OptionError(
                    f"the table '{self.name}' has no column '{name}'", hint=f"its columns are {', '.join(by_name)}"
                )
        return pa.schema([pa.field(name, by_name[name].type) for name in columns])

    def batches(self, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """These columns of rows, as RecordBatches; none for no rows. A row is null where it has no value of a name;
        timestamps are in microseconds."""
        schema, left = self.schema(columns), iter(rows)
        while chunk := list(islice(left, _ROWS_A_BATCH)):
            arrays = [pa.array([row.get(field.name) for row in chunk], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# Every table but `records`: its columns, their Arrow types and what they mean, in one place.
#
# The schemas, the option `columns` and docs/tables.md are made of these declarations. Every column can be null:
# where it says nothing of when, it is null in rows about damage only. Columns are called what Kafka calls them.

_EPOCHS = pa.list_(pa.struct([pa.field("epoch", INT), pa.field("start_offset", LONG)]))
_PARTITIONS = pa.list_(pa.struct([pa.field("topic", TEXT), pa.field("partition", INT)]))
_MEMBERS = pa.list_(
    pa.struct(
        [
            pa.field("member_id", TEXT),
            pa.field("group_instance_id", TEXT),
            pa.field("client_id", TEXT),
            pa.field("client_host", TEXT),
            pa.field("rebalance_timeout_ms", INT),
            pa.field("session_timeout_ms", INT),
        ]
    )
)


def _where(*more: Column) -> tuple[Column, ...]:
    return (Column("topic", TEXT, "Topic."), Column("partition", INT, "Partition."), *more)


_SOURCE = (
    Column("source_partition", INT, "Partition of the internal topic that the row comes from."),
    Column("source_offset", LONG, "Offset of its record there."),
    Column("deleted", BOOL, "The record is a tombstone. Only with `history`, true in some rows."),
    Column("error", TEXT, "Why the record cannot be read; null where it can."),
)

BATCHES = Table(
    "batches",
    "Every record batch (of magic 0 and 1: every message, or wrapper of compressed messages), and every stretch of "
    "bytes that is none.",
    Unit.SEGMENT,
    _where(
        Column("segment", LONG, "Base offset of the segment: its file's name."),
        Column("position", LONG, "First byte in the .log file."),
        Column("size", LONG, "Bytes, with the header; of damage, up to the next good batch or the end of the file."),
        Column("base_offset", LONG, "First offset; null for a wrapper, whose header does not say it."),
        Column("last_offset", LONG, "Last offset."),
        Column("record_count", INT, "Records; null for a wrapper. Fewer than offsets after compaction."),
        Column("magic", INT, "Format: 2, or 0 and 1 before Kafka 0.11."),
        Column("codec", TEXT, "`none`, `gzip`, `snappy`, `lz4`, `zstd`."),
        Column("timestamp_type", TEXT, "`CreateTime` or `LogAppendTime`; null for magic 0, which has no timestamps."),
        Column(
            "base_timestamp",
            TIMESTAMP,
            "Of the first record; null where `delete_horizon` takes its place in the header.",
        ),
        Column("max_timestamp", TIMESTAMP, "Largest of its records. Null where there is none (-1)."),
        Column("delete_horizon", TIMESTAMP, "When the cleaner may remove its tombstones and markers; null without."),
        Column("producer_id", LONG, "-1: no idempotent producer."),
        Column("producer_epoch", INT, "-1 without a producer id."),
        Column("base_sequence", INT, "Sequence of the first record; -1 without."),
        Column("last_sequence", INT, "Sequence of the last one; -1 without. 0 follows 2147483647."),
        Column("transactional", BOOL, "Part of a transaction: its records, or the marker that ends it."),
        Column("control", BOOL, "Holds a control record (a transaction marker, a leader change) and no others."),
        Column("leader_epoch", INT, "Leader epoch in which it was appended; -1 before magic 2."),
        Column("crc_stored", LONG, "What the header says: CRC-32C, of magic 0 and 1 CRC-32."),
        Column("crc_computed", LONG, "What its bytes give; null for damage that has no header."),
        Column("valid", BOOL, "Whole, of a known format, and both CRCs are equal."),
        Column("error", TEXT, "What is wrong; null for a valid batch."),
        Column("file", TEXT, "Path of the .log file.", asked=True),
        Column("uncompressed_size", LONG, "Bytes of its records when decompressed.", asked=True),
        Column(
            "compression_ratio",
            DOUBLE,
            "`uncompressed_size` to the bytes that its records take in the file.",
            asked=True,
        ),
    ),
    has_ranges=True,
)

SEGMENTS = Table(
    "segments",
    "Every segment, with what its indexes are worth, and every file of a segment that waits for its deletion or its "
    "place (`.deleted`, `.cleaned`, `.swap`).",
    Unit.SEGMENT,
    _where(
        Column("segment", LONG, "Base offset: its file's name."),
        Column("state", TEXT, "`live`; or `deleted`, `cleaned`, `swap`, of which only `file` and `size` are known."),
        Column("file", TEXT, "Path of the .log file."),
        Column("size", LONG, "Bytes of the .log file."),
        Column("closed", BOOL, "A later segment follows: nothing is appended here any more."),
        Column("end_offset", LONG, "After its last good batch."),
        Column("batches", LONG, "Good batches."),
        Column("records", LONG, "Records in them; null where a wrapper does not say how many it has."),
        Column("first_timestamp", TIMESTAMP, "Base timestamp of its first batch."),
        Column("max_timestamp", TIMESTAMP, "Largest of its batches."),
        Column("offset_index_entries", INT, "Entries of the .index; null without the file."),
        Column("offset_index_wrong", INT, "Entries that do not lead to their offset, and faults of the file itself."),
        Column("time_index_entries", INT, "Entries of the .timeindex; null without the file."),
        Column("time_index_wrong", INT, "Entries that do not tell the largest timestamp up to their offset."),
        Column("aborted_transactions", INT, "Entries of the .txnindex; null without the file, or where it is damaged."),
        Column("has_snapshot", BOOL, "Whether a producer snapshot was taken at its base offset."),
        Column("damaged_bytes", LONG, "Bytes that are in no good batch; a torn tail's too."),
        Column("error", TEXT, "The first thing wrong in the .log file; null where nothing is."),
    ),
    has_ranges=True,
)

PARTITIONS = Table(
    "partitions",
    "Every partition: where it begins and ends, and what the files alongside the log say of it.",
    Unit.PARTITION,
    _where(
        Column("directory", TEXT, "Where it lies."),
        Column("topic_id", TEXT, "Of partition.metadata, 22 characters; null without."),
        Column("segments", INT, "Live segments."),
        Column("size", LONG, "Bytes of their .log files."),
        Column("log_start_offset", LONG, "First offset that readers may see."),
        Column("last_stable_offset", LONG, "Where a read_committed consumer stops; null where damage hides it."),
        Column(
            "log_end_offset",
            LONG,
            "The offset that the next record gets; past damage, that after the last good batch.",
        ),
        Column("high_watermark", LONG, "In replication-offset-checkpoint; null without. Up to 5 s old."),
        Column("recovery_point", LONG, "In recovery-point-offset-checkpoint: flushed up to here; null without."),
        Column("leader_epochs", _EPOCHS, "leader-epoch-checkpoint."),
        Column("clean_shutdown", BOOL, "Whether its log directory says that the broker was stopped cleanly."),
        Column("error", TEXT, "The first damage that was met while the columns above were found out; null without."),
    ),
)

CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    "Committed offsets of consumer groups, from `__consumer_offsets`: the latest of each group and partition. With "
    "`history=true` every commit that is still there, in the order of the log. Those of a transaction count when it is "
    "committed.",
    Unit.OFFSETS_TOPIC,
    (
        Column("group_id", TEXT, "Group."),
        *_where(),
        Column("offset", LONG, "The next offset that the group reads; null for a tombstone."),
        Column("leader_epoch", INT, "Of the last record it has read; -1 where it did not say."),
        Column("metadata", TEXT, "What the client added."),
        Column("committed_at", TIMESTAMP, "When the broker took the commit."),
        Column("expires_at", TIMESTAMP, "Where the client asked for it (before Kafka 2.1); else null."),
        Column("topic_id", TEXT, "Of the topic, 22 characters; null before Kafka 4.2."),
        Column("log_end_offset", LONG, "Of the partition, where one of these directories holds it; else null."),
        Column("lag", LONG, "`log_end_offset` less `offset`; null without either."),
        *_SOURCE,
    ),
    has_history=True,
)

GROUPS = Table(
    "groups",
    "Groups, from `__consumer_offsets`: what each is now. With `history=true` every generation that is still there.",
    Unit.OFFSETS_TOPIC,
    (
        Column("group_id", TEXT, "Group."),
        Column(
            "kind", TEXT, "`classic`, `consumer` (KIP-848), `share`, `streams`; null for a group that only commits."
        ),
        Column("generation", INT, "Generation; of newer protocols the group epoch."),
        Column(
            "protocol_type", TEXT, "`consumer` for consumers; of classic groups, as what follows down to `members`."
        ),
        Column("protocol", TEXT, "Assignor that the members agreed upon; null without members."),
        Column("leader", TEXT, "Member id of the leader; null without members."),
        Column("state_since", TIMESTAMP, "When it got into its state."),
        Column("members", _MEMBERS, "Members, when the record was written."),
        Column("member_count", INT, "How many, of newer protocols too."),
        Column("committed_partitions", INT, "Partitions with a committed offset; null with `history`."),
        Column("lag", LONG, "Sum over those partitions that these directories hold; null with `history`."),
        *_SOURCE,
    ),
    has_history=True,
)

TRANSACTIONAL_IDS = Table(
    "transactional_ids",
    "What transaction coordinators know, from `__transaction_state`: the latest of each transactional id. With "
    "`history=true` every change that is still there.",
    Unit.TRANSACTION_TOPIC,
    (
        Column("transactional_id", TEXT, "Transactional id."),
        Column("producer_id", LONG, "Producer id; null for a tombstone, as what follows down to `next_producer_id`."),
        Column("producer_epoch", INT, "Its epoch."),
        Column(
            "state",
            TEXT,
            "`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`, ...",
        ),
        Column("timeout_ms", INT, "transaction.timeout.ms of the producer."),
        Column("partitions", _PARTITIONS, "Partitions of the transaction."),
        Column("last_update", TIMESTAMP, "Of the state."),
        Column("started_at", TIMESTAMP, "Of the transaction; null without."),
        Column("previous_producer_id", LONG, "Null without."),
        Column("next_producer_id", LONG, "Null without."),
        *_SOURCE,
    ),
    has_history=True,
)

TRANSACTIONS = Table(
    "transactions",
    "Every transaction in every partition, from batch headers and markers.",
    Unit.PARTITION,
    _where(
        Column("producer_id", LONG, "Producer id."),
        Column("producer_epoch", INT, "Epoch of its first batch."),
        Column("state", TEXT, "`committed`, `aborted`, `open`; `hanging`: open, and its coordinator has forgotten it."),
        Column("first_offset", LONG, "Of its first record here."),
        Column("last_offset", LONG, "Of its marker; null while it is open."),
        Column("batches", LONG, "Batches of records here, without the marker."),
        Column("records", LONG, "Records here; fewer than were written after compaction."),
        Column("size", LONG, "Bytes of those batches."),
        Column("started_at", TIMESTAMP, "Base timestamp of its first batch; null where that is a delete horizon."),
        Column("last_timestamp", TIMESTAMP, "Largest timestamp of its records."),
        Column("ended_at", TIMESTAMP, "Timestamp of the marker; null while it is open."),
        Column("coordinator_epoch", INT, "In the marker; null while it is open."),
        Column("transactional_id", TEXT, "Whose it is, where these directories hold its `__transaction_state`."),
        Column("coordinator_state", TEXT, "State of that transactional id now."),
    ),
)

PRODUCERS = Table(
    "producers",
    "What every partition knows of its idempotent and transactional producers at its end, as a broker that loads it: "
    "from the latest producer snapshot, and the batches after it.",
    Unit.PARTITION,
    _where(
        Column("producer_id", LONG, "Producer id."),
        Column("producer_epoch", INT, "Its latest epoch."),
        Column("last_sequence", INT, "Of its last batch of records; -1 when only markers are left."),
        Column("last_offset", LONG, "Of its last batch of records; -1 when only markers are left."),
        Column("last_timestamp", TIMESTAMP, "Largest of its last batch, or the marker's."),
        Column("coordinator_epoch", INT, "Of its last marker; -1 without."),
        Column("transaction_first_offset", LONG, "Where its open transaction begins; null when none is open."),
        Column("snapshot_offset", LONG, "Of the producer snapshot that was read; null when there was none to read."),
        Column("transactional_id", TEXT, "Whose it is, where these directories hold its `__transaction_state`."),
    ),
)

FINDINGS = Table(
    "findings",
    "What `kafkalog-check` reports.",
    Unit.PARTITION,
    _where(
        Column("severity", TEXT, "`error`: no broker leaves such a thing. `note`: brokers do, and it does no harm."),
        Column("path", TEXT, "File or directory that it is about."),
        Column("position", LONG, "Byte in it; null where it has none."),
        Column("offset", LONG, "Kafka's; null where it has none."),
        Column("what", TEXT, "What was found."),
        Column("expected", TEXT, "What should be there; null where `what` says it."),
        Column("got", TEXT, "What is there."),
    ),
)

RECORDS = "records"
"""The table that a read is of by default: record_schema."""

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
    """A timestamp in ms as the us of a timestamp column; None for -1."""
    return ms * 1000 if ms != NO_TIMESTAMP and abs(ms) <= _LARGEST_MS else None


def constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """A column that says the same everywhere."""
    return pa.repeat(pa.scalar(value, kind), rows)
