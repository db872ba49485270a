"""The schema of records: names, order, types and nullability of Spark's Kafka connector.

Spark: `KafkaRecordToRowConverter`.

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

import pyarrow as pa

from kafkalog_spark.errors import OptionError

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
"""Columns about damage, which `log.repair.damage_rows` adds to those of records."""

COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")
"""Columns of a read by default; `includeHeaders` adds `headers` at the end."""


def record_schema(columns: tuple[str, ...] = COLUMNS) -> pa.Schema:
    """Return the Arrow schema of columns, in the order given. Raises OptionError for a name that is not a column."""
    unknown = [name for name in columns if name not in COLUMN_TYPES]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise OptionError(f"there is no column {names}; the columns are {', '.join(COLUMN_TYPES)}")
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
