"""Values of one or several writer schemas, decoded into the columns of the projection of one reader schema.

The kernels are loaded with the first values: a query is planned without them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.program import FAULTS, FULL, AvroFault, Program, ProgramArrays
from kafkalog_spark.typed.avro.resolve import add_reading
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.types import VALUE, AvroMeaning, columns_of
from kafkalog_spark.typed.columns.buffer_pool import BufferPool, Values
from kafkalog_spark.typed.columns.projection import check_projection, tree_of
from kafkalog_spark.typed.ddl import recursion_bounded
from kafkalog_spark.typed.decoder import Decoded

NO_PROGRAM = -1
"""The entry of a value whose schema nobody knows."""


class AvroReading:
    """A reader schema with the columns projected of it; knows the writer schemas it was shown (`entry_of`)."""

    def __init__(self, reader: AvroType, projection: pa.Schema, meaning: AvroMeaning) -> None:
        """Raises OptionError for a projected column that the reader schema does not have, or has with another type."""
        self.schema = projection
        check_projection(pa.struct(list(projection)), pa.struct(list(columns_of(reader, meaning))), "")
        self._reader, self._meaning = reader, meaning
        self._tree = tree_of(pa.struct(list(projection)))
        self._pool = BufferPool()
        self.forget()

    def forget(self) -> None:
        """Begin without a writer schema."""
        self._program = Program()
        under = self._tree.under()
        start = self._program.table(under)
        self._root = (start, start + len(under))
        self._arrays: ProgramArrays | None = None

    @property
    def is_full(self) -> bool:
        """True if memory has no room for another schema."""
        return len(self._program.rows) > FULL

    def entry_of(self, writer: AvroType) -> int:
        """Where the program for values of that schema begins. Raises OptionError when it would be too long."""
        self._arrays = None
        mark = self._program.mark()
        try:
            with recursion_bounded("an Avro schema"):
                return add_reading(self._program, writer, self._reader, self._tree, self._meaning)
        except OptionError:
            self._program.back_to(mark)
            raise

    def decode(
        self, values: Values, entries: np.ndarray, unknown: Callable[[int], str | None] = lambda i: None
    ) -> Decoded:
        """entries int64[n]: what `entry_of` gave for each value's schema, or NO_PROGRAM; unknown: why value i has
        none."""
        from kafkalog_spark.typed.avro.kernel import STACK, AvroFaults, Loop, decode_avro
        from kafkalog_spark.typed.columns.buffers import ColumnBuffers

        n = len(values.starts)
        if self._arrays is None:
            self._arrays = self._program.arrays()
        sizes = int(np.maximum(values.ends - values.starts, 0).sum())
        buffers = ColumnBuffers(self._tree, n, sizes, self._pool)
        faults = AvroFaults(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
        if (without := entries < 0).any():
            faults.codes[without & (values.ends >= 0)] = AvroFault.NO_PROGRAM
        stack, at = np.empty((STACK, len(Loop)), np.int64), 0
        while at < n:
            at = decode_avro(
                values, entries, at, self._arrays, self._root, buffers.table, buffers.marks, stack, faults,
                buffers.missing,
            )  # fmt: skip
            if at < n and not buffers.grow():
                entries = entries.copy()
                entries[at], faults.codes[at] = NO_PROGRAM, AvroFault.SIZE
        paths = self._program.paths

        def why(i: int) -> str:
            if (reason := unknown(i)) is not None:
                return reason
            path = paths[int(faults.steps[i])].removeprefix(f"{VALUE}.")
            return f"{path} at byte {int(faults.places[i])} of the value: {FAULTS[AvroFault(int(faults.codes[i]))]}"

        bad = faults.codes != AvroFault.NONE
        return Decoded(buffers.finish(self._program.java_texts), bad if bad.any() else None, why)
