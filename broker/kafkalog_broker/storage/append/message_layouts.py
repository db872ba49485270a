"""Layouts of the arrays that the kernels for messages v0 and v1 and their callers share. Loads no Numba."""

from __future__ import annotations

from enum import IntEnum


class SetFault(IntEnum):
    """Why reading of a message set ended: after its last whole message (NONE), or at an invalid message."""

    NONE = 0
    NEGATIVE_SIZE = 1
    SMALL_SIZE = 2  # smaller than any message
    UNKNOWN_MAGIC = 3
    OTHER_MAGIC = 4  # than the set has
    TOO_LARGE = 5
    CRC = 6
    COMPRESSED = 7  # a wrapper, where none may be
    FIELDS = 8  # a key or value does not lie in the message
    APPEND_TIME_SET = 9  # timestamp type LogAppendTime
    TOO_MANY = 10  # no row is left for another message


class Unit(IntEnum):
    """Columns of units, int64[n, len(Unit)]: v2 batches, or the message sets of wrappers."""

    START = 0  # in the payload, of records or messages
    END = 1
    BASE_OFFSET = 2  # of messages: added to each offset
    COUNT = 3  # records
    BASE_TIMESTAMP = 4  # ms
    APPEND_TIME = 5  # 1: every record has TIMESTAMP
    TIMESTAMP = 6


class MessageColumn(IntEnum):
    """Columns of messages, int64[n, len(MessageColumn)]; positions in the payload, sizes negative for null."""

    OFFSET = 0
    TIMESTAMP = 1  # ms
    APPEND_TIME = 2  # 1 if the timestamp type is LogAppendTime
    KEY_AT = 3
    KEY_SIZE = 4
    VALUE_AT = 5
    VALUE_SIZE = 6
    NUMBER = 7  # index of the record in its unit
    END = 8  # position after the record or message
