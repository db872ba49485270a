"""The Arrow buffers that rows are decoded into, and their conversion to a RecordBatch without a copy."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.kernels.rows import FILL_LEVELS, Cursor, Limit, Rows, Status
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, HEADERS_TYPE, record_schema
from kafkalog_spark.log.decode.scan_request import ScanRequest

BATCH_ROWS = 32 << 10
"""Rows of an Arrow batch. Smaller batches cost more in Spark's hand-over, larger ones gain nothing (benchmark
`handover`)."""
VALUE_BYTES = 8 << 20
"""Bytes of values in an Arrow batch. It is full when they are used up, because larger batches only cost memory."""
KEY_BYTES = 2 << 20  # bytes of keys in an Arrow batch
HEADERS = 2 * BATCH_ROWS  # headers in an Arrow batch
HEADER_BYTES = 2 << 20  # bytes of header keys, and of header values, in an Arrow batch

_SPARE_SETS = 2
"""Sets of buffers that are kept for reuse: one is filled while the consumer has the other. New memory is slower
(benchmark `decode`)."""

_I64 = np.iinfo(np.int64)
_BINARY = pa.binary()


class RowBuffers:
    """Buffers for the columns of a request, for one partition at a time.

    limits, cursor: arrays that the kernels read and write (`kernels.rows.Limit`, `Cursor`).
    """

    def __init__(self, topic: str, partition: int, request: ScanRequest) -> None:
        columns = request.columns
        self.schema = record_schema(columns)
        self._columns = columns
        self._topic = _Constant(topic, pa.string())
        self._partition = _Constant(partition, pa.int32())
        self.offset_filter = np.array(sorted(request.offset_in), np.int64)
        self.timestamp_filter = np.array(sorted(request.timestamp_in_ms), np.int64)
        self.limits = np.full(len(Limit), -1, np.int64)
        self.set_offset_range(_I64.min, _I64.max)
        # TIMESTAMP_LAST is inclusive: without a limit, even the timestamp 2**63 - 1 is in range.
        first, until = request.timestamp_from_ms, request.timestamp_until_ms
        last = until - 1 if until < _I64.max else _I64.max
        ends = (first, last) if first <= last else (0, -1)
        self.limits[Limit.TIMESTAMP_FROM], self.limits[Limit.TIMESTAMP_LAST] = ends
        # True if all requested columns can be derived from batch headers.
        self.header_columns_only = not {"key", "value", "headers"} & set(columns)
        unbounded = ends == (_I64.min, _I64.max)
        self.uses_timestamps = "timestamp" in columns or not unbounded or len(self.timestamp_filter) > 0
        self.limits[Limit.WANT_OFFSET] = "offset" in columns
        self.limits[Limit.WANT_TIMESTAMP] = "timestamp" in columns
        self.limits[Limit.WANT_TIMESTAMP_TYPE] = "timestampType" in columns
        self._sizes = {
            Limit.KEY_BYTES: KEY_BYTES if "key" in columns else -1,
            Limit.VALUE_BYTES: VALUE_BYTES if "value" in columns else -1,
            Limit.HEADERS: HEADERS if "headers" in columns else -1,
            Limit.HEADER_KEY_BYTES: HEADER_BYTES if "headers" in columns else -1,
            Limit.HEADER_VALUE_BYTES: HEADER_BYTES if "headers" in columns else -1,
        }
        self.cursor = np.zeros(Cursor.SAVED + FILL_LEVELS, np.int64)
        self._spare: list[tuple[bytes, Rows]] = []
        self._renew(request.first_batch_rows)

    @property
    def rows_filled(self) -> int:
        return int(self.cursor[Cursor.ROWS])

    def set_offset_range(self, offset_from: int, offset_until: int) -> None:
        """Leave out rows with an offset outside [offset_from, offset_until)."""
        self.limits[Limit.OFFSET_FROM], self.limits[Limit.OFFSET_UNTIL] = offset_from, offset_until

    def begin_partition(self, topic: str, partition: int) -> None:
        """Start another partition. Rows that were not taken are dropped."""
        if topic != self._topic.value:
            self._topic = _Constant(topic, pa.string())
        self._partition = _Constant(partition, pa.int32())
        is_unusual = self.rows_filled or any(self.limits[column] != size for column, size in self._sizes.items())
        if self._is_taken or is_unusual:
            self._renew(BATCH_ROWS if self._is_taken else int(self.limits[Limit.ROWS]))

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers in use and of those kept for reuse."""
        sets = {id(rows): rows for rows in (self.rows, *(spare for _, spare in self._spare))}
        return sum(array.nbytes for rows in sets.values() for array in rows)

    def ready(self) -> None:
        """Provide buffers to fill after `take`.

        `take` itself does not, because the consumer releases the previous batch only when it requests the next one.
        """
        if self._is_taken:
            self._renew(BATCH_ROWS)

    def begin(self) -> None:
        """Prepare the cursor for a kernel call with new batches."""
        self.ready()
        self.cursor[Cursor.BATCH] = self.cursor[Cursor.RECORD] = 0
        self.cursor[Cursor.POSITION] = -1

    def _renew(self, rows: int) -> None:
        """Provide buffers to fill: a set to which no Arrow batch refers any more, or a new one."""
        limits = self.limits
        limits[Limit.ROWS] = rows
        for column, size in self._sizes.items():
            limits[column] = size
        self.cursor[:FILL_LEVELS] = 0
        requested = limits.tobytes()
        for at, (kind, rows_set) in enumerate(self._spare):
            if kind == requested and _unused(rows_set):
                del self._spare[at]
                break
        else:
            rows_set = _new_rows(limits)
        for name in ("key_valid", "value_valid", "header_lists_valid", "header_value_valid"):
            getattr(rows_set, name).fill(0)
        self.rows = rows_set
        self._kind = requested
        self._is_taken = False

    def grow(self, status: int) -> None:
        """Enlarge the buffer into which the first row does not fit."""
        column = {
            Status.NEED_KEY_BYTES: Limit.KEY_BYTES,
            Status.NEED_VALUE_BYTES: Limit.VALUE_BYTES,
            Status.NEED_HEADERS: Limit.HEADERS,
            Status.NEED_HEADER_KEY_BYTES: Limit.HEADER_KEY_BYTES,
            Status.NEED_HEADER_VALUE_BYTES: Limit.HEADER_VALUE_BYTES,
        }[Status(status)]
        usual = self._sizes
        # Buffers that were enlarged for this row stay large, because it may need several of them.
        self._sizes = {at: int(self.limits[at]) for at in usual} | {column: int(self.cursor[Cursor.NEEDED])}
        try:
            self._renew(int(self.limits[Limit.ROWS]))
        finally:
            self._sizes = usual  # the next batch has the usual size again

    def take(self) -> pa.RecordBatch:
        """Return the rows so far as a RecordBatch. Call `ready` before the next row."""
        n = self.rows_filled
        rows, cursor = self.rows, self.cursor
        build: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._topic.repeated(n),
            "partition": lambda: self._partition.repeated(n),
            "offset": lambda: _fixed(rows.offset, n, pa.int64()),
            "timestamp": lambda: _fixed(rows.timestamp, n, COLUMN_TYPES["timestamp"]),
            "timestampType": lambda: _fixed(rows.timestamp_type, n, pa.int32()),
            "key": lambda: _binary(rows.key_offsets, rows.key_data, rows.key_valid, n, cursor[Cursor.KEY_NULLS]),
            "value": lambda: _binary(
                rows.value_offsets, rows.value_data, rows.value_valid, n, cursor[Cursor.VALUE_NULLS]
            ),
            "headers": lambda: self._header_lists(n),
        }
        if self._columns:
            batch = pa.RecordBatch.from_arrays([build[name]() for name in self._columns], schema=self.schema)
        else:  # from_arrays takes the number of rows from the first column
            batch = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), n, [None]))
        if all(self.limits[column] <= size for column, size in self._sizes.items()):
            # Do not keep a set that was enlarged for one row: the next large row needs another size.
            self._spare = [*self._spare[1 - _SPARE_SETS :], (self._kind, self.rows)]
        self.cursor[:FILL_LEVELS] = 0
        self._is_taken = True
        return batch

    def _header_lists(self, n: int) -> pa.Array:
        rows, cursor = self.rows, self.cursor
        count = int(cursor[Cursor.HEADERS])
        keys = _binary(rows.header_key_offsets, rows.header_key_data, None, count, 0, pa.string())
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid:  # like Java's consumer: invalid UTF-8 becomes U+FFFD
            raw = keys.cast(pa.binary())
            keys = pa.array([key.decode("utf-8", "replace") for key in raw.to_pylist()], pa.string())
        nulls = cursor[Cursor.HEADER_VALUE_NULLS]
        values = _binary(rows.header_value_offsets, rows.header_value_data, rows.header_value_valid, count, nulls)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
        nulls = int(cursor[Cursor.HEADER_LIST_NULLS])
        validity = pa.py_buffer(rows.header_lists_valid) if nulls else None
        return pa.Array.from_buffers(
            HEADERS_TYPE, n, [validity, pa.py_buffer(rows.header_lists)], null_count=nulls, children=[structs]
        )


