"""Layouts of the arrays that record_walk's, message_sets' and down_conversion's kernels share. Loads no Numba."""

from __future__ import annotations

from enum import IntEnum


class WalkFact(IntEnum):
    """Result of a walk over records: int64[len(WalkFact)]."""

    COUNT = 0  # records that are whole and well-formed
    MAX_TIMESTAMP = 1  # ms, -1 when no record has one
    LOW = 2  # smallest timestamp of the records that have one
    HIGH = 3  # largest
    IN_SEQUENCE = 4  # 1: offset deltas are 0, 1, 2 ...
    NULL_KEYS = 5


class Refusal(IntEnum):
    """Rule that a record breaks (LogValidator.validateRecord)."""

    NO_KEY = 1  # in a compacted topic
    APPEND_TIME_SET = 2  # by a producer
    TIMESTAMP = 3  # out of bounds


class RecordColumn(IntEnum):
    """Columns of record_columns' result: int64[n, len(RecordColumn)]."""

    TIMESTAMP = 0  # ms
    OFFSET_DELTA = 1
    KEY_SIZE = 2  # negative for null


class SetFault(IntEnum):
    NONE = 0
    NEGATIVE_SIZE = 1
    SMALL_SIZE = 2
    UNKNOWN_MAGIC = 3
    OTHER_MAGIC = 4
    TOO_LARGE = 5
    CRC = 6
    COMPRESSED = 7
    FIELDS = 8
    APPEND_TIME_SET = 9
    TOO_MANY = 10


class Unit(IntEnum):
    """Columns of `units`, int64[n, len(Unit)]: batches, or the sets of messages that wrappers hold."""

    START = 0  # in the payload, of records or messages
    END = 1
    BASE_OFFSET = 2  # of messages: what is added to each offset
    COUNT = 3  # records
    BASE_TIMESTAMP = 4  # ms
    APPEND_TIME = 5  # 1: every record has TIMESTAMP
    TIMESTAMP = 6


class MessageColumn(IntEnum):
    """Columns of messages, int64[n, len(MessageColumn)]; positions in the payload, sizes negative for null."""

    OFFSET = 0
    TIMESTAMP = 1  # ms
    APPEND_TIME = 2  # 1: of LogAppendTime
    KEY_AT = 3
    KEY_SIZE = 4
    VALUE_AT = 5
    VALUE_SIZE = 6
    NUMBER = 7  # of the record in its unit
    END = 8  # position after what it is made of
