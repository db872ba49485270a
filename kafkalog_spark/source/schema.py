"""The table's schema in Spark's types, and what a user's own `.schema(...)` may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalog_spark.errors import MalformedValue, OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, COLUMNS, DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.offsets import Assign, Subscribe
from kafkalog_spark.source.options import FormatOptions, ReadOptions
from kafkalog_spark.spark.types import arrow_schema
from kafkalog_spark.spark.worker_process import session_time_zone
from kafkalog_spark.typed.decoder import Decoded, ResolvedFormat, SchemaSources, ValueDecoder, option_names
from kafkalog_spark.typed.java_text import zone_of

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


class ArrowProjection:
    """Brings batches of ours into the Arrow schema that Spark expects of a StructType."""

    def __init__(self, schema: StructType, *, with_damage: bool = False) -> None:
        self.columns = columns_of(schema, with_damage=with_damage)
        self._target: pa.Schema = arrow_schema(schema)
        self._as_text = [
            i
            for i, (name, field) in enumerate(zip(self.columns, schema.fields, strict=True))
            if name in _AS_TEXT and isinstance(field.dataType, StringType)
        ]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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


@dataclass(frozen=True)
class ResolvedRead:
    """Read options with the formats of values and keys resolved, and the schema of the rows: what planning, tasks and
    streams share. Picklable."""

    options: ReadOptions
    formats: Mapping[str, ResolvedFormat]
    schema: StructType

    @classmethod
    def of(cls, options: ReadOptions, schema: StructType, formats: Mapping[str, ResolvedFormat]) -> ResolvedRead:
        """formats: those of `resolve_formats`, which a load calls once.

        With formats, mode=PERMISSIVE is about damaged batches only where the schema has a column about damage.
        """
        with_damage = DAMAGE_COLUMN_TYPES.keys() & set(map(kafkas_name, schema.names))
        if options.typed and options.reports_damage and not with_damage:
            options = replace(options, mode="FAILFAST")
        return cls(options, formats, schema)

    def projection(self) -> ArrowProjection | TypedProjection:
        """Brings the batches of a scan into the schema. Raises OptionError for a schema that cannot be had."""
        if self.options.typed:
            return TypedProjection(self)
        return ArrowProjection(self.schema, with_damage=self.options.reports_damage)


def resolve_formats(options: ReadOptions) -> dict[str, ResolvedFormat]:
    """The formats of values and keys, by side, with the files, registered schemas and records of `_schemas` that they
    need. Raises what the formats do."""
    asked = options.subscription
    topics: tuple[str, ...] = ()
    if isinstance(asked, Subscribe):
        topics = asked.topics
    elif isinstance(asked, Assign):
        topics = tuple(sorted({topic for topic, _ in asked.partitions}))
    return {
        side.side: ResolvedFormat.of(
            side.format, dict(side.options), SchemaSources(side.side, topics, partial(_records, options))
        )
        for side in options.typed.sides
    }


def _records(options: ReadOptions, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of every record of a topic of the log directories that are read."""
    from kafkalog_spark.log.log_dir import LogDirs

    dirs = LogDirs.open(options.paths, options.storage, options.tier)
    for batch in dirs.scan(topic, columns=("key", "value")):
        yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)


# Which columns of a schema are Kafka's own, and which are decoded; batches brought into that shape.
#
# A name that is one of Kafka's columns, in any case, is that column. A struct column `value` or `key` holds what is
# decoded, and keeps names apart; every other name is a column of the values, or of the keys where those alone have a
# format.

PLAIN = "string"
"""The format that Spark's own cast from bytes gives, so that the column needs no decoder."""
_NOT_DECODED = (
    "CharType", "VarcharType", "VariantType", "CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType",
    "TimeType", "GeometryType", "GeographyType", "NullType",
)  # fmt: skip
_PLACE = ("topic", "partition", "offset")


