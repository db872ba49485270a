"""The Arrow buffers that rows are decoded into, and their conversion to a RecordBatch without a copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import pyarrow as pa

from kafkalog_spark.kernels.rows import FILL_LEVELS, Cursor, Limit, Rows, Status
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, HEADERS_TYPE, record_schema
from kafkalog_spark.log.decode.row_memory import RowMemory
from kafkalog_spark.log.decode.scan_request import ScanRequest

BATCH_ROWS = 32 << 10
"""Rows of an Arrow batch. Smaller batches cost more in Spark's hand-over, larger ones gain nothing (benchmark
`handover`)."""
VALUE_BYTES = 8 << 20
"""Bytes of values in an Arrow batch. It is full when they are used up, because larger batches only cost memory."""
KEY_BYTES = 2 << 20  # bytes of keys in an Arrow batch
HEADERS = 2 * BATCH_ROWS  # headers in an Arrow batch
HEADER_BYTES = 2 << 20  # bytes of header keys, and of header values, in an Arrow batch

_I64 = np.iinfo(np.int64)
_BINARY = pa.binary()
_LIMITS_BY_STATUS = {
    Status.NEED_KEY_BYTES: Limit.KEY_BYTES,
    Status.NEED_VALUE_BYTES: Limit.VALUE_BYTES,
    Status.NEED_HEADERS: Limit.HEADERS,
    Status.NEED_HEADER_KEY_BYTES: Limit.HEADER_KEY_BYTES,
    Status.NEED_HEADER_VALUE_BYTES: Limit.HEADER_VALUE_BYTES,
}


class RowBuffers:
    """Buffers for the columns of a request, for one partition at a time.

    Attributes:
        schema: Schema of the batches.
        header_columns_only: True if all requested columns can be derived from batch headers.
        uses_timestamps: True if the timestamps of records are needed, for a column or for a condition.
        offset_filter, timestamp_filter: Sorted offsets and timestamps of the requested rows; empty for no condition.
        limits, cursor: Arrays that the kernels read and write (`kernels.rows.Limit`, `Cursor`).
        rows: The buffer set that is being filled.
    """

    def __init__(self, topic: str, partition: int, request: ScanRequest) -> None:
        columns = request.columns
        self.schema = record_schema(columns)
        self._columns = columns
        self._topic = _Constant(topic, pa.string())
        self._partition = _Constant(partition, pa.int32())
        self.header_columns_only = not {"key", "value", "headers"} & set(columns)
        self.offset_filter = np.array(sorted(request.offset_in), np.int64)
        self.timestamp_filter = np.array(sorted(request.timestamp_in_ms), np.int64)
        first, last = _timestamp_bounds(request)
        has_timestamp_condition = (first, last) != (_I64.min, _I64.max) or len(self.timestamp_filter) > 0
        self.uses_timestamps = "timestamp" in columns or has_timestamp_condition

        self.limits = np.full(len(Limit), -1, np.int64)
        self.set_offset_range(_I64.min, _I64.max)
        self.limits[Limit.TIMESTAMP_FROM], self.limits[Limit.TIMESTAMP_LAST] = first, last
        self.limits[Limit.WANT_OFFSET] = "offset" in columns
        self.limits[Limit.WANT_TIMESTAMP] = "timestamp" in columns
        self.limits[Limit.WANT_TIMESTAMP_TYPE] = "timestampType" in columns
        self._default_sizes = _default_sizes(columns)
        self.cursor = np.zeros(Cursor.SAVED + FILL_LEVELS, np.int64)
        self._memory = RowMemory()
        self.rows = self._switch_buffers(request.first_batch_rows, self._default_sizes)
        self._is_taken = False

    @property
    def rows_filled(self) -> int:
        return int(self.cursor[Cursor.ROWS])

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers in use and of those kept for reuse."""
        return self._memory.nbytes(self.rows)

    def begin_partition(self, topic: str, partition: int) -> None:
        """Start another partition. Rows that were not taken are dropped."""
        if topic != self._topic.value:
            self._topic = _Constant(topic, pa.string())
        self._partition = _Constant(partition, pa.int32())
        if self._is_taken:
            self.ensure_buffers()
        elif self.rows_filled or any(self.limits[limit] != size for limit, size in self._default_sizes.items()):
            self.rows = self._switch_buffers(int(self.limits[Limit.ROWS]), self._default_sizes)

    def set_offset_range(self, offset_from: int, offset_until: int) -> None:
        """Leave out rows with an offset outside [offset_from, offset_until)."""
        self.limits[Limit.OFFSET_FROM], self.limits[Limit.OFFSET_UNTIL] = offset_from, offset_until

    def begin_call(self) -> None:
        """Prepare the cursor for a kernel call with new batches."""
        self.ensure_buffers()
        self.cursor[Cursor.BATCH] = self.cursor[Cursor.RECORD] = 0
        self.cursor[Cursor.POSITION] = -1

    def grow(self, status: int) -> None:
        """Enlarge the buffer that is too small for a single row. No row may be in the buffers."""
        # Keep what earlier calls enlarged for the same row: its key and its value may both be too large.
        sizes = {limit: int(self.limits[limit]) for limit in self._default_sizes}
        sizes[_LIMITS_BY_STATUS[Status(status)]] = int(self.cursor[Cursor.NEEDED])
        self.rows = self._switch_buffers(int(self.limits[Limit.ROWS]), sizes)

    def take(self) -> pa.RecordBatch:
        """Return the rows so far as a RecordBatch. Call `ensure_buffers` before the next row."""
        n = self.rows_filled
        rows, cursor = self.rows, self.cursor
        build: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._topic.repeated(n),
            "partition": lambda: self._partition.repeated(n),
            "offset": lambda: _fixed_width_array(rows.offset, n, pa.int64()),
            "timestamp": lambda: _fixed_width_array(rows.timestamp, n, COLUMN_TYPES["timestamp"]),
            "timestampType": lambda: _fixed_width_array(rows.timestamp_type, n, pa.int32()),
            "key": lambda: _binary_array(rows.key_offsets, rows.key_data, rows.key_valid, n, cursor[Cursor.KEY_NULLS]),
            "value": lambda: _binary_array(
                rows.value_offsets, rows.value_data, rows.value_valid, n, cursor[Cursor.VALUE_NULLS]
            ),
            "headers": lambda: self._header_lists(n),
        }
        if self._columns:
            batch = pa.RecordBatch.from_arrays([build[name]() for name in self._columns], schema=self.schema)
        else:  # from_arrays takes the number of rows from the first column
            batch = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), n, [None]))
        if all(self.limits[limit] <= size for limit, size in self._default_sizes.items()):
            # Do not keep a set that was enlarged for one row: the next large row needs another size.
            self._memory.keep(self.rows)
        self.cursor[:FILL_LEVELS] = 0
        self._is_taken = True
        return batch

    def ensure_buffers(self) -> None:
        """Make buffers available after `take`.

        Deferred until now, because only the request for the next batch releases the previous one.
        """
        if self._is_taken:
            self.rows = self._switch_buffers(BATCH_ROWS, self._default_sizes)
            self._is_taken = False

    def _switch_buffers(self, row_count: int, sizes: Mapping[Limit, int]) -> Rows:
        """Return an empty buffer set of these sizes, after setting `limits` and `cursor` for it."""
        self.limits[Limit.ROWS] = row_count
        for limit, size in sizes.items():
            self.limits[limit] = size
        self.cursor[:FILL_LEVELS] = 0
        return self._memory.allocate(self.limits)

    def _header_lists(self, n: int) -> pa.Array:
        rows, cursor = self.rows, self.cursor
        count = int(cursor[Cursor.HEADERS])
        keys = _binary_array(rows.header_key_offsets, rows.header_key_data, None, count, 0, pa.string())
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid:  # like Java's consumer: invalid UTF-8 becomes U+FFFD
            raw = keys.cast(pa.binary())
            keys = pa.array([key.decode("utf-8", "replace") for key in raw.to_pylist()], pa.string())
        nulls = cursor[Cursor.HEADER_VALUE_NULLS]
        values = _binary_array(rows.header_value_offsets, rows.header_value_data, rows.header_value_valid, count, nulls)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
        nulls = int(cursor[Cursor.HEADER_LIST_NULLS])
        validity = pa.py_buffer(rows.header_lists_valid) if nulls else None
        return pa.Array.from_buffers(
            HEADERS_TYPE, n, [validity, pa.py_buffer(rows.header_lists)], null_count=nulls, children=[structs]
        )


