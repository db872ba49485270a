"""The table's schema in Spark's types, and what a user's own `.schema(...)` may ask for."""

from __future__ import annotations

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
from kafkalog_spark.log.read.record_schema import COLUMNS, DAMAGE_COLUMN_TYPES
from kafkalog_spark.spark_types import arrow_schema

# Built from classes: StructType.fromDDL needs a Spark session, which workers do not have.
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
_DAMAGE_TYPES: dict[str, DataType] = {
    name: StringType() if name in ("_error", "_file") else LongType() for name in DAMAGE_COLUMN_TYPES
}
_BY_NAME = {name.lower(): name for name in (*_TYPES, *_DAMAGE_TYPES)}
_AS_TEXT = ("key", "value")
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def spark_schema(columns: tuple[str, ...] = COLUMNS) -> StructType:
    """Types and nullability of Spark's Kafka connector, for these columns in this order, some of which may be those
    about damage."""
    types = _TYPES | _DAMAGE_TYPES
    return StructType([StructField(name, types[name], True) for name in columns])


def kafkas_name(name: str) -> str:
    """A name in a schema as Kafka's column of that name, in any case, is spelled; any other as it is."""
    return _BY_NAME.get(name.lower(), name)


def columns_of(schema: StructType, *, with_damage: bool = False) -> tuple[str, ...]:
    """The columns that a schema asks for, in any case, spelled as Kafka's. with_damage: of mode=PERMISSIVE, which has
    columns about damage, and nulls in the others.

    Raises OptionError for a name that is no column, a type that is not the column's (key and value may be `string`: the
    bytes are taken as UTF-8), NOT NULL where there can be nulls, or with_damage for no column about damage at all.
    """
    types, never_null = (_TYPES | _DAMAGE_TYPES, {"topic", "partition"}) if with_damage else (_TYPES, _NEVER_NULL)
    names = tuple(kafkas_name(field.name) for field in schema.fields)
    for name, field in zip(names, schema.fields, strict=True):
        if name in _DAMAGE_TYPES and not with_damage:
            raise OptionError(f"the schema has a column '{field.name}', which is of mode=PERMISSIVE alone")
        if name not in types:
            raise OptionError(
                f"the schema has a column '{field.name}', a Kafka log has none", hint=f"there are {', '.join(types)}"
            )
        as_text = name in _AS_TEXT and isinstance(field.dataType, StringType)
        if not as_text and not _same_type(field.dataType, types[name]):
            more = " or string" if name in _AS_TEXT else ""
            raise OptionError(
                f"the schema's column '{field.name}' is {field.dataType.simpleString()}, "
                f"expected {types[name].simpleString()}{more}"
            )
        if not field.nullable and name not in never_null:
            raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but records without one exist")
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    if with_damage and not _DAMAGE_TYPES.keys() & set(names):
        raise OptionError(
            "mode=PERMISSIVE with a schema in which no column tells rows about damage from records",
            hint=f"add one of {', '.join(_DAMAGE_TYPES)}, or take mode=DROPMALFORMED",
        )
    return names


def _same_type(asked: DataType, ours: DataType) -> bool:
    return bool(asked.simpleString() == ours.simpleString())


class ArrowShape:
    """Brings batches of ours into the Arrow schema that Spark expects of a StructType."""

    def __init__(self, schema: StructType, *, with_damage: bool = False) -> None:
        self.columns = columns_of(schema, with_damage=with_damage)
        self._target: pa.Schema = arrow_schema(schema)
        self._as_text = [
            i
            for i, (name, field) in enumerate(zip(self.columns, schema.fields, strict=True))
            if name in _AS_TEXT and isinstance(field.dataType, StringType)
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