def load_schema(options: ReadOptions, formats: Mapping[str, ResolvedFormat]) -> StructType:
    """The schema of a load without one of the user's own: Kafka's columns, with values and keys that have a format as
    structs. Raises OptionError where the options do not say what these hold."""
    fields = []
    for field in spark_schema(options.columns).fields:
        format = formats.get(field.name)
        if format is None:
            fields.append(field)
        elif format.name == PLAIN:
            fields.append(StructField(field.name, StringType(), True))
        else:
            from pyspark.sql.pandas.types import from_arrow_schema

            fields.append(StructField(field.name, from_arrow_schema(format.schema()), True))
    return StructType(fields)


@dataclass(frozen=True)
class _Column:
    """Column of the result: of the scan (`decoded` None), a field of what is decoded, or all of it (`field` -1)."""

    at: int = -1
    decoded: str | None = None
    field: int = -1


class TypedProjection:
    """Brings batches of a scan into the Arrow schema that Spark expects, values and keys decoded.

    `columns`: what to scan.
    """

    def __init__(self, read: ResolvedRead) -> None:
        options, schema = read.options, read.schema
        self._target: pa.Schema = arrow_schema(schema)
        plain, wanted, places = _divided(options, schema, self._target)
        self.decoders: dict[str, tuple[FormatOptions, ValueDecoder]] = {}
        scanned = list(columns_of(StructType(plain), with_damage=options.reports_damage))
        for side in options.typed.sides:
            if side.side in wanted:
                columns = pa.schema(wanted[side.side])
                decoder = _in_zone(read.formats[side.side], columns).decoder(columns)
                self.decoders[side.side] = side, decoder
                scanned += [name for name in (side.side,) if name not in scanned]
                if getattr(decoder, "headers_too", False):
                    scanned += [name for name in ("headers",) if name not in scanned]
                if side.mode == "FAILFAST":
                    scanned += [name for name in _PLACE if name not in scanned]
        self.columns = tuple(scanned)
        self._plain = ArrowProjection(StructType(plain), with_damage=options.reports_damage)
        self._places = places
        self._width = len(plain)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises MalformedValue for a bad value, in mode FAILFAST."""
        rows = batch.num_rows
        decoded: dict[str, list[Any]] = {}
        keep: np.ndarray | None = None
        for name, (side, decoder) in self.decoders.items():
            found = self._decoded(decoder, batch, name)
            if found.bad is not None:
                if side.mode == "FAILFAST":
                    raise self._malformed(batch, name, int(np.argmax(found.bad)), found.why)
                if side.mode == "DROPMALFORMED":
                    keep = ~found.bad if keep is None else keep & ~found.bad
            struct = found.columns
            decoded[name] = [
                struct,
                *(struct.flatten() if struct.null_count else map(struct.field, range(struct.type.num_fields))),
            ]
        plain = self._plain.apply(batch.select(list(range(self._width)))).columns if self._width else []
        arrays = [
            plain[place.at] if place.decoded is None else decoded[place.decoded][place.field + 1]
            for place in self._places
        ]
        if not arrays:
            result = batch.select([])
        else:
            result = pa.RecordBatch.from_arrays(arrays, schema=self._target)
        return result if keep is None else _kept(result, keep, rows)

    def _decoded(self, decoder: Any, batch: pa.RecordBatch, name: str) -> Decoded:
        values = [batch.column(self.columns.index(name))]
        if getattr(decoder, "headers_too", False):
            values.append(batch.column(self.columns.index("headers")))
        found: Decoded = decoder.decode(*values)
        return found

    def _malformed(self, batch: pa.RecordBatch, name: str, row: int, why: Callable[[int], str]) -> MalformedValue:
        topic, partition, offset = (batch.column(self.columns.index(column))[row].as_py() for column in _PLACE)
        side = self.decoders[name][0]
        return MalformedValue(
            f"the {name} cannot be read as {side.format}: {why(row)}",
            topic_partition=f"{topic}-{partition}",
            offset=offset,
            hint=f"{name}.mode=PERMISSIVE reads what can be read, DROPMALFORMED leaves such records out",
        )


def _in_zone(format: ResolvedFormat, columns: pa.Schema) -> ResolvedFormat:
    """The format with its timestamps that name no zone in that of the session, unless its options say another. Raises
    OptionError for a zone that Python does not know."""
    if "timezone" in format.options or "timezone" not in option_names(format.name):
        return format
    if not any(_has_moments(field.type) for field in columns):
        return format
    zone = session_time_zone()
    try:
        zone_of(zone)
    except ValueError as error:
        raise OptionError(
            f"spark.sql.session.timeZone: {error} that Python knows",
            hint=f"install the package tzdata, or name another: {format.side}.timeZone",
        ) from None
    return replace(format, options={**format.options, "timezone": zone})


def _has_moments(kind: pa.DataType) -> bool:
    """True if a type has a timestamp that is not local."""
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_moments(kind.field(i).type) for i in range(kind.num_fields))


def _kept(batch: pa.RecordBatch, keep: np.ndarray, rows: int) -> pa.RecordBatch:
    if batch.num_columns:
        return batch.filter(pa.array(keep))
    return batch.slice(0, min(int(keep.sum()), rows))


def _divided(
    options: ReadOptions, schema: StructType, target: pa.Schema
) -> tuple[list[StructField], dict[str, list[pa.Field]], list[_Column]]:
    """(Kafka's columns, the fields that are decoded by side, where each column of the schema comes from)."""
    flat = options.typed.sides[0]
    plain: list[StructField] = []
    wanted: dict[str, list[pa.Field]] = {}
    places: list[_Column] = []
    whole: set[str] = set()
    names = [kafkas_name(field.name) for field in schema.fields]
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    for name, field, arrow in zip(names, schema.fields, target, strict=True):
        side = options.typed.side(name)
        if side is not None and isinstance(field.dataType, StructType):
            _check_nullable(field)
            wanted.setdefault(side.side, []).extend(list(arrow.type))
            whole.add(side.side)
            places.append(_Column(decoded=side.side))
        elif name in COLUMN_TYPES or name in DAMAGE_COLUMN_TYPES:
            _check_kafkas(field, flat)
            places.append(_Column(at=len(plain)))
            plain.append(field)
        else:
            _check_nullable(field)
            fields = wanted.setdefault(flat.side, [])
            places.append(_Column(decoded=flat.side, field=len(fields)))
            fields.append(arrow)
    for name in whole:
        if any(place.decoded == name and place.field >= 0 for place in places):
            raise OptionError(
                f"the schema has a struct '{name}', and columns of the {name}s beside it",
                hint="put them into the struct",
            )
    return plain, wanted, places


def _check_kafkas(field: StructField, flat: FormatOptions) -> None:
    """A column of Kafka's name and another type is most likely one of the values."""
    kind, name = field.dataType.simpleString(), kafkas_name(field.name)
    if name in DAMAGE_COLUMN_TYPES or (name in ("key", "value") and isinstance(field.dataType, StringType)):
        return
    ours = spark_schema((name,)).fields[0].dataType.simpleString()
    if kind != ours:
        raise OptionError(
            f"the schema's column '{field.name}' is {kind}, and Kafka's own column of that name {ours}",
            hint=f"a field '{field.name}' of the {flat.side}s is asked for inside a struct: "
            f"{flat.side} struct<{field.name}: {kind}>",
        )


def _check_nullable(field: StructField) -> None:
    if not field.nullable:
        raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but values without one exist")
    _check_type(field.dataType, field.name)


def _check_type(kind: DataType, path: str) -> None:
    if type(kind).__name__ in _NOT_DECODED or type(kind).__name__.endswith("UDT"):
        raise OptionError(f"the schema's column '{path}' is {kind.simpleString()}, which is not decoded here")
    if isinstance(kind, StructType):
        for field in kind.fields:
            if not field.nullable:
                raise OptionError(
                    f"the schema's column '{path}.{field.name}' is NOT NULL, but values without one exist"
                )
            _check_type(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        if not kind.containsNull:
            raise OptionError(f"the elements of the schema's column '{path}' are NOT NULL, but there may be nulls")
        _check_type(kind.elementType, f"{path}.element")
    elif isinstance(kind, MapType):
        if not kind.valueContainsNull:
            raise OptionError(f"the values of the schema's column '{path}' are NOT NULL, but there may be nulls")
        _check_type(kind.keyType, f"{path}.key")
        _check_type(kind.valueType, f"{path}.value")
