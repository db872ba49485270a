"""The program that the Avro kernel runs: its instructions, and how one is written down.

A program is int64[n, len(Word)], one instruction a row: what to do, and four operands (`Op` says which). The values of
some schemas can share one program: each begins at a row of its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.typed.columns.kernel_program import Program

LONGEST = 1_000_000
"""Instructions for one schema: types that name each other can make more columns than any table has."""


class Op(IntEnum):
    """Instructions. `column` is a column's number or -1: read and checked, but kept nowhere. `list` is two operands:
    start and end of column numbers in the program's tables."""

    END = 0  # the value is complete
    BOOLEAN = 1  # column
    INT = 2  # column, As
    LONG = 3  # column, As
    FLOAT = 4  # column, As
    DOUBLE = 5  # column
    BYTES = 6  # column: a length and as many bytes; also strings
    FIXED = 7  # column, size
    DECIMAL = 8  # column, precision, size of the fixed or -1 for bytes with their length
    ENUM = 9  # column, start in tables, symbols: (start, length) of each in the texts; start -1: not the reader's
    UNION = 10  # branches, start in tables: the row at which each begins
    JUMP = 11  # row
    NULLABLE = 12  # index of null, row after, list: nulls and a jump, or go on with the other branch
    STRUCT = 13  # column
    NULLS = 14  # list
    ARRAY = 15  # column, row of the NEXT that ends the loop; the row after this one begins an element
    NEXT = 16  # column, row of an element's begin, key column of a map or -1
    DEFAULT = 17  # start and end in the texts of defaults: the fields that follow are read there
    RESUME = 18  # go on with the value
    CALL = 19  # row
    RETURN = 20
    REFUSED = 21  # what is read here has no place in the reader schema
    SKIP_ARRAY = 22  # -, row of the SKIP_NEXT
    SKIP_NEXT = 23  # -, row of an element's begin


class Word(IntEnum):
    """Columns of a program: the instruction and its operands."""

    OP = 0
    A = 1
    B = 2
    C = 3
    D = 4


class ProgramArrays(NamedTuple):
    """A program as kernels take it."""

    rows: np.ndarray  # int64[n, len(Word)]
    tables: np.ndarray  # int64
    texts: np.ndarray  # uint8


class As(IntEnum):
    """Representation of a number in its column."""

    I32 = 0
    I64 = 1
    F32 = 2
    F64 = 3
    F32_AS_F64 = 4  # rounded to a float, which is read as double
    MILLIS = 5  # int64 microseconds, of milliseconds


class AvroFault(FaultCode):
    """Why a value is bad; NONE where it is not."""

    NONE = 0
    TRUNCATED = 1, "the value ends before it"
    NUMBER = 2, "a number that does not end within the value or within its longest form"
    LENGTH = 3, "a length below 0 or beyond the end of the value"
    COUNT = 4, "a number of elements below 0"
    BRANCH = 5, "a branch that the union does not have"
    SYMBOL = 6, "a symbol that the enum of the reader schema does not have"
    REFUSED = 7, "the reader schema has no place for it"
    DECIMAL = 8, "a decimal with more digits than its precision, or of no bytes"
    TIMESTAMP = 9, "milliseconds that are too many for a timestamp in microseconds"
    EMPTIES = 10, "more than 65,536 elements that take no bytes"
    DEPTH = 11, "nested too deeply"
    SIZE = 12, "more elements or bytes than a column of one batch holds"
    NO_SCHEMA = 13, "no schema for it"


class AvroProgram(Program):
    """Instructions as they are written. `paths[row]`: the field that a row reads."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.paths: list[str] = []
        super().__init__(self.rows, self.paths)

    def put(self, op: Op, path: str, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
        """Add an instruction; its row. Raises OptionError when a schema takes too many."""
        if len(self.rows) - self.begin >= LONGEST:
            raise OptionError(f"a schema takes more than {LONGEST:,} steps to read ({path[:200]})")
        self.rows.append([int(op), a, b, c, d])
        self.paths.append(path)
        return len(self.rows) - 1

    def set(self, row: int, operand: int, value: int) -> None:
        """Fill in an operand (1 to 4) that was not known when the row was put."""
        self.rows[row][operand] = value

    def arrays(self) -> ProgramArrays:
        return ProgramArrays(np.array(self.rows, np.int64).reshape(-1, len(Word)), *self.operands())
