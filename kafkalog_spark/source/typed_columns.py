"""Which columns of a schema are Kafka's own, and which are decoded; batches brought into that shape.

A name that is one of Kafka's columns, in any case, is that column. A struct column `value` or `key` holds what is
decoded, and keeps names apart; every other name is a column of the values, or of the keys where those alone have a
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from kafkalog_spark.errors import MalformedValue, OptionError
from kafkalog_spark.log.read.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.settled_formats import with_settled_formats
from kafkalog_spark.source.spark_schema import ArrowShape, columns_of, kafkas_name, spark_schema
from kafkalog_spark.source.typed_options import FormatOptions
from kafkalog_spark.spark_types import arrow_schema
from kafkalog_spark.typed.civil import zone_of
from kafkalog_spark.typed.decoder import Decoded, ValueDecoder, decoder_of, format_of
from kafkalog_spark.worker_process import session_time_zone

PLAIN = "string"
"""The format that Spark's own cast from bytes gives, so that the column needs no decoder."""
_NOT_DECODED = (
    "CharType", "VarcharType", "VariantType", "CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType",
    "TimeType", "GeometryType", "GeographyType", "NullType",
)  # fmt: skip
_PLACE = ("topic", "partition", "offset")


def with_values(options: ReadOptions) -> StructType:
    """The schema of a load without one of the user's own: Kafka's columns, with values and keys as structs. Raises
    OptionError where the options do not say what these hold."""
    fields = []
    options = with_settled_formats(options)
    for field in spark_schema(options.columns).fields:
        side = options.typed.side(field.name)
        if side is None:
            fields.append(field)
        elif side.format == PLAIN:
            fields.append(StructField(field.name, StringType(), True))
        else:
            from pyspark.sql.pandas.types import from_arrow_schema

            columns = format_of(side.format).schema(dict(side.options))
            fields.append(StructField(field.name, from_arrow_schema(columns), True))
    return StructType(fields)


def settled(options: ReadOptions, schema: StructType) -> ReadOptions:
    """mode=PERMISSIVE is about damaged batches too only where the schema has a column about damage. What the formats
    look up is in the options then."""
    from dataclasses import replace

    options = with_settled_formats(options)
    if (
        options.typed
        and options.reports_damage
        and not DAMAGE_COLUMN_TYPES.keys() & set(map(kafkas_name, schema.names))
    ):
        return replace(options, mode="FAILFAST")
    return options


def shape_of(options: ReadOptions, schema: StructType) -> ArrowShape | TypedShape:
    """What brings the batches of a scan into the schema. Raises OptionError for one that cannot be had."""
    if options.typed:
        return TypedShape(options, schema)
    return ArrowShape(schema, with_damage=options.reports_damage)


@dataclass(frozen=True)
class _Column:
    """One column of the result: of the scan (`decoded` None), a field of what is decoded, or all of it (`field` -1)."""

    at: int = -1
    decoded: str | None = None
    field: int = -1


class TypedShape:
    """Brings batches of a scan into the Arrow schema that Spark expects, values and keys decoded.

    `columns`: what to scan.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._target: pa.Schema = arrow_schema(schema)
        plain, wanted, places = _divided(options, schema, self._target)
        self.decoders: dict[str, tuple[FormatOptions, ValueDecoder]] = {}
        scanned = list(columns_of(StructType(plain), with_damage=options.reports_damage))
        for side in options.typed.sides:
            if side.side in wanted:
                columns = pa.schema(wanted[side.side])
                decoder = decoder_of(side.format, _in_zone(side, columns), columns)
                self.decoders[side.side] = side, decoder
                scanned += [name for name in (side.side,) if name not in scanned]
                if getattr(decoder, "headers_too", False):
                    scanned += [name for name in ("headers",) if name not in scanned]
                if side.mode == "FAILFAST":
                    scanned += [name for name in _PLACE if name not in scanned]
        self.columns = tuple(scanned)
        self._plain = ArrowShape(StructType(plain), with_damage=options.reports_damage)
        self._places = places
        self._width = len(plain)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
        plain = self._plain.fit(batch.select(list(range(self._width)))).columns if self._width else []
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


def _in_zone(side: FormatOptions, columns: pa.Schema) -> dict[str, str]:
    """The options of a side; timestamps that name no zone are in that of the session unless these say another. Raises
    OptionError for a zone that Python does not know."""
    options = dict(side.options)
    if "timezone" in options or "timeZone" not in format_of(side.format).OPTIONS:
        return options
    if not any(_has_moments(field.type) for field in columns):
        return options
    zone = session_time_zone()
    try:
        zone_of(zone)
    except ValueError as error:
        raise OptionError(
            f"spark.sql.session.timeZone: {error} that Python knows",
            hint=f"install the package tzdata, or name another: {side.side}.timeZone",
        ) from None
    return {**options, "timezone": zone}


def _has_moments(kind: pa.DataType) -> bool:
    """Whether there is a timestamp in a type that is not local."""
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
