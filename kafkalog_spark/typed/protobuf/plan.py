"""The plan that the Protobuf kernel decodes by: for each message that can occur, one slot a field.

Slots are int64[n, len(Slot)], messages int64[m, len(Message)]; operands beyond them are in tables and texts, as in a
program of Avro.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.typed.columns.kernel_program import Program

LONGEST_NAME = 512  # room for the name of an unknown number of an enum


class Slot(IntEnum):
    NUMBER = 0
    KIND = 1  # Kind
    COLUMN = 2  # -1: checked, but kept nowhere; of repeated fields and maps the list
    ELEMENT = 3  # of repeated fields: the column of the elements (of a map: its entries)
    REPEATED = 4
    MESSAGE = 5  # of messages: which
    ONEOF = 6  # start in the tables of (number of slots, slots…): those that a member of the oneof clears; -1: none
    ABSENT = 7  # Absent: what becomes of a field that is not there
    IMPLICIT = 8  # a zero on the wire is as good as absent
    NULLS = 9  # start in the tables
    NULLS_END = 10
    ENUM = 11  # start in the tables of (number, start in texts, length), sorted by number
    SYMBOLS = 12  # how many
    CHECKED = 13  # strings: must be UTF-8; enums: closed, so an unknown number is an unknown field; timestamps: Spark
    # makes a column of it, and so must be able to say it
    REQUIRED = 14
    DEFAULT = 15  # start in the texts: as a value has it, without its length
    DEFAULT_SIZE = 16
    UNKNOWN = 17  # open enums: start in the texts of what an unknown number's name begins with
    UNKNOWN_SIZE = 18


class Message(IntEnum):
    """The fields of a message: its slots, sorted by number, and the column of its struct (-1: not projected)."""

    START = 0
    SLOTS = 1
    COLUMN = 2


class Kind(IntEnum):
    """Types of fields, as they are read and kept. Up to ENUM_NAME they are varints."""

    INT32 = 0
    INT64 = 1  # and uint64, kept as it is
    UINT32_WIDE = 2  # kept as int64
    UINT64_WIDE = 3  # kept as decimal(20, 0)
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
    NULL = 0
    DEFAULT = 1


class ProtobufFault(FaultCode):
    """Why a value is bad, NONE where it is not; JOIN: it has what the kernel does not read (`reading.merged`)."""

    NONE = 0
    TRUNCATED = 1, "a field that does not end within its message, or a number that does not end at all"
    TAG = 2, "a tag that no field has: number 0, or a wire type that there is not"
    GROUP = 3, "the end of a group that has not begun, or the other way round"
    UTF8 = 4, "a string that is not UTF-8"
    MISMATCH = 5, "a field with another wire type than its own, or a number that its enum does not have"
    REQUIRED = 6, "a required field is missing"
    DEPTH = 7, "more than 100 messages inside each other"
    TIMESTAMP = 8, "a timestamp beyond what microseconds in 64 bits can say"
    SIZE = 9, "more elements or bytes than a column of one batch holds"
    NO_SCHEMA = 10, "no schema for it"
    JOIN = 11, "a message in several parts that cannot be put together"


class PlanArrays(NamedTuple):
    """A plan as kernels take it."""

    slots: np.ndarray  # int64[n, len(Slot)]
    messages: np.ndarray  # int64[m, len(Message)]
    tables: np.ndarray  # int64
    texts: np.ndarray  # uint8


class Plan(Program):
    """A plan as it is made. rows: slots."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.messages: list[list[int]] = []
        super().__init__(self.rows, self.messages)

    def arrays(self) -> PlanArrays:
        return PlanArrays(
            np.array(self.rows, np.int64).reshape(-1, len(Slot)),
            np.array(self.messages, np.int64).reshape(-1, len(Message)),
            *self.operands(),
        )
