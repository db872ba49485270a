"""The table's schema in Spark's types, and what a user's own `.schema(...)` may ask for."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.read.record_schema import COLUMNS

# Built from classes: StructType.fromDDL needs a SparkContext, which workers do not have.
_HEADERS = ArrayType(
    StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)]), True
)
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
_AS_TEXT = ("key", "value")
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def spark_schema(columns: tuple[str, ...] = COLUMNS) -> StructType:
    """Types and nullability of Spark's Kafka connector, for these columns in this order."""
    return StructType([StructField(name, _TYPES[name], True) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for.

    Raises OptionError for a name that is no column, a type that is not the column's (key and value may be `string`: the
    bytes are taken as UTF-8), or NOT NULL where there can be nulls.
    """
    for field in schema.fields:
        if field.name not in _TYPES:
            raise OptionError(
                f"the schema has a column '{field.name}', a Kafka log has none", hint=f"there are {', '.join(_TYPES)}"
            )
        as_text = field.name in _AS_TEXT and isinstance(field.dataType, StringType)
        if not as_text and not _same_type(field.dataType, _TYPES[field.name]):
            more = " or string" if field.name in _AS_TEXT else ""
            raise OptionError(
                f"the schema's column '{field.name}' is {field.dataType.simpleString()}, "
                f"expected {_TYPES[field.name].simpleString()}{more}"
            )
        if not field.nullable and field.name not in _NEVER_NULL:
            raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but records without one exist")
    names = tuple(field.name for field in schema.fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    return names


def _same_type(asked: DataType, ours: DataType) -> bool:
    return bool(asked.simpleString() == ours.simpleString())


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects a batch of these columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2 timestamps are in UTC without being asked


class ArrowShape:
    """Brings batches of ours into the Arrow schema that Spark expects of a StructType."""

    def __init__(self, schema: StructType) -> None:
        self.columns = columns_of(schema)
        self._target: pa.Schema = arrow_schema(schema)
        self._as_text = [
            i for i, f in enumerate(schema.fields) if f.name in _AS_TEXT and isinstance(f.dataType, StringType)
        ]

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same buffers under Spark's schema; bytes asked for as text are not checked, as in Spark's cast."""
        if not self.columns:
            return batch  # nothing but a number of rows, which from_arrays would take from the first column
        arrays: list[Any] = batch.columns
        for i in self._as_text:
            array = arrays[i]
            arrays[i] = pa.Array.from_buffers(
                pa.string(), len(array), array.buffers(), null_count=array.null_count, offset=array.offset
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)
