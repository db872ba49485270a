"""The tables beside `records`: columns with name and type; and a query of one, divided into pieces of work that know
nothing of each other. Small and picklable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import OptionError, in_utf8
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_INT64, NO_TIMESTAMP
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.read.state_files import Checkpoints

_log = logging.getLogger(__name__)

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
            try:
                batch = pa.RecordBatch.from_pylist(chunk, schema)
            except UnicodeEncodeError:  # a path or name in the file system that is not UTF-8
                batch = pa.RecordBatch.from_pylist(list(map(_in_utf8, chunk)), schema)
            yield batch


def _in_utf8(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: in_utf8(value) if isinstance(value, str) else value for name, value in row.items()}


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


@dataclass(frozen=True, slots=True)
class TableQuery:
    """table: a name of TABLES. history: every record of an internal topic instead of the latest of each key.
    fail_on_data_loss: whether what goes away between planning and reading is an error. max_decompressed: bytes that one
    batch may decompress to, None for what reading allows."""

    table: str
    columns: tuple[str, ...]
    history: bool = False
    fail_on_data_loss: bool = True
    max_decompressed: int | None = None

    @property
    def of(self) -> Table:
        return TABLES[self.table]


@dataclass(frozen=True, slots=True)
class TableUnit:
    """A piece of work. place: None for the log directories themselves. segment: base offset, None for the whole
    partition; of the table `segments`, for files outside its log. Offsets [start, end). size: bytes of .log files."""

    location: PartitionLocation | None
    segment: int | None = None
    start: int = 0
    end: int = MAX_INT64
    size: int = 0


TransactionalId = Mapping[str, Any]
"""A row of the table `transactional_ids`, without its record: the state of a coordinator."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts of other partitions that a unit needs. coordinators: transactional ids by producer id."""

    locations: Mapping[TopicPartition, PartitionLocation] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    coordinators: Mapping[int, TransactionalId] = field(default_factory=dict)


def table_query(
    name: str, columns: Iterable[str] | None = None, *, of_topics: bool = False, history: bool = False
) -> TableQuery:
    """of_topics: whether it is narrowed to topics. Raises OptionError for a name or a column that there is not, and for
    what the table does not have: a history, or topics."""
    table = TABLES.get(name)
    if table is None and name == RECORDS:
        raise OptionError(f"the table '{name}' has no history", hint="compaction leaves what there is of it")
    if table is None:
        raise OptionError(f"there is no table '{name}'", hint=f"there are {', '.join((RECORDS, *TABLES))}")
    if history and table.topic is None:
        of = ", ".join(table.name for table in TABLES.values() if table.topic is not None)
        raise OptionError(f"the table '{name}' has no history", hint=f"these have one: {of}")
    if of_topics and table.topic is not None:
        raise OptionError(f"the table '{name}' is not of single topics", hint="leave the topic out and filter its rows")
    chosen = table.default_columns if columns is None else tuple(columns)
    table.schema(chosen)
    return TableQuery(name, chosen, history)


def partitions_of(query: TableQuery, present: Mapping[TopicPartition, PartitionLocation]) -> list[TopicPartition]:
    """Those that a query is about when nothing is subscribed to: all, or those of its internal topic."""
    return [tp for tp in present if query.of.topic in (None, tp[0])]


def warn_of_missing_topic(
    query: TableQuery, present: Mapping[TopicPartition, PartitionLocation], paths: Iterable[str]
) -> None:
    """Log a warning if the table is made of an internal topic that the log directories do not hold."""
    topic = query.of.topic
    if topic is not None and not any(tp[0] == topic for tp in present):
        _log.warning(
            "table %s is made of topic %s, of which %s holds no partition: "
            "those of a cluster lie in the log directories of all its brokers",
            query.table,
            topic,
            ", ".join(paths),
        )


def units_of(
    query: TableQuery,
    locations: Mapping[TopicPartition, PartitionLocation],
    ranges: Mapping[TopicPartition, tuple[int, int]] | None = None,
    *,
    whole: bool = True,
) -> list[TableUnit]:
    """The work, by partition and offset. places: of the partitions that the query is about. ranges: offsets [start,
    end) of each, None for all of them; a partition that is not in it is left out. whole: whether the log directories
    themselves are looked at too, of a table that does. Raises NotALogDirectory."""
    units: list[TableUnit] = []
    checkpoints = Checkpoints()
    if query.of is FINDINGS and whole:
        units.append(TableUnit(None))
    for tp, location in locations.items():
        if ranges is not None and tp not in ranges:
            continue
        start, end = (0, MAX_INT64) if ranges is None else ranges[tp]
        log = location.open(pass_over_damage=True, checkpoints=checkpoints)
        if not query.of.has_ranges:
            units.append(TableUnit(location, size=sum(segment_size(log, index) for index in range(len(log.segments)))))
            continue
        for index, segment in enumerate(log.segments):
            next_base = log.next_base_offset(index)
            if segment.base_offset < end and (next_base is None or next_base > start):
                units.append(TableUnit(location, segment.base_offset, start, end, segment_size(log, index)))
        if query.of is SEGMENTS and ranges is None and left_overs(log):
            units.append(TableUnit(location))
    return units


def segment_size(log: PartitionLog, index: int) -> int:
    """Bytes of a .log; 0 where it has gone: whoever reads it finds out what that means."""
    try:
        return log.size_of(index)
    except FileNotFoundError:
        return 0


def left_overs(log: PartitionLog) -> dict[str, names.SegmentFileName]:
    """The .log files in the directory that are not part of the log, by name."""
    live = {segment.log for segment in log.segments}
    parsed = {name: names.parse_segment_file(name) for name in sorted(log.names) if name not in live}
    return {name: file for name, file in parsed.items() if file is not None and file.suffix == names.LOG_SUFFIX}
