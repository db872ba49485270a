"""Decoder of Avro values with one or several writer schemas into the projected columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.avro.aliases import apply_aliases
from kafkalog_spark.typed.avro.program import MAX_ROWS, AvroFault, AvroProgram, Op
from kafkalog_spark.typed.avro.program_compiler import ProgramCompiler
from kafkalog_spark.typed.avro.read_options import AvroReadOptions
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.types import VALUE, columns_of, root_record
from kafkalog_spark.typed.columns.resolving_decoder import ResolvingDecoder


class AvroResolvingDecoder(ResolvingDecoder):
    """Decoder of the projected columns of an Avro reader schema."""

    fault_codes, max_rows = AvroFault, MAX_ROWS // 2

    def __init__(self, reader: AvroType, projection: pa.Schema, read_options: AvroReadOptions) -> None:
        """Create a decoder without writer schemas.

        Args:
            reader: Schema that values are read as.
            projection: Columns to decode.
            read_options: Options that choose the types of columns.

        Raises:
            OptionError: If a projected column does not exist in the reader schema or has another type there.
        """
        self._reader, self._read_options = reader, read_options
        super().__init__(projection, columns_of(reader, read_options))

    def _new_program(self) -> AvroProgram:
        return AvroProgram()

    def _compile(self, writer: AvroType) -> int:
        compiler, entry = ProgramCompiler(self._program, self._read_options), len(self._program.rows)
        writer = apply_aliases(writer, self._reader)
        if root_record(self._reader) is not None:
            compiler.read(writer, self._reader, self._tree, VALUE, is_root=True)
        else:
            self._program.append(Op.STRUCT, VALUE, self._tree.number)
            compiler.read(writer, self._reader, self._tree.field(VALUE), VALUE)
        self._program.append(Op.END, VALUE)
        compiler.append_routines()
        return entry

    def _kernel(self) -> tuple[Callable[..., int], np.ndarray]:
        from kafkalog_spark.typed.avro.kernel import (  # loads numba, which planning a query does not need
            STACK_SIZE,
            Loop,
            decode_avro,
        )

        return decode_avro, np.empty((STACK_SIZE, len(Loop)), np.int64)

    def _field_of_row(self, row: int) -> str:
        return f"{self._program.paths[row].removeprefix(f'{VALUE}.')} "
