"""A load resolved once, for planning, tasks and streams: its options, what its formats look up, its schema in Spark's
types, and the projection that brings batches into that.

`schema()` cannot know whether a batch or a stream is loaded: what only one of the two refuses is refused by the first
query of a batch, or by the start of a stream.

In a schema of the user's own a name that is one of Kafka's columns, in any case, is that column. A struct column
`value` or `key` holds what is decoded, and keeps names apart; every other name is a column of the values, or of the
keys where those alone have a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from kafkalog_spark.errors import MalformedValue, OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.offsets import AT_EARLIEST, AT_LATEST
from kafkalog_spark.source.options import GivenReadOptions, ReadOptions, parse_read_options, warn_of
from kafkalog_spark.spark.interface import arrow_schema, session_time_zone
from kafkalog_spark.typed.columns.time_zones import zone_of
from kafkalog_spark.typed.decoder import ValueDecoder, decode_column
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources, option_names

# StructType.fromDDL needs a Spark session, which workers do not have.
_TYPES: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in COLUMN_TYPES.items()}
_ALL_TYPES = _TYPES | {name: from_arrow_type(kind) for name, kind in DAMAGE_COLUMN_TYPES.items()}
_BY_NAME = {name.lower(): name for name in _ALL_TYPES}
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_PLACE = ("topic", "partition", "offset")
_NOT_DECODED = (
    "CharType", "VarcharType", "VariantType", "CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType",
    "TimeType", "GeometryType", "GeographyType", "NullType",
)  # fmt: skip


class LoadOptions:
    """The options of a load, before it is known whether a batch or a stream is loaded. Spark keeps the data source, and
    this in it, after `schema()`: what formats look up is looked up once a load, and each option without effect is
    logged once. With a schema of the user's own Spark does not ask for ours: every query has LoadOptions of its own, a
    stream two, since Spark makes its reader in two processes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = GivenReadOptions(options)
        self._logged: set[str] = set()
        self._has_logged_bounds = False
        self._formats: Mapping[str, ResolvedFormat] | None = None

    def formats(self, options: ReadOptions) -> Mapping[str, ResolvedFormat]:
        """By side, for batch and stream: with the files, registered schemas and `_schemas` records they need."""
        if self._formats is None:
            topics, records = tuple(sorted(options.subscription.named_topics)), partial(_records, options)
            self._formats = {
                side: ResolvedFormat.of(given.name, given.options, SchemaSources(side, topics, records), given.mode)
                for side, given in options.formats.items()
            }
        return self._formats

    def resolved(self, options: ReadOptions, schema: StructType) -> ResolvedRead:
        """The read of a schema, which may be the user's own. With formats, mode=PERMISSIVE is about damaged batches
        only where the schema has a column about damage."""
        with_damage = DAMAGE_COLUMN_TYPES.keys() & set(map(kafkas_name, schema.names))
        if options.formats and options.reports_damage and not with_damage:
            options = replace(options, mode="FAILFAST")
        return ResolvedRead(options, self.formats(options), schema)

    def either(self) -> ReadOptions:
        """Raises OptionError when both batch and stream refuse the options; logs those without effect on any."""
        accepted: list[ReadOptions] = []
        errors: list[OptionError] = []
        for streaming in (False, True):
            try:
                accepted.append(parse_read_options(self._given, streaming=streaming, quiet=True))
            except OptionError as error:
                errors.append(error)
        if not accepted:
            raise errors[0]
        self._log(accepted[0], (name for name in accepted[0].ignored if name in accepted[-1].ignored))
        return accepted[0]

    def one_of(self, *, streaming: bool) -> ReadOptions:
        """Raises OptionError; logs what has no effect, once."""
        options = parse_read_options(self._given, streaming=streaming, quiet=True)
        self._log(options, options.ignored)
        return options

    def _log(self, options: ReadOptions, ignored: Iterable[str]) -> None:
        news = [name for name in ignored if name not in self._logged]
        bounds = (AT_EARLIEST, AT_LATEST) if self._has_logged_bounds else (options.start, options.end)
        warn_of(news, *bounds)
        self._logged.update(news)
        self._has_logged_bounds = True


@dataclass(frozen=True)
class ResolvedRead:
    """Read options with the formats of values and keys resolved, and the schema of the rows. Picklable."""

    options: ReadOptions
    formats: Mapping[str, ResolvedFormat]
    schema: StructType


