"""Decoding of values with a program: the common part of Avro and Protobuf.

A reading has one reader schema and a projection of its columns. Each writer schema is compiled into the same program,
and a kernel runs the program over a batch of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.buffer_pool import BufferPool
from kafkalog_spark.typed.columns.projection import tree_of
from kafkalog_spark.typed.columns.projection_check import check_projection
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.schema_limits import recursion_bounded

NO_ENTRY = -1  # entry of a value whose schema is unknown
NO_POSITION = -1  # position of a fault that cannot be attributed to a byte of the value


class DecodeFaults(NamedTuple):
    """Faults of n values; the kernel fills the arrays."""

    codes: np.ndarray  # uint8[n], AvroFault or ProtobufFault; 0 for a well-formed value
    positions: np.ndarray  # int64[n], byte of the value, or NO_POSITION
    steps: np.ndarray  # int64[n], row of the Avro program that failed; unused for Protobuf


class SchemaReading(ABC):
    """Decoder of the projected columns of a reader schema, for the writer schemas that were added with `entry_of`.

    Not thread-safe.
    """

    faults: type[FaultCode]  # has members SIZE and NO_SCHEMA
    max_rows: int  # a program with more rows is full

    def __init__(self, projection: pa.Schema, available: pa.Schema) -> None:
        """Create a reading without writer schemas.

        Args:
            projection: Columns to decode.
            available: Columns of the reader schema.

        Raises:
            OptionError: If a projected column does not exist in the reader schema or has another type there.
        """
        self.schema = projection
        struct = pa.struct(list(projection))
        check_projection(struct, pa.struct(list(available)), "")
        self._tree = tree_of(struct)
        self._pool = BufferPool()
        self.reset()

    def reset(self) -> None:
        """Drop all writer schemas and their program. Entries that `entry_of` returned become invalid."""
        self._program = self.new_program()
        null_columns = self._tree.null_columns()
        start = self._program.table(null_columns)
        self._root = (start, start + len(null_columns))
        self._arrays: Any = None

    @abstractmethod
    def new_program(self) -> Any:
        """Return an empty program."""

    @abstractmethod
    def add(self, writer: Any) -> int:
        """Compile a writer schema; return the entry of its program. Raises OptionError if it cannot be read."""

    @abstractmethod
    def kernel(self) -> tuple[Callable[..., int], Any]:
        """Return the kernel and its working memory for one batch."""

    @property
    def is_full(self) -> bool:
        """Whether the program is too long to add another schema. Call `reset` first."""
        return len(self._program.rows) > self.max_rows

    def entry_of(self, writer: Any) -> int:
        """Add a writer schema.

        Args:
            writer: Avro type, or Protobuf message descriptor.

        Returns:
            The entry of its program, for `decode`.

        Raises:
            OptionError: If values of the schema cannot be read as the reader schema, or the program would be too long.
                Nothing is added then.
        """
        self._arrays = None
        self._program.mark()
        try:
            with recursion_bounded("a schema"):
                return self.add(writer)
        except OptionError:
            self._program.back_to_mark()
            raise

    def decode(
        self, values: Values, entries: np.ndarray, unknown: Callable[[int], str | None] = lambda i: None
    ) -> Decoded:
        """Decode a batch of values.

        Args:
            values: n values.
            entries: int64[n], the result of `entry_of` for the schema of each value, or NO_ENTRY.
            unknown: Return why value i has no entry, or None if it has one.
        """
        columns, faults = self.run(values, entries)

        def why(i: int) -> str:
            if (reason := unknown(i)) is not None:
                return reason
            text, position = self.faults(int(faults.codes[i])).text, int(faults.positions[i])
            if position == NO_POSITION:
                return text
            return f"{self.path(int(faults.steps[i]))}at byte {position} of the value: {text}"

        bad = faults.codes != 0
        return Decoded(columns, bad if bad.any() else None, why)

    def path(self, step: int) -> str:
        """Return the field that a row of the program reads and a space, or "" if rows do not record their fields."""
        return ""

    def run(self, values: Values, entries: np.ndarray) -> tuple[pa.Array, DecodeFaults]:
        """Decode all values. The buffers grow and the kernel resumes whenever a column is full."""
        from kafkalog_spark.typed.columns.buffers import ColumnBuffers  # loads numba

        n = len(values.starts)
        if self._arrays is None:
            self._arrays = self._program.arrays()
        kernel, space = self.kernel()
        buffers = ColumnBuffers(self._tree, n, int(np.maximum(values.ends - values.starts, 0).sum()), self._pool)
        faults = DecodeFaults(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
        faults.codes[(entries < 0) & (values.ends >= 0)] = self.faults["NO_SCHEMA"]
        i = 0
        while i < n:
            i = kernel(
                values, entries, i, self._arrays, self._root, buffers.table, buffers.marks, space, faults,
                buffers.full_column,
            )  # fmt: skip
            if i < n and not buffers.grow():
                entries = entries.copy()
                entries[i], faults.codes[i] = NO_ENTRY, self.faults["SIZE"]
        return buffers.finish(self._program.java_texts), faults


class SingleSchemaDecoder:
    """Decoder of values that all have the same writer schema."""

    def __init__(self, reading: SchemaReading, writer: Any) -> None:
        self.schema, self._reading, self._entry = reading.schema, reading, reading.entry_of(writer)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        return self._reading.decode(Values.of(values), np.full(len(values), self._entry, np.int64))
