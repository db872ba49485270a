"""Converts Arrow columns to the arrays that the encoding kernel reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.kernels.encode import BinaryColumn, EncodeColumns, HeadersColumn

_UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_EMPTY_I32, _EMPTY_I64, _EMPTY_U8 = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint8)
for _empty in (_EMPTY_I32, _EMPTY_I64, _EMPTY_U8):
    _empty.flags.writeable = False
_NO_BINARY = BinaryColumn(_EMPTY_I32, _EMPTY_U8, _EMPTY_U8, 0)


def kernel_columns(records: pa.RecordBatch, default_timestamp: int | None) -> EncodeColumns:
    """Return the columns of `records` as arrays for the kernel, without a copy where possible.

    Args:
        records: Records with the columns that `RecordEncoder.runs` accepts.
        default_timestamp: Timestamp in ms of records without one.

    Raises:
        InvalidRecord: If a column is missing, unknown, duplicated or of a wrong type.
    """
    names = records.schema.names
    unknown = sorted(set(names) - {"key", "value", "headers", "timestamp", "offset"})
    if unknown or "value" not in names or len(set(names)) != len(names):
        raise InvalidRecord(
            f"the columns are {names}: value is required, key, headers, timestamp and offset are optional, each once"
        )
    columns = {name: records.column(name) for name in names}
    timestamps, timestamp_of_all = _timestamp_column(columns.get("timestamp"), default_timestamp)
    return EncodeColumns(
        binary_column("key", columns.get("key")),
        binary_column("value", columns["value"]),
        _headers_column(columns.get("headers")),
        timestamps,
        timestamp_of_all,
        _offset_column(columns.get("offset")),
    )


def binary_column(name: str, column: pa.Array | None) -> BinaryColumn:
    """Return views of the buffers of a binary or string column, whose offsets begin at the slice of the column.

    Args:
        name: Name of the column, for errors.
        column: The column; None stands for a column of nulls.

    Raises:
        InvalidRecord: If the column is neither binary nor string.
    """
    if column is None or len(column) == column.null_count:
        return _NO_BINARY
    if column.type != pa.string():  # a string column has the buffers of a binary one; a cast would check UTF-8 again
        column = _cast(name, column, pa.binary())
    valid, offsets, data = column.buffers()
    start = column.offset
    return BinaryColumn(
        _as_array(offsets, np.int32)[start : start + len(column) + 1],
        _as_array(data, np.uint8),
        _EMPTY_U8 if column.null_count == 0 else _as_array(valid, np.uint8),
        start,
    )


def _headers_column(column: pa.Array | None) -> HeadersColumn:
    if column is None or len(column) == column.null_count:
        return HeadersColumn(_EMPTY_I32, _EMPTY_U8, 0, _NO_BINARY, _NO_BINARY)
    kind = column.type
    if not (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and {field.name for field in kind.value_type} == {"key", "value"}
    ):
        raise InvalidRecord(f"column headers has the type {kind}, expected list<struct<key: string, value: binary>>")
    if not pa.types.is_list(kind):
        column = _cast("headers", column, pa.list_(kind.value_type))
    valid, offsets = column.buffers()[:2]
    start = column.offset
    structs = column.values
    # In the result of flatten(), the fields of a null struct are null. A null header becomes a header with a null key.
    fields = dict(zip([field.name for field in structs.type], structs.flatten(), strict=True))
    return HeadersColumn(
        _as_array(offsets, np.int32)[start : start + len(column) + 1],
        _EMPTY_U8 if column.null_count == 0 else _as_array(valid, np.uint8),
        start,
        binary_column("headers", fields["key"]),
        binary_column("headers", fields["value"]),
    )


def _timestamp_column(column: pa.Array | None, missing: int | None) -> tuple[np.ndarray, int]:
    """Return the timestamps in ms as int64, or an empty array and the timestamp that all rows share."""
    if column is None or column.null_count == len(column):
        if missing is None and (column is None or len(column)):
            raise InvalidRecord("the records have no timestamps, and now_ms is not set")
        return _EMPTY_I64, 0 if missing is None else missing
    if column.null_count and missing is None:
        raise InvalidRecord("some records have no timestamp, and now_ms is not set")
    kind = column.type
    if pa.types.is_timestamp(kind):
        if kind.unit not in _UNITS_PER_MS:
            column, kind = _cast("timestamp", column, pa.timestamp("ms", kind.tz)), pa.timestamp("ms", kind.tz)
        per_ms = _UNITS_PER_MS[kind.unit]
    elif pa.types.is_int64(kind):
        per_ms = 1
    else:
        raise InvalidRecord(f"column timestamp has the type {kind}, expected a timestamp or int64 milliseconds")
    column = column.view(pa.int64())
    if column.null_count:
        column = column.fill_null((missing or 0) * per_ms)
    values = _as_array(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
    if per_ms != 1:
        values = np.floor_divide(values, per_ms)
        values.flags.writeable = False
    return values, 0


def _offset_column(column: pa.Array | None) -> np.ndarray:
    if column is None:
        return _EMPTY_I64
    if not pa.types.is_int64(column.type) or column.null_count:
        raise InvalidRecord(
            f"column offset has the type {column.type} with {column.null_count} nulls, expected int64 without nulls"
        )
    return _as_array(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def _cast(name: str, column: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return column if column.type == to else column.cast(to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        text = str(error).splitlines()[0]
        raise InvalidRecord(f"column {name} of type {column.type} cannot be cast to {to}: {text}") from error


def _as_array(buffer: pa.Buffer | None, dtype: type[np.generic]) -> np.ndarray:
    view = np.frombuffer(b"" if buffer is None else buffer, dtype)
    view.flags.writeable = False
    return view
