"""Columns of a DataFrame that become records, with the rules and messages of Spark's Kafka sink (KafkaWriter).

| column    | Spark types                                                 | missing or null                            |
|-----------|-------------------------------------------------------------|--------------------------------------------|
| value     | string, binary                                              | required; null is a tombstone              |
| key       | string, binary                                              | no key                                     |
| headers   | array<struct<key:string,value:binary>>                      | no headers                                 |
| topic     | string                                                      | the option `topic`, which takes precedence |
| partition | int                                                         | chosen by the key, or spread               |
| timestamp | timestamp, timestamp_ntz, bigint (ms): not in the connector | the time of the write                      |

Names are case-sensitive; other columns are not written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.spark.release_differences import arrow_schema
from kafkalog_spark.typed.decoder import ValueEncoder
from kafkalog_spark.typed.formats import ResolvedFormat, format_of

_COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": ((StringType, BinaryType), "string or binary"),
    "value": ((StringType, BinaryType), "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((types.IntegerType,), "int"),
    "timestamp": (
        (types.TimestampType, types.TimestampNTZType, types.LongType),
        "timestamp or timestamp_ntz or bigint",
    ),
    "headers": ((), "array<struct<key:string,value:binary>>"),  # the type is compared with this text
}
"""Accepted Spark types of each column, and their names for messages."""
RECORD_COLUMNS = ("key", "value", "headers", "timestamp")
_TEXT_FORMATS = ("string", "confluent-json")  # formats that encode a column of texts; all others encode a struct


@dataclass(frozen=True)
class SinkColumns:
    """Columns to write.

    Attributes:
        record: Columns that become parts of a record: those of RECORD_COLUMNS that exist.
        has_topic: True if the rows have a column `topic`.
        has_partition: True if the rows have a column `partition`.
        formats: Formats of values and keys.
        packed: Columns that are encoded together as the value; empty if there is a column `value`.
    """

    record: tuple[str, ...]
    has_topic: bool
    has_partition: bool
    formats: tuple[ResolvedFormat, ...] = ()
    packed: tuple[str, ...] = ()

    def encoders(self, schema: pa.Schema) -> dict[str, ValueEncoder]:
        """Return the encoders of `key` and `value`. Raises OptionError for a type that a format does not write."""
        return {
            format.side: format_of(format.name).encoder(format.options, self._encoded_schema(format, schema))
            for format in self.formats
            if format.side in schema.names or (format.side == "value" and self.packed)
        }

    def _encoded_schema(self, format: ResolvedFormat, schema: pa.Schema) -> pa.Schema:
        """Return the columns, or fields of a struct column, that a format encodes."""
        if format.side == "value" and self.packed:
            return pa.schema([schema.field(name) for name in self.packed])
        field = schema.field(format.side)
        if format.name in _TEXT_FORMATS:
            return pa.schema([field])
        if pa.types.is_struct(field.type):
            return pa.schema(list(field.type))
        raise OptionError(f"the column '{format.side}' is {field.type}, but {format.name} encodes a struct")

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns to write, values and keys encoded. Raises InvalidRecord."""
        encoders: Mapping[str, ValueEncoder] | None = None
        written = list(self.record)
        if self.has_topic:
            written.append("topic")
        if self.has_partition:
            written.append("partition")
        for batch in batches:
            if encoders is None:
                encoders = self.encoders(batch.schema)
            for name, encoder in encoders.items():
                values = encoder.encode(self._values(batch, name))
                index = batch.schema.get_field_index(name)
                field = pa.field(name, pa.binary())
                batch = batch.append_column(field, values) if index < 0 else batch.set_column(index, field, values)
            yield batch.select(written)

    def _values(self, batch: pa.RecordBatch, name: str) -> pa.StructArray:
        if name == "value" and self.packed:
            return pa.StructArray.from_arrays([batch.column(part) for part in self.packed], names=list(self.packed))
        column = batch.column(name)
        return column if pa.types.is_struct(column.type) else pa.StructArray.from_arrays([column], names=[name])


def sink_columns(schema: StructType, topic: str | None, formats: Collection[ResolvedFormat] = ()) -> SinkColumns:
    """Return the columns to write.

    Args:
        schema: Schema of the DataFrame.
        topic: The option `topic`.
        formats: Formats of `key` and `value`. Without a column `value`, all columns that are not Kafka's are encoded
            together.

    Raises:
        OptionError: If a column is missing or has a type that is not written.
    """
    encoded = {format.side for format in formats}
    kinds: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name in kinds:
            raise OptionError(f"the DataFrame has two columns '{field.name}'", hint="rename one of them")
        if field.name in _COLUMNS:
            kinds[field.name] = field.dataType
    if topic is not None:
        kinds.pop("topic", None)  # its type is not checked, as in the connector
    elif "topic" not in kinds:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    packed: tuple[str, ...] = ()
    if "value" not in kinds:
        if "value" in encoded:
            packed = tuple(field.name for field in schema.fields if field.name not in _COLUMNS)
        if not packed:
            raise OptionError("Required attribute 'value' not found")
    for name, kind in kinds.items():
        accepted, shown = _COLUMNS[name]
        if name not in encoded and not isinstance(kind, accepted) and (accepted or kind.simpleString() != shown):
            raise OptionError(f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {shown}")
    record = tuple(name for name in RECORD_COLUMNS if name in kinds or (name == "value" and packed))
    columns = SinkColumns(record, "topic" in kinds, "partition" in kinds, tuple(formats), packed)
    if formats:
        columns.encoders(arrow_schema(schema))
    return columns
