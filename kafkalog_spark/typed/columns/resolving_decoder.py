"""The common part of the Avro and Protobuf decoders, which resolve writer schemas to a reader schema."""

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

NO_ENTRY = -1  # instead of the entry of a schema: the schema is unknown
NO_POSITION = -1  # instead of a position: the fault cannot be attributed to a byte of the value


class DecodeFaults(NamedTuple):
    """Faults of n values; the kernel fills the arrays."""

    codes: np.ndarray  # uint8[n], AvroFault or ProtobufFault; 0 for a well-formed value
    positions: np.ndarray  # int64[n], byte of the value, or NO_POSITION
    rows: np.ndarray  # int64[n], row of the Avro program that failed; unused for Protobuf


class ResolvingDecoder(ABC):
    """Decoder of the projected columns of one reader schema, for values with any number of writer schemas.

    `add_schema` compiles a writer schema and appends it to a program. A kernel runs the program over a batch of values.
    Not thread-safe.
    """

    fault_codes: type[FaultCode]  # has members SIZE and NO_SCHEMA
    max_rows: int  # a program with more rows is full

    def __init__(self, projection: pa.Schema, available: pa.Schema) -> None:
        """Create a decoder without writer schemas.

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
        """Remove all writer schemas. Entries that `add_schema` returned become invalid."""
        self._program = self._new_program()
        null_columns = self._tree.null_columns()
        start = self._program.add_table(null_columns)
        self._root = (start, start + len(null_columns))
        self._arrays: Any = None

    @abstractmethod
    def _new_program(self) -> Any:
        """Return an empty program."""

    @abstractmethod
    def _compile(self, writer: Any) -> int:
        """Append a writer schema to the program and return its entry. Raises OptionError if it cannot be read."""

    @abstractmethod
    def _kernel(self) -> tuple[Callable[..., int], Any]:
        """Return (kernel, its working memory for one batch)."""

    @property
    def is_full(self) -> bool:
        """Whether the program is too long to add another schema; call `reset` before the next `add_schema`."""
        return bool(self._program.row_count > self.max_rows)

    def add_schema(self, writer: Any) -> int:
        """Add a writer schema.

        Args:
            writer: Avro type, or Protobuf message descriptor.

        Returns:
            The entry of the schema, for `decode`: where its part of the program begins.

        Raises:
            OptionError: If values of the schema cannot be read as the reader schema, or the program would be too long.
                The program is then unchanged.
        """
        self._arrays = None
        self._program.mark()
        try:
            with recursion_bounded("a schema"):
                return self._compile(writer)
        except OptionError:
            self._program.back_to_mark()
            raise

    def decode(
        self, values: Values, entries: np.ndarray, why_no_entry: Callable[[int], str | None] = lambda i: None
    ) -> Decoded:
        """Decode a batch of values.

        Args:
            values: n values.
            entries: int64[n], the result of `add_schema` for the schema of each value, or NO_ENTRY.
            why_no_entry: Return why value i has no entry, or None if it has one.
        """
        columns, faults = self._decode_columns(values, entries)

        def why(i: int) -> str:
            if (reason := why_no_entry(i)) is not None:
                return reason
            text, position = self.fault_codes(int(faults.codes[i])).text, int(faults.positions[i])
            if position == NO_POSITION:
                return text
            return f"{self._field_of_row(int(faults.rows[i]))}at byte {position} of the value: {text}"

        bad = faults.codes != 0
        return Decoded(columns, bad if bad.any() else None, why)

    def _field_of_row(self, row: int) -> str:
        """Return the path of the field that a row of the program reads and a space, or "" if it is not recorded."""
        return ""

    def _decode_columns(self, values: Values, entries: np.ndarray) -> tuple[pa.Array, DecodeFaults]:
        """Decode all values. Whenever a column is full, its buffers grow and the kernel resumes at the same value."""
        from kafkalog_spark.typed.columns.buffers import ColumnBuffers  # loads numba

        n = len(values.starts)
        if self._arrays is None:
            self._arrays = self._program.arrays()
        kernel, workspace = self._kernel()
        buffers = ColumnBuffers(self._tree, n, int(np.maximum(values.ends - values.starts, 0).sum()), self._pool)
        faults = DecodeFaults(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
        faults.codes[(entries < 0) & (values.ends >= 0)] = self.fault_codes["NO_SCHEMA"]
        i = 0
        while i < n:
            i = kernel(
                values, entries, i, self._arrays, self._root, buffers.table, buffers.marks, workspace, faults,
                buffers.full_column,
            )  # fmt: skip
            if i < n and not buffers.grow():
                entries = entries.copy()
                entries[i], faults.codes[i] = NO_ENTRY, self.fault_codes["SIZE"]
        return buffers.finish(self._program.java_texts), faults


class SingleSchemaDecoder:
    """Decoder of values that all have the same writer schema."""

    def __init__(self, decoder: ResolvingDecoder, writer: Any) -> None:
        self.schema, self._decoder, self._entry = decoder.schema, decoder, decoder.add_schema(writer)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        return self._decoder.decode(Values.of(values), np.full(len(values), self._entry, np.int64))
