"""Decodes one batch of JSON values: allocates the kernel's buffers, and converts them to Arrow columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.buffer_pool import BufferPool
from kafkalog_spark.typed.columns.buffers import FilledColumn, arrow_array
from kafkalog_spark.typed.columns.column_builder_kernel import Col
from kafkalog_spark.typed.columns.projection import ColumnTree
from kafkalog_spark.typed.columns.time_zones import us_of_locals
from kafkalog_spark.typed.json import kernel
from kafkalog_spark.typed.json.program import LENGTH_BITS, JsonProgram, Node, NodeKind
from kafkalog_spark.typed.json.scalar_kernel import (
    IN_OPTIONS_ZONE,
    MAX_STRING,
    NUMBER_LENGTH_BITS,
    JsonCells,
    LongNumber,
    Used,
)

_INITIAL_NUMBERS = 1024
_ALL_COLUMNS = -1  # instead of a column's number, for memory that all columns share
_ELEMENTS_PER_ROW = 2
"""Initial capacity of a list level, for each row of the batch. It is doubled if it is too small."""
_MAX_INT32 = (1 << 31) - 1


class StringsTooLarge(Exception):
    """The strings of a column are too large for one Arrow array."""


class JsonBatch:
    """A decoded batch.

    Attributes:
        deferred: int64[m], the rows that the fallback has to decode.
    """

    def __init__(self, program: JsonProgram, pool: BufferPool, values: Values) -> None:
        """Decode a batch.

        Args:
            program: The compiled schema.
            pool: Pool of arrays, used for this schema only.
            values: The values.
        """
        self._program, self._pool, self._data = program, pool, values.data
        rows = len(values.starts)
        capacity = np.full(program.list_levels, rows * _ELEMENTS_PER_ROW + 16)
        capacity[kernel.ROOT] = rows
        while not self._decode(values, capacity):
            pass
        self._parse_long_numbers()

    def _decode(self, values: Values, capacity: np.ndarray) -> bool:
        """Decode all values. If a list level is full, double its capacity and return False."""
        program, pool, rows = self._program, self._pool, len(values.starts)
        total = program.place_cells(capacity)
        cells = pool.take(_ALL_COLUMNS, Col.DATA, total, np.int64)[:total]
        valid = pool.take(_ALL_COLUMNS, Col.VALID, total, np.uint8)[:total]
        cells.fill(0)
        valid.fill(0)
        unescaped = pool.take(_ALL_COLUMNS, Col.BYTES, len(values.data), np.uint8)
        numbers = np.empty((_INITIAL_NUMBERS, len(LongNumber)), np.int64)
        used = np.zeros(len(Used), np.int64)
        self._columns = JsonCells(cells, valid, unescaped, numbers, np.zeros_like(capacity), capacity, used)
        expected_rows = len(program.types) * kernel.EXPECTED_NAMES
        workspace = kernel.Workspace(
            np.empty((kernel.DEPTH, len(kernel.Frame)), np.int64),
            np.empty_like(capacity),
            np.zeros(expected_rows * kernel.EXPECTED_WIDTH, np.int64),
        )
        deferred = np.zeros(rows, np.uint8)
        row = 0
        while (row := kernel.decode_json(values, row, program.tables, self._columns, workspace, deferred)) < rows:
            if used[Used.FULL_LEVEL] >= 0:
                capacity[used[Used.FULL_LEVEL]] *= 2
                return False
            numbers = np.concatenate([numbers, np.empty_like(numbers)])
            self._columns = self._columns._replace(numbers=numbers)
        self._columns.counts[kernel.ROOT] = rows
        self.deferred = np.flatnonzero(deferred)
        return True

    def _parse_long_numbers(self) -> None:
        """Parse the numbers that the kernel could not compute exactly. Arrow's parser rounds like Java's."""
        numbers = self._columns.numbers[: self._columns.used[Used.NUMBERS]]
        for node in np.unique(numbers[:, LongNumber.NODE]):
            node_numbers = numbers[numbers[:, LongNumber.NODE] == node]
            texts = node_numbers[:, LongNumber.TEXT]
            lengths = texts & ((1 << NUMBER_LENGTH_BITS) - 1)
            string_cells = texts >> NUMBER_LENGTH_BITS << LENGTH_BITS | lengths
            offsets, text = self._gather_strings(int(node), string_cells, lengths, np.ones(len(texts), np.uint8))
            strings = pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(text))
            parsed = strings.cast(self._program.types[node]).to_numpy(zero_copy_only=False)
            indexes = self._program.tables.nodes[node, Node.FIRST_CELL] + node_numbers[:, LongNumber.ROW]
            self._columns.cells[indexes] = parsed.astype(np.float64).view(np.int64)

    def columns(self) -> pa.StructArray:
        """Return the columns. Deferred rows, and those of null values, are null. Raises StringsTooLarge."""
        return arrow_array(self._program.tree, self._filled_column)

    def _filled_column(self, column: ColumnTree) -> FilledColumn:
        node = self._program.tables.nodes[column.number]
        count = int(self._columns.counts[node[Node.LIST_LEVEL]])
        first = int(node[Node.FIRST_CELL])
        cells, valid = self._columns.cells[first : first + count], self._columns.valid[first : first + count]
        match self._program.kind(column):
            case NodeKind.STRUCT:
                return FilledColumn(count, valid)
            case NodeKind.ENTRIES:
                return FilledColumn(count, None)
            case NodeKind.ARRAY | NodeKind.MAP:
                return FilledColumn(count, valid, offsets=_offsets(cells))
            case NodeKind.STRING:
                offsets, text = self._gather_strings(column.number, cells, cells & MAX_STRING, valid)
                return FilledColumn(count, valid, text, offsets)
            case NodeKind.DEFERRED if pa.types.is_binary(column.type):  # all values are null
                return FilledColumn(count, valid, cells, np.zeros(count + 1, np.int32))
            case NodeKind.TIMESTAMP:
                local = valid == IN_OPTIONS_ZONE
                if local.any():
                    cells[local] = us_of_locals(cells[local], self._program.zone)
        return FilledColumn(count, valid, _as_fixed_width(column.type, cells))

    def _gather_strings(
        self, number: int, cells: np.ndarray, lengths: np.ndarray, valid: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets int32[n + 1], bytes) of the strings of cells. number: column of the node."""
        offsets = _offsets(lengths)
        text = self._pool.take(number, Col.DATA, int(offsets[-1]), np.uint8)
        kernel.gather_strings(self._data, self._columns.unescaped, cells, valid, offsets, text)
        return offsets, text


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _MAX_INT32:
        raise StringsTooLarge
    return offsets.astype(np.int32)


def _as_fixed_width(type_: pa.DataType, cells: np.ndarray) -> np.ndarray:
    if pa.types.is_floating(type_):
        return cells.view(np.float64).astype(type_.to_pandas_dtype(), copy=False)
    if pa.types.is_decimal(type_):
        return np.column_stack([cells, cells >> 63])
    if pa.types.is_boolean(type_):
        return cells.astype(np.uint8)
    return cells.astype(f"i{type_.bit_width // 8}", copy=False)
