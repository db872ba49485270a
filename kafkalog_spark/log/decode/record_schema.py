"""The table a log is read as: names, order, types and nullability of Spark's Kafka connector
(KafkaRecordToRowConverter).

| column        | Arrow type                              | null when                                  |
|---------------|-----------------------------------------|--------------------------------------------|
| key           | binary                                  | the record has no key                      |
| value         | binary                                  | the record has no value (a tombstone)      |
| topic         | string                                  | never                                      |
| partition     | int32                                   | never                                      |
| offset        | int64                                   | never                                      |
| timestamp     | timestamp[us, UTC], ms precision        | never; -1 ms where the format has none     |
| timestampType | int32: -1 none, 0 CreateTime, 1 LogAppendTime | never                                |
| headers       | list<struct<key: string, value: binary>>| the record has no headers                  |

Every field is nullable, as in the connector.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, MAX_INT64, MIN_INT64

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

DAMAGE_COLUMN_TYPES: dict[str, pa.DataType] = {
    "_error": pa.string(),
    "_file": pa.string(),
    "_position": pa.int64(),
    "_length": pa.int64(),
    "_first_offset": pa.int64(),
    "_next_offset": pa.int64(),
}
"""Types of the columns about damage, which damage_rows adds to those of records."""

COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")
"""Columns that a read returns by default; `includeHeaders` adds `headers` at the end."""


def record_schema(columns: tuple[str, ...] = COLUMNS) -> pa.Schema:
    """The Arrow schema of those columns, in the order given. Raises OptionError for a name that is not a column."""
    unknown = [name for name in columns if name not in COLUMN_TYPES]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise OptionError(f"there is no column {names}; the columns are {', '.join(COLUMN_TYPES)}")
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])


# What a scan asks for. Values only: no kernel is loaded for them.

FIRST_BATCH_ROWS = 1 << 10
"""The first batch is small, so that show() and limit() have their rows before 32 k are decoded."""


@dataclass(frozen=True, slots=True)
class RecordPredicate:
    """All conditions that are not None must hold. header_value: with a header_name only; both of one header. A key or
    value that is null matches nothing, not even an empty pattern."""

    key: bytes | None = None
    key_prefix: bytes | None = None
    value_contains: bytes | None = None
    header_name: bytes | None = None
    header_value: bytes | None = None

    def __bool__(self) -> bool:
        """True if there is a condition."""
        return self != EVERY_RECORD


EVERY_RECORD = RecordPredicate()  # no condition


@dataclass(frozen=True)
class ScanRequest:
    """Columns and conditions of a scan.

    columns: names of record_schema, in the order wanted. timestamp_from_ms <= timestamp < timestamp_until_ms;
    offset_in, timestamp_in_ms: only these, empty for no such condition. read_committed: without records of aborted
    transactions. max_decompressed: bytes that one compressed batch may decompress to. drop_malformed: damage is passed
    over up to the next good batch, and counted, instead of raised; with a log opened with pass_over_damage.
    control_records: those of control batches too. wanted: only records that hold this.
    """

    columns: tuple[str, ...] = COLUMNS
    timestamp_from_ms: int = MIN_INT64
    timestamp_until_ms: int = MAX_INT64
    offset_in: tuple[int, ...] = ()
    timestamp_in_ms: tuple[int, ...] = ()
    read_committed: bool = False
    max_decompressed: int = MAX_DECOMPRESSED
    drop_malformed: bool = False
    control_records: bool = False
    wanted: RecordPredicate = EVERY_RECORD
    first_batch_rows: int = FIRST_BATCH_ROWS
