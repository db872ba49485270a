"""Which columns of a DataFrame become records, by the rules and in the words of Spark's Kafka sink (KafkaWriter).

| column    | Spark types                                     | missing or null                              |
|-----------|-------------------------------------------------|----------------------------------------------|
| value     | string, binary                                  | must be there; null is a tombstone           |
| key       | string, binary                                  | no key                                       |
| headers   | array<struct<key:string,value:binary>>          | no headers                                   |
| topic     | string                                          | the option `topic`, which takes precedence     |
| partition | int                                             | by the key, else spread                      |
| timestamp | timestamp, timestamp_ntz, bigint (ms): not in the connector | the time of the write            |

Names are exact; other columns are not written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafkalog_spark.errors import OptionError

_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, TimestampNTZType, LongType),
}
_SHOWN = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp or timestamp_ntz or bigint",
    "headers": _HEADERS,
}
RECORD_COLUMNS = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True)
class SinkColumns:
    """record: the columns that are encoded, by name. topic, partition: whether the rows bring their own. packed: the
    columns that become the value, empty where there is one already."""

    record: tuple[str, ...]
    topic: bool
    partition: bool
    packed: tuple[str, ...] = ()


def sink_columns(schema: StructType, topic: str | None, encoded: Collection[str] = ()) -> SinkColumns:
    """The columns to write. topic: what the option of that name says. encoded: of `key` and `value` those that have a
    format: any column of that name, and where there is no `value`, all columns that are none of Kafka's together.

    Raises OptionError in the connector's words."""
    found: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name in _SHOWN:
            if field.name in found:
                raise OptionError(f"the DataFrame has two columns '{field.name}'", hint="rename one of them")
            found[field.name] = field.dataType
    if topic is not None:
        found.pop("topic", None)  # not even looked at, as in the connector
    elif "topic" not in found:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    packed: tuple[str, ...] = ()
    if "value" not in found and "value" in encoded:
        packed = tuple(field.name for field in schema.fields if field.name not in _SHOWN)
    if "value" not in found and not packed:
        raise OptionError("Required attribute 'value' not found")
    for name, kind in found.items():
        if name in encoded:
            continue
        good = kind.simpleString() == _HEADERS if name == "headers" else isinstance(kind, _TYPES[name])
        if not good:
            raise OptionError(
                f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {_SHOWN[name]}"
            )
    if packed:
        found["value"] = BinaryType()
    record = tuple(name for name in RECORD_COLUMNS if name in found)
    return SinkColumns(record, "topic" in found, "partition" in found, packed)
