"""Layouts of the arrays that kernels for messages of format v0 and v1 share with their callers. Loads no Numba."""

from __future__ import annotations

from enum import IntEnum


class SetFault(IntEnum):
    """Why the reading of a message set ended: after the last whole message (NONE), or at an invalid message."""

    NONE = 0
    NEGATIVE_SIZE = 1
    SMALL_SIZE = 2  # smaller than any message
    UNKNOWN_MAGIC = 3
    OTHER_MAGIC = 4  # another magic byte than the set
    TOO_LARGE = 5
    CRC = 6
    COMPRESSED = 7  # a wrapper beside other messages, or in a wrapper
    FIELDS = 8  # a key or value extends past the end of the message
    APPEND_TIME_SET = 9  # timestamp type LogAppendTime
    TOO_MANY = 10  # more messages than rows


class Unit(IntEnum):
    """Columns of units, int64[n, len(Unit)]: a v2 batch, or the message set of a wrapper."""

    START = 0  # position of the records or messages in the payload
    END = 1
    BASE_OFFSET = 2  # for messages: added to each offset
    COUNT = 3  # number of records
    BASE_TIMESTAMP = 4  # ms
    APPEND_TIME = 5  # 1: every record has TIMESTAMP
    TIMESTAMP = 6


class MessageColumn(IntEnum):
    """Columns of messages, int64[n, len(MessageColumn)]. Positions are in the payload; a negative size means null."""

    OFFSET = 0
    TIMESTAMP = 1  # ms
    APPEND_TIME = 2  # 1 if the timestamp type is LogAppendTime
    KEY_AT = 3
    KEY_SIZE = 4
    VALUE_AT = 5
    VALUE_SIZE = 6
    NUMBER = 7  # index of the record in its unit
    END = 8  # position after the record or message