def _timestamp_bounds(request: ScanRequest) -> tuple[int, int]:
    """Return the lowest and the highest requested timestamp, both inclusive; (0, -1) if there is none.

    TIMESTAMP_LAST is inclusive: without a limit, even the timestamp 2**63 - 1 is in range.
    """
    first, until = request.timestamp_from_ms, request.timestamp_until_ms
    last = until - 1 if until < _I64.max else _I64.max
    return (first, last) if first <= last else (0, -1)


def _default_sizes(columns: Collection[str]) -> dict[Limit, int]:
    """Return the sizes of the buffers that can grow; -1 if the column is not requested."""
    return {
        Limit.KEY_BYTES: KEY_BYTES if "key" in columns else -1,
        Limit.VALUE_BYTES: VALUE_BYTES if "value" in columns else -1,
        Limit.HEADERS: HEADERS if "headers" in columns else -1,
        Limit.HEADER_KEY_BYTES: HEADER_BYTES if "headers" in columns else -1,
        Limit.HEADER_VALUE_BYTES: HEADER_BYTES if "headers" in columns else -1,
    }


def _fixed_width_array(values: np.ndarray, n: int, data_type: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(data_type, n, [None, pa.py_buffer(values)], null_count=0)


def _binary_array(
    offsets: np.ndarray,
    data: np.ndarray,
    valid: np.ndarray | None,
    n: int,
    nulls: int,
    data_type: pa.DataType = _BINARY,
) -> pa.Array:
    used = int(offsets[n])
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(
        data_type, n, [validity, pa.py_buffer(offsets), pa.py_buffer(data).slice(0, used)], null_count=int(nulls)
    )


class _Constant:
    """A column with the same value in every row, built once for the largest batch and then sliced."""

    def __init__(self, value: object, data_type: pa.DataType) -> None:
        self.value, self._data_type = value, data_type
        self._array: pa.Array | None = None

    def repeated(self, n: int) -> pa.Array:
        if self._array is None or len(self._array) < n:
            self._array = pa.repeat(pa.scalar(self.value, self._data_type), n)
        return self._array.slice(0, n)
