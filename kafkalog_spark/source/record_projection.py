"""Projection of scanned record batches into the schema of a read, with values and keys decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import MalformedValue, OptionError
from kafkalog_spark.source.divided_schema import ColumnOrigin, divide_schema
from kafkalog_spark.source.read_schema import checked_columns
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.spark.release_differences import arrow_schema
from kafkalog_spark.spark.session_time_zone import session_time_zone
from kafkalog_spark.typed.columns.time_zones import zone_of
from kafkalog_spark.typed.decoder import ValueDecoder, decode_column
from kafkalog_spark.typed.formats import ResolvedFormat, option_names

_RECORD_ID = ("topic", "partition", "offset")
"""Columns that identify a record in errors about malformed values."""


class RecordProjection:
    """Converts batches of a scan to the Arrow schema that Spark expects, with values and keys decoded.

    Raises OptionError for an unsupported schema.

    Attributes:
        columns: Names of the columns to scan.
    """

    def __init__(self, read: ResolvedRead) -> None:
        options, schema = read.options, read.schema
        self._target: pa.Schema = arrow_schema(schema)
        self._decoders: dict[str, tuple[ResolvedFormat, ValueDecoder]] = {}
        if not options.formats:
            self.columns = checked_columns(schema.fields, options.reports_damage)
            return
        divided = divide_schema(options, schema, self._target)
        self._origins: list[ColumnOrigin] = divided.origins
        scanned = dict.fromkeys(checked_columns(divided.plain, options.reports_damage))
        for side, given in read.formats.items():
            if side in divided.decoded:
                columns = pa.schema(divided.decoded[side])
                decoder = _in_zone(given, columns).decoder(columns)
                self._decoders[side] = given, decoder
                scanned[side] = None
                if getattr(decoder, "needs_headers", False):
                    scanned["headers"] = None
                if given.mode == "FAILFAST":
                    scanned |= dict.fromkeys(_RECORD_ID)
        self.columns = tuple(scanned)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch. Raises MalformedValue for a malformed value in mode FAILFAST."""
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
            decoded[side] = [*fields, struct]  # the struct is last, at WHOLE_STRUCT
        arrays = [
            _as_type(batch.column(position), field.type) if side is None else decoded[side][position]
            for (side, position), field in zip(self._origins, self._target, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._target)
        return rows if keep is None else rows.filter(pa.array(keep))

    def _malformed(
        self, batch: pa.RecordBatch, given: ResolvedFormat, row: int, why: Callable[[int], str]
    ) -> MalformedValue:
        topic, partition, offset = (batch.column(self.columns.index(column))[row].as_py() for column in _RECORD_ID)
        return MalformedValue(
            f"the {given.side} cannot be read as {given.name}: {why(row)}",
            topic_partition=f"{topic}-{partition}",
            offset=offset,
            hint=f"{given.side}.mode=PERMISSIVE reads such fields as null, DROPMALFORMED skips such records",
        )


def batch_in_schema(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch with Spark's schema and the same buffers. Bytes become strings unchecked, as in Spark's cast."""
    if not len(target):
        return batch.select([])  # keeps the number of rows, which from_arrays would take from the first column
    arrays = [_as_type(array, field.type) for array, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type: bytes as strings, others unchanged."""
    if kind != pa.string() or array.type != pa.binary():
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers(), null_count=array.null_count, offset=array.offset)


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
