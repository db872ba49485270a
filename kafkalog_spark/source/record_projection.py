"""Plan of the conversion of scanned record batches to the schema of a read: columns to scan, and decoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.divided_schema import ColumnOrigin, divide_schema
from kafkalog_spark.source.read_schema import checked_columns
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.spark.release_differences import arrow_schema
from kafkalog_spark.spark.session_time_zone import session_time_zone
from kafkalog_spark.typed.columns.time_zones import zone_of
from kafkalog_spark.typed.decoder import ValueDecoder
from kafkalog_spark.typed.formats import ResolvedFormat, option_names

RECORD_ID = ("topic", "partition", "offset")
"""Columns that identify a record in errors about malformed values."""


@dataclass(frozen=True)
class RecordProjection:
    """How batches of a scan are converted to the Arrow schema that Spark expects.

    Attributes:
        columns: Names of the columns to scan.
        schema: The Arrow schema.
        decoders: Format and decoder of each side, "value" and "key", that is decoded.
        origins: Origin of each column of `schema`; empty if no side has a format.
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    decoders: Mapping[str, tuple[ResolvedFormat, ValueDecoder]] = field(default_factory=dict)
    origins: Sequence[ColumnOrigin] = ()


def plan_projection(read: ResolvedRead) -> RecordProjection:
    """Return the projection of a read. Raises OptionError for an unsupported schema."""
    options, schema = read.options, read.schema
    target: pa.Schema = arrow_schema(schema)
    if not options.formats:
        return RecordProjection(checked_columns(schema.fields, options.reports_damage), target)
    divided = divide_schema(options, schema, target)
    decoders: dict[str, tuple[ResolvedFormat, ValueDecoder]] = {}
    scanned = dict.fromkeys(checked_columns(divided.plain, options.reports_damage))
    for side, given in read.formats.items():
        if side in divided.decoded:
            columns = pa.schema(divided.decoded[side])
            decoder = _in_zone(given, columns).decoder(columns)
            decoders[side] = given, decoder
            scanned[side] = None
            if getattr(decoder, "needs_headers", False):
                scanned["headers"] = None
            if given.mode == "FAILFAST":
                scanned |= dict.fromkeys(RECORD_ID)
    return RecordProjection(tuple(scanned), target, decoders, divided.origins)


def _in_zone(format: ResolvedFormat, columns: pa.Schema) -> ResolvedFormat:
    """Return the format with the session's time zone, unless its options name one. Raises OptionError if unknown."""
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
            hint=f"install the package tzdata, or name another time zone with {format.side}.timeZone",
        ) from None
    return replace(format, options={**format.options, "timezone": zone})


def _has_moments(kind: pa.DataType) -> bool:
    """Return True if a type is or contains a timestamp with a time zone."""
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_moments(kind.field(i).type) for i in range(kind.num_fields))
