"""Instruction set of the Avro kernel, and the program that writer schemas are compiled into.

A program is int64[n, len(Word)]. Each row is one instruction: an operation and up to four operands (see `Op`). Several
schemas share one program: each is compiled into a range of rows that ends with END and its routines.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.typed.columns.kernel_program import Program

MAX_ROWS = 1_000_000
"""Instructions per schema. Types that refer to each other can expand without bound."""


class Op(IntEnum):
    """Operations, with their operands in the comments.

    `column` is the number of a column, or -1 to validate the value without storing it. `columns` stands for two
    operands: start and end of a list of column numbers in the program's tables.
    """

    END = 0  # the value is complete
    BOOLEAN = 1  # column
    INT = 2  # column, StoredAs
    LONG = 3  # column, StoredAs
    FLOAT = 4  # column, StoredAs
    DOUBLE = 5  # column
    BYTES = 6  # column; bytes or a string: a length and as many bytes
    FIXED = 7  # column, size
    DECIMAL = 8  # column, precision, size of the fixed or -1 for bytes with a length
    ENUM = 9  # column, start in tables of a (start, length) in the texts for each symbol, number of symbols; a start of
    # -1 means that the reader schema does not have the symbol
    UNION = 10  # number of branches, start in tables of the row at which each branch begins
    JUMP = 11  # row
    NULLABLE = 12  # branch that is null, row to jump to after a null, columns that get a null; the next instruction
    # reads a value of the other branch
    STRUCT = 13  # column
    NULLS = 14  # columns that get a null
    ARRAY = 15  # column, row of the NEXT that ends the loop; an element begins at the next row
    NEXT = 16  # column, row at which an element begins, key column of a map or -1
    DEFAULT = 17  # start and end in the texts of encoded defaults, from which the next instructions read
    RESUME = 18  # read from the value again, after a DEFAULT
    CALL = 19  # row
    RETURN = 20
    REFUSED = 21  # the reader schema cannot represent the value
    SKIP_ARRAY = 22  # unused, row of the SKIP_NEXT
    SKIP_NEXT = 23  # unused, row at which an element begins


class Word(IntEnum):
    """Columns of a program: the operation and its operands."""

    OP = 0
    A = 1
    B = 2
    C = 3
    D = 4


class StoredAs(IntEnum):
    """Representation of a number in its column. The column's width must match."""

    I32 = 0
    I64 = 1
    F32 = 2
    F64 = 3
    F32_AS_F64 = 4  # rounded to float, stored as double
    MILLIS = 5  # milliseconds, stored as int64 microseconds


class AvroFault(FaultCode):
    """Why a value is malformed; NONE for a well-formed value."""

    NONE = 0
    TRUNCATED = 1, "the value ends before it"
    NUMBER = 2, "a number that does not end within the value or is too long"
    LENGTH = 3, "a length below 0 or beyond the end of the value"
    COUNT = 4, "a number of elements below 0"
    BRANCH = 5, "a branch that the union does not have"
    SYMBOL = 6, "a symbol that the enum of the reader schema does not have"
    REFUSED = 7, "the reader schema cannot represent it"
    DECIMAL = 8, "a decimal with more digits than its precision, or of no bytes"
    TIMESTAMP = 9, "milliseconds that are too many for a timestamp in microseconds"
    EMPTY_ELEMENTS = 10, "more than 65,536 elements that take no bytes"
    DEPTH = 11, "nested too deeply"
    SIZE = 12, "more elements or bytes than a column of one batch holds"
    NO_SCHEMA = 13, "no schema for it"


class ProgramArrays(NamedTuple):
    """A program for the kernel."""

    rows: np.ndarray  # int64[n, len(Word)]
    tables: np.ndarray  # int64
    texts: np.ndarray  # uint8


class AvroProgram(Program):
    """A program while it is compiled.

    Attributes:
        rows: The instructions.
        paths: Path of the field that each row reads, for errors.
    """

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.paths: list[str] = []
        super().__init__(self.rows, self.paths)

    def append(self, op: Op, path: str, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
        """Append an instruction with the operands a to d; return its row.

        Raises:
            OptionError: If the schema takes more than MAX_ROWS instructions.
        """
        if len(self.rows) - self.begin >= MAX_ROWS:
            raise OptionError(f"an Avro schema compiles to more than {MAX_ROWS:,} instructions (at {path[:200]})")
        self.rows.append([int(op), a, b, c, d])
        self.paths.append(path)
        return len(self.rows) - 1

    def set_operand(self, row: int, operand: Word, value: int) -> None:
        """Set an operand whose value was not known when the row was appended."""
        self.rows[row][operand] = value

    def arrays(self) -> ProgramArrays:
        return ProgramArrays(np.array(self.rows, np.int64).reshape(-1, len(Word)), *self.operands())
