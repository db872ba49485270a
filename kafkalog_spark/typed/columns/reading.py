"""Values of registered or given schemas, decoded by a program: what Avro and Protobuf have in common.

A reading has one reader schema and the columns projected of it. Each writer schema that it is shown adds its
instructions to one program, and a kernel runs them over a batch of values.
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

NO_ENTRY = -1  # the entry of a value whose schema nobody knows
NOWHERE = -1  # the place of a fault in a value of which no byte can be named


class DecodeFaults(NamedTuple):
    """Per value, n of them: which are malformed, and where. steps: row of an Avro program."""

    codes: np.ndarray  # uint8, AvroFault or ProtobufFault
    places: np.ndarray  # int64, byte of the value
    steps: np.ndarray  # int64


class SchemaReading(ABC):
    """The columns projected of a reader schema; knows the writer schemas that it was shown (`entry_of`)."""

    faults: type[FaultCode]  # with members SIZE and NO_SCHEMA
    full: int  # a program with more rows takes no further schema

    def __init__(self, projection: pa.Schema, has: pa.Schema) -> None:
        """has: the reader schema's columns. Raises OptionError for a column that it lacks or has with another type."""
        self.schema = projection
        struct = pa.struct(list(projection))
        check_projection(struct, pa.struct(list(has)), "")
        self._tree = tree_of(struct)
        self._pool = BufferPool()
        self.forget()

    def forget(self) -> None:
        """Begin without a writer schema."""
        self._program = self.new_program()
        under = self._tree.under()
        start = self._program.table(under)
        self._root = (start, start + len(under))
        self._arrays: Any = None

    @abstractmethod
    def new_program(self) -> Any:
        """An empty program."""

    @abstractmethod
    def add(self, writer: Any) -> int:
        """Add what decodes values of a writer schema; the row at which it begins. Raises OptionError."""

    @abstractmethod
    def kernel(self) -> tuple[Callable[..., int], Any]:
        """The kernel, and memory that it works in for a batch."""

    @property
    def is_full(self) -> bool:
        """True if memory has no room for another schema."""
        return len(self._program.rows) > self.full

    def entry_of(self, writer: Any) -> int:
        """Where the program for a schema begins. Raises OptionError if it cannot be read, or would be too long."""
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
        """entries int64[n]: from `entry_of` for each value's schema, or NO_ENTRY; unknown: why value i has none."""
        columns, faults = self.run(values, entries)

        def why(i: int) -> str:
            if (reason := unknown(i)) is not None:
                return reason
            text, place = self.faults(int(faults.codes[i])).text, int(faults.places[i])
            return (
                text if place == NOWHERE else f"{self.path(int(faults.steps[i]))}at byte {place} of the value: {text}"
            )

        bad = faults.codes != 0
        return Decoded(columns, bad if bad.any() else None, why)

    def path(self, step: int) -> str:
        """The field that a row of the program reads, with a space after it; empty where rows do not say it."""
        return ""

    def run(self, values: Values, entries: np.ndarray) -> tuple[pa.Array, DecodeFaults]:
        """Decode all values once."""
        from kafkalog_spark.typed.columns.buffers import ColumnBuffers  # loads numba

        n = len(values.starts)
        if self._arrays is None:
            self._arrays = self._program.arrays()
        kernel, space = self.kernel()
        buffers = ColumnBuffers(self._tree, n, int(np.maximum(values.ends - values.starts, 0).sum()), self._pool)
        faults = DecodeFaults(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
        faults.codes[(entries < 0) & (values.ends >= 0)] = self.faults["NO_SCHEMA"]
        at = 0
        while at < n:
            at = kernel(
                values, entries, at, self._arrays, self._root, buffers.table, buffers.marks, space, faults,
                buffers.missing,
            )  # fmt: skip
            if at < n and not buffers.grow():
                entries = entries.copy()
                entries[at], faults.codes[at] = NO_ENTRY, self.faults["SIZE"]
        return buffers.finish(self._program.java_texts), faults


class SingleSchemaDecoder:
    """Decodes values of one writer schema."""

    def __init__(self, reading: SchemaReading, writer: Any) -> None:
        self.schema, self._reading, self._entry = reading.schema, reading, reading.entry_of(writer)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        return self._reading.decode(Values.of(values), np.full(len(values), self._entry, np.int64))
