"""Arrow columns as the encode kernel takes them: numpy views of their buffers, uncopied where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.kernels.columns import BinaryColumn, HeadersColumn

_UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_EMPTY_I32, _EMPTY_I64, _EMPTY_U8 = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint8)
for _empty in (_EMPTY_I32, _EMPTY_I64, _EMPTY_U8):
    _empty.flags.writeable = False
_NO_BINARY = BinaryColumn(_EMPTY_I32, _EMPTY_U8, _EMPTY_U8, 0)


def kernel_columns(records: pa.RecordBatch, time_of_missing: int | None) -> tuple[Any, ...]:
    """encode_records' arguments for key, value, headers, timestamps and offsets, in its order.

    The columns are those of `record_encoder.encode_runs`; `time_of_missing`: ms, for records without a timestamp.
    Raises InvalidRecord for columns that are missing, unknown or of another type.
    """
    names = records.schema.names
    unknown = sorted(set(names) - {"key", "value", "headers", "timestamp", "offset"})
    if unknown or "value" not in names or len(set(names)) != len(names):
        raise InvalidRecord(
            f"the columns are {names}: value is required, key, headers, timestamp and offset are optional, each once"
        )
    columns = {name: records.column(name) for name in names}
    timestamps, timestamp_of_all = _timestamps(columns.get("timestamp"), time_of_missing)
    return (
        _binary("key", columns.get("key")),
        _binary("value", columns["value"]),
        _headers(columns.get("headers")),
        timestamps,
        timestamp_of_all,
        _offsets(columns.get("offset")),
    )


def key_column(column: pa.Array | None) -> BinaryColumn:
    """A key column as a kernel takes it. None: no record has a key.

    Raises InvalidRecord for another type than binary or string.
    """
    return _binary("key", column)


def _cast(name: str, column: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return column if column.type == to else column.cast(to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        text = str(error).splitlines()[0]
        raise InvalidRecord(f"column {name} of type {column.type} cannot be taken as {to}: {text}") from error


def _view(buffer: pa.Buffer | None, dtype: type[np.generic]) -> np.ndarray:
    """A buffer as a read-only array."""
    view = np.frombuffer(b"" if buffer is None else buffer, dtype)
    view.flags.writeable = False
    return view


def _binary(name: str, column: pa.Array | None) -> BinaryColumn:
    """Views of a column's buffers; the offsets begin at its slice."""
    if column is None or len(column) == column.null_count:
        return _NO_BINARY
    if column.type != pa.string():  # has the same buffers as binary: no cast, which would check UTF-8 again
        column = _cast(name, column, pa.binary())
    valid, offsets, data = column.buffers()
    at = column.offset
    return BinaryColumn(
        _view(offsets, np.int32)[at : at + len(column) + 1],
        _view(data, np.uint8),
        _EMPTY_U8 if column.null_count == 0 else _view(valid, np.uint8),
        at,
    )


def _headers(column: pa.Array | None) -> HeadersColumn:
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
    at = column.offset
    structs = column.values
    # flatten() gives the fields the nulls of their structs: a null header is one without a key
    fields = dict(zip([field.name for field in structs.type], structs.flatten(), strict=True))
    return HeadersColumn(
        _view(offsets, np.int32)[at : at + len(column) + 1],
        _EMPTY_U8 if column.null_count == 0 else _view(valid, np.uint8),
        at,
        _binary("headers", fields["key"]),
        _binary("headers", fields["value"]),
    )


def _timestamps(column: pa.Array | None, missing: int | None) -> tuple[np.ndarray, int]:
    """(int64 ms, timestamp of all): the first is empty when the second holds for every row."""
    if column is None or column.null_count == len(column):
        if missing is None and (column is None or len(column)):
            raise InvalidRecord("the records have no timestamp and now_ms is not given")
        return _EMPTY_I64, 0 if missing is None else missing
    if column.null_count and missing is None:
        raise InvalidRecord("some records have no timestamp and now_ms is not given")
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
    values = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
    return (values if per_ms == 1 else np.floor_divide(values, per_ms)), 0


def _offsets(column: pa.Array | None) -> np.ndarray:
    if column is None:
        return _EMPTY_I64
    if not pa.types.is_int64(column.type) or column.null_count:
        raise InvalidRecord(
            f"column offset has the type {column.type} with {column.null_count} nulls, expected int64 without"
        )
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