def _records(options: ReadOptions, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    from kafkalog_spark.log.log_dir import LogDirs

    return LogDirs.open(options.paths, options.storage, options.tier).keys_and_values(topic)


def load_schema(options: ReadOptions, formats: Mapping[str, ResolvedFormat]) -> StructType:
    """Schema of a load without one of the user's own: Kafka's columns, with values and keys that have a format as
    structs. Raises OptionError where the options do not say what these hold."""
    fields = []
    for name in options.columns:
        kind, format = _ALL_TYPES[name], formats.get(name)
        if format is not None:
            # Spark's own cast from bytes gives what the format `string` does
            kind = StringType() if format.name == "string" else from_arrow_schema(format.schema())
        fields.append(StructField(name, kind, True))  # nullable, as all are in Spark's Kafka connector
    return StructType(fields)


def kafkas_name(name: str) -> str:
    """Spelled as Kafka's column of that name, in any case; any other as it is."""
    return _BY_NAME.get(name.lower(), name)


def batch_in_schema(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The same buffers under Spark's schema. Bytes asked for as text are not checked, as in Spark's cast."""
    if not len(target):
        return batch.select([])  # nothing but a number of rows, which from_arrays would take from the first column
    arrays = [_as_type(array, field.type) for array, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind != pa.string() or array.type != pa.binary():
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers(), null_count=array.null_count, offset=array.offset)


class RecordProjection:
    """Brings batches of a scan into the Arrow schema that Spark expects, values and keys decoded. `columns`: what to
    scan. Raises OptionError for a schema that cannot be had."""

    def __init__(self, read: ResolvedRead) -> None:
        options, schema = read.options, read.schema
        self._target: pa.Schema = arrow_schema(schema)
        self._decoders: dict[str, tuple[ResolvedFormat, ValueDecoder]] = {}
        if not options.formats:
            self.columns = _checked_columns(schema.fields, options.reports_damage)
            return
        plain, wanted, self._origins = _divided(options, schema, self._target)
        scanned = dict.fromkeys(_checked_columns(plain, options.reports_damage))
        for side, given in read.formats.items():
            if side in wanted:
                columns = pa.schema(wanted[side])
                decoder = _in_zone(given, columns).decoder(columns)
                self._decoders[side] = given, decoder
                scanned[side] = None
                if getattr(decoder, "headers_too", False):
                    scanned["headers"] = None
                if given.mode == "FAILFAST":
                    scanned |= dict.fromkeys(_PLACE)
        self.columns = tuple(scanned)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises MalformedValue for a bad value, in mode FAILFAST."""
        if not self._decoders:
            return batch_in_schema(batch, self._target)
        decoded: dict[str, list[Any]] = {}
        keep: np.ndarray | None = None
        for side, (given, decoder) in self._decoders.items():
            result = decode_column(decoder, batch, side)
            if result.bad is not None:
                if given.mode == "FAILFAST":
                    raise self._malformed(batch, given, int(np.argmax(result.bad)), result.why)
                if given.mode == "DROPMALFORMED":
                    keep = ~result.bad if keep is None else keep & ~result.bad
            struct = result.columns
            fields = struct.flatten() if struct.null_count else map(struct.field, range(struct.type.num_fields))
            decoded[side] = [*fields, struct]
        arrays = [
            _as_type(batch.column(at), field.type) if side is None else decoded[side][at]
            for (side, at), field in zip(self._origins, self._target, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._target)
        return rows if keep is None else rows.filter(pa.array(keep))

    def _malformed(
        self, batch: pa.RecordBatch, given: ResolvedFormat, row: int, why: Callable[[int], str]
    ) -> MalformedValue:
        topic, partition, offset = (batch.column(self.columns.index(column))[row].as_py() for column in _PLACE)
        return MalformedValue(
            f"the {given.side} cannot be read as {given.name}: {why(row)}",
            topic_partition=f"{topic}-{partition}",
            offset=offset,
            hint=f"{given.side}.mode=PERMISSIVE reads what can be read, DROPMALFORMED leaves such records out",
        )


def _checked_columns(fields: list[StructField], with_damage: bool) -> tuple[str, ...]:
    """The columns that a schema asks for, spelled as Kafka's. with_damage: of mode=PERMISSIVE, which has columns about
    damage, and nulls in the others. Raises OptionError."""
    types, never_null = (_ALL_TYPES, {"topic", "partition"}) if with_damage else (_TYPES, _NEVER_NULL)
    names = _distinct_names(fields)
    for name, field in zip(names, fields, strict=True):
        if name in DAMAGE_COLUMN_TYPES and not with_damage:
            raise OptionError(f"the schema has a column '{field.name}', which is of mode=PERMISSIVE alone")
        if name not in types:
            raise OptionError(
                f"the schema has a column '{field.name}', a Kafka log has none", hint=f"there are {', '.join(types)}"
            )
        ours, may_be_text = types[name].simpleString(), name in ("key", "value")
        if field.dataType.simpleString() != ours and not (may_be_text and isinstance(field.dataType, StringType)):
            raise OptionError(
                f"the schema's column '{field.name}' is {field.dataType.simpleString()}, expected {ours}"
                f"{' or string' if may_be_text else ''}"
            )
        if not field.nullable and name not in never_null:
            raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but records without one exist")
    if with_damage and not DAMAGE_COLUMN_TYPES.keys() & set(names):
        raise OptionError(
            "mode=PERMISSIVE with a schema in which no column tells rows about damage from records",
            hint=f"add one of {', '.join(DAMAGE_COLUMN_TYPES)}, or take mode=DROPMALFORMED",
        )
    return names


def _distinct_names(fields: Iterable[StructField]) -> tuple[str, ...]:
    names = tuple(kafkas_name(field.name) for field in fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    return names


def _in_zone(format: ResolvedFormat, columns: pa.Schema) -> ResolvedFormat:
    """The format with the session's time zone, unless its options name one. Raises OptionError for an unknown one."""
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
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_moments(kind.field(i).type) for i in range(kind.num_fields))


def _divided(
    options: ReadOptions, schema: StructType, target: pa.Schema
) -> tuple[list[StructField], dict[str, list[pa.Field]], list[tuple[str | None, int]]]:
    """(Kafka's columns, the fields that are decoded by side, the source of each column of the schema: (None, column of
    the scan), or (side, field of what is decoded), -1 for all of it)."""
    flat = next(iter(options.formats))
    plain: list[StructField] = []
    wanted: dict[str, list[pa.Field]] = {}
    origins: list[tuple[str | None, int]] = []
    for name, field, arrow in zip(_distinct_names(schema.fields), schema.fields, target, strict=True):
        if name in options.formats and isinstance(field.dataType, StructType):
            _check_decoded(field)
            wanted.setdefault(name, []).extend(list(arrow.type))
            origins.append((name, -1))
        elif name in _ALL_TYPES:
            kind, ours = field.dataType.simpleString(), _ALL_TYPES[name].simpleString()
            may_be_text = name in ("key", "value") and isinstance(field.dataType, StringType)
            # a column of Kafka's name and another type is most likely one of the values
            if kind != ours and not may_be_text and name not in DAMAGE_COLUMN_TYPES:
                raise OptionError(
                    f"the schema's column '{field.name}' is {kind}, and Kafka's own column of that name {ours}",
                    hint=f"a field '{field.name}' of the {flat}s is asked for inside a struct: "
                    f"{flat} struct<{field.name}: {kind}>",
                )
            origins.append((None, len(plain)))
            plain.append(field)
        else:
            _check_decoded(field)
            fields = wanted.setdefault(flat, [])
            origins.append((flat, len(fields)))
            fields.append(arrow)
    for side, at in origins:
        if at == -1 and any(other == side and field >= 0 for other, field in origins):
            raise OptionError(
                f"the schema has a struct '{side}', and columns of the {side}s beside it",
                hint="put them into the struct",
            )
    return plain, wanted, origins


def _check_decoded(field: StructField, within: str = "") -> None:
    if not field.nullable:
        raise OptionError(f"the schema's column '{within}{field.name}' is NOT NULL, but values without one exist")
    _check_type(field.dataType, within + field.name)


def _check_type(kind: DataType, path: str) -> None:
    if type(kind).__name__ in _NOT_DECODED or type(kind).__name__.endswith("UDT"):
        raise OptionError(f"the schema's column '{path}' is {kind.simpleString()}, which is not decoded here")
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_decoded(field, f"{path}.")
    elif isinstance(kind, ArrayType):
        if not kind.containsNull:
            raise OptionError(f"the elements of the schema's column '{path}' are NOT NULL, but there may be nulls")
        _check_type(kind.elementType, f"{path}.element")
    elif isinstance(kind, MapType):
        if not kind.valueContainsNull:
            raise OptionError(f"the values of the schema's column '{path}' are NOT NULL, but there may be nulls")
        _check_type(kind.keyType, f"{path}.key")
        _check_type(kind.valueType, f"{path}.value")
