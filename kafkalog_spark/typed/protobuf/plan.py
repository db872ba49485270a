"""Decoding plan for the Protobuf kernel: a row of `messages` for each message type, a row of `slots` for each field.

`MessageCell` and `SlotCell` name the cells of these rows. A column is always one of the columns into which values are
decoded (`ColumnTree`). Lists of integers and bytes that belong to a field are in `tables` and `texts`; the cells hold
where they begin.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.typed.columns.kernel_program import Program

MAX_ENUM_NAME = 512  # limit on the bytes of a generated name: UNKNOWN_ENUM_VALUE_<enum>_<number>
NO_ONEOF = -1  # SlotCell.ONEOF of a field that is in no oneof with other fields


class MessageCell(IntEnum):
    """Cells of a row of `messages`, int64[m, len(MessageCell)]."""

    FIRST_SLOT = 0  # row of `slots`; the slots of a message are sorted by field number
    SLOT_COUNT = 1
    COLUMN = 2  # column of the struct, or -1 if it is not projected


class SlotCell(IntEnum):
    """Cells of a slot: a row of `slots`, int64[n, len(SlotCell)]."""

    NUMBER = 0  # field number
    KIND = 1  # Kind
    COLUMN = 2  # column of the field (of a repeated field: the list), or -1 to validate without storing
    ELEMENT = 3  # repeated fields: column of the elements (of a map: its entries)
    IS_REPEATED = 4  # 1 if the field is repeated
    MESSAGE = 5  # message fields: row of `messages`
    ONEOF = 6  # where `tables` has [n, then the n fields of the oneof as indices in the message]; or NO_ONEOF
    ABSENT = 7  # Absent
    HAS_NO_PRESENCE = 8  # 1 if a zero on the wire means the same as absence; 0 in entries of maps
    NULL_COLUMNS = 9  # where `tables` has the columns that get a null if the field is null
    NULL_COLUMNS_END = 10  # end of these
    SYMBOL_TABLE = 11  # enums: where `tables` has (number, start in texts, length) for each symbol, sorted by number
    SYMBOL_COUNT = 12
    MUST_BE_UTF8 = 13  # strings: 1 if other bytes than UTF-8 are a fault
    IS_CLOSED = 14  # enums: 1 if a number without a symbol is an unknown field; in the outermost message it is a fault
    MUST_FIT = 15  # times: 1 if one that does not fit 64 bits of microseconds is a fault
    IS_REQUIRED = 16  # 1 if the field is required
    DEFAULT = 17  # where `texts` has the encoded default, without a length
    DEFAULT_SIZE = 18  # its bytes
    UNKNOWN_PREFIX = 19  # enums: where `texts` has the name of an unknown number up to the number
    UNKNOWN_PREFIX_SIZE = 20  # its bytes


class Kind(IntEnum):
    """How a field is encoded and stored.

    The order matters: values of the kinds up to ENUM_NAME are varints, those up to FLOAT have four bytes, those up to
    DOUBLE eight bytes, and the others a length and as many bytes.
    """

    INT32 = 0
    INT64 = 1  # also uint64, stored with the same bits
    UINT32_WIDE = 2  # stored as int64
    UINT64_WIDE = 3  # stored as decimal(20, 0)
    SINT32 = 4
    SINT64 = 5
    BOOL = 6
    ENUM_INT = 7
    ENUM_NAME = 8
    FIXED32 = 9
    FLOAT = 10
    FIXED64 = 11
    DOUBLE = 12
    STRING = 13
    BYTES = 14
    MESSAGE = 15
    TIMESTAMP = 16


class Absent(IntEnum):
    """Value of a field that a message does not contain."""

    NULL = 0
    DEFAULT = 1


class ProtobufFault(FaultCode):
    """Why a value is malformed; NONE for a well-formed value.

    NEEDS_MERGE is not final: the kernel cannot decode the value until `message_merging` has rewritten it.
    """

    NONE = 0
    TRUNCATED = 1, "a field that does not end within its message, or a number that does not end at all"
    TAG = 2, "an invalid tag: field number 0, or an unknown wire type"
    GROUP = 3, "the end of a group that has not begun, or a group without an end"
    UTF8 = 4, "a string that is not UTF-8"
    MISMATCH = 5, "a field with another wire type than its own, or a number that its enum does not have"
    REQUIRED = 6, "a required field is missing"
    DEPTH = 7, "more than 100 messages inside each other"
    TIMESTAMP = 8, "a timestamp that does not fit microseconds in 64 bits"
    SIZE = 9, "more elements or bytes than a column of one batch holds"
    NO_SCHEMA = 10, "no schema for it"
    NEEDS_MERGE = 11, "a message in several parts that cannot be merged"


class PlanArrays(NamedTuple):
    """A compiled plan, as the kernel gets it."""

    slots: np.ndarray  # int64[n, len(SlotCell)]
    messages: np.ndarray  # int64[m, len(MessageCell)]
    tables: np.ndarray  # int64[:]
    texts: np.ndarray  # uint8[:]


class Plan(Program):
    """A plan while it is compiled, with the arrays of `PlanArrays` as lists."""

    def __init__(self) -> None:
        self.slots: list[list[int]] = []
        self.messages: list[list[int]] = []
        super().__init__(self.slots, self.messages)

    def arrays(self) -> PlanArrays:
        return PlanArrays(
            np.array(self.slots, np.int64).reshape(-1, len(SlotCell)),
            np.array(self.messages, np.int64).reshape(-1, len(MessageCell)),
            *self.operands(),
        )
