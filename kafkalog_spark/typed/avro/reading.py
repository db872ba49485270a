"""Avro values of one or several writer schemas, decoded into the projected columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.avro.aliases import applied
from kafkalog_spark.typed.avro.program import LONGEST, AvroFault, AvroProgram, Op
from kafkalog_spark.typed.avro.resolve import _Compiler, _field
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.types import VALUE, AvroMeaning, columns_of, root_record
from kafkalog_spark.typed.columns.reading import SchemaReading


class AvroReading(SchemaReading):
    """A reader schema with the columns projected of it; knows the writer schemas it was shown (`entry_of`)."""

    faults, max_rows = AvroFault, LONGEST // 2

    def __init__(self, reader: AvroType, projection: pa.Schema, meaning: AvroMeaning) -> None:
        """Raises OptionError for a projected column that the reader schema does not have, or has with another type."""
        self._reader, self._meaning = reader, meaning
        super().__init__(projection, columns_of(reader, meaning))

    def new_program(self) -> AvroProgram:
        return AvroProgram()

    def add(self, writer: AvroType) -> int:
        compiler, begin = _Compiler(self._program, self._meaning), len(self._program.rows)
        writer = applied(writer, self._reader)
        if root_record(self._reader) is not None:
            compiler.read(writer, self._reader, self._tree, VALUE, root=True)
        else:
            self._program.put(Op.STRUCT, VALUE, self._tree.number)
            compiler.read(writer, self._reader, _field(self._tree, VALUE), VALUE)
        self._program.put(Op.END, VALUE)
        compiler.routines()
        return begin

    def kernel(self) -> tuple[Callable[..., int], np.ndarray]:
        from kafkalog_spark.typed.avro.kernel import STACK, Loop, decode_avro  # a query is planned without numba

        return decode_avro, np.empty((STACK, len(Loop)), np.int64)

    def path(self, step: int) -> str:
        return f"{self._program.paths[step].removeprefix(f'{VALUE}.')} "