def _new_rows(limits: np.ndarray) -> Rows:
    rows, headers = int(limits[Limit.ROWS]), int(limits[Limit.HEADERS])
    key, value, lists = limits[Limit.KEY_BYTES] >= 0, limits[Limit.VALUE_BYTES] >= 0, headers >= 0
    return Rows(
        offset=_array(rows, np.int64, limits[Limit.WANT_OFFSET] > 0),
        timestamp=_array(rows, np.int64, limits[Limit.WANT_TIMESTAMP] > 0),
        timestamp_type=_array(rows, np.int32, limits[Limit.WANT_TIMESTAMP_TYPE] > 0),
        key_offsets=_array(rows + 1, np.int32, key),
        key_data=_array(int(limits[Limit.KEY_BYTES]), np.uint8, key),
        key_valid=_array((rows + 7) // 8, np.uint8, key),
        value_offsets=_array(rows + 1, np.int32, value),
        value_data=_array(int(limits[Limit.VALUE_BYTES]), np.uint8, value),
        value_valid=_array((rows + 7) // 8, np.uint8, value),
        header_lists=_array(rows + 1, np.int32, lists),
        header_lists_valid=_array((rows + 7) // 8, np.uint8, lists),
        header_key_offsets=_array(headers + 1, np.int32, lists),
        header_key_data=_array(int(limits[Limit.HEADER_KEY_BYTES]), np.uint8, lists),
        header_value_offsets=_array(headers + 1, np.int32, lists),
        header_value_data=_array(int(limits[Limit.HEADER_VALUE_BYTES]), np.uint8, lists),
        header_value_valid=_array((headers + 7) // 8, np.uint8, lists),
    )


def _array(size: int, dtype: npt.DTypeLike, wanted: bool) -> np.ndarray:
    """Return memory for `size` numbers, none if not wanted. Only the first is initialised: offsets begin with 0."""
    array = np.empty(size if wanted else 0, dtype)
    array[:1] = 0
    return array


def _references(rows: Rows) -> int:
    """Return the largest reference count of the arrays."""
    return max((sys.getrefcount(array) for array in rows if array.size), default=0)


_ALONE = _references(Rows(*(np.empty(1) for _ in Rows._fields)))
"""Reference count of arrays to which only their tuple refers. It is measured, because a call adds references itself,
and their number depends on the interpreter."""
_COUNTS_ARE_EXACT = not sysconfig.get_config_var("Py_GIL_DISABLED")  # free-threaded builds count lazily


def _unused(rows: Rows) -> bool:
    """Return True if no Arrow buffer refers to the arrays any more, so that they may be filled again."""
    return _COUNTS_ARE_EXACT and _references(rows) <= _ALONE


def _fixed(values: np.ndarray, n: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(values)], null_count=0)


def _binary(
    offsets: np.ndarray, data: np.ndarray, valid: np.ndarray | None, n: int, nulls: int, kind: pa.DataType = _BINARY
) -> pa.Array:
    used = int(offsets[n])
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(
        kind, n, [validity, pa.py_buffer(offsets), pa.py_buffer(data).slice(0, used)], null_count=int(nulls)
    )


class _Constant:
    """A column with the same value in every row, built once for the largest batch and then sliced."""

    def __init__(self, value: object, kind: pa.DataType) -> None:
        self.value, self._kind = value, kind
        self._array: pa.Array | None = None

    def repeated(self, n: int) -> pa.Array:
        if self._array is None or len(self._array) < n:
            self._array = pa.repeat(pa.scalar(self.value, self._kind), n)
        return self._array.slice(0, n)
