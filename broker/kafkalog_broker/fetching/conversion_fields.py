"""Layouts of the arrays that the kernels of down-conversion share with their caller. Loads no Numba."""

from __future__ import annotations

from enum import IntEnum


class Unit(IntEnum):
    """Columns of `units`, int64[n, len(Unit)]: batches, or the sets of messages that wrappers hold."""

    START = 0  # in the payload, of records or messages
    END = 1
    BASE_OFFSET = 2  # of messages: what is added to each offset
    COUNT = 3  # records
    BASE_TIMESTAMP = 4  # ms
    APPEND_TIME = 5  # 1: every record has TIMESTAMP
    TIMESTAMP = 6


class Message(IntEnum):
    """Columns of the messages to write, int64[n, len(Message)]; positions in the payload, sizes negative for null."""

    OFFSET = 0
    TIMESTAMP = 1  # ms
    APPEND_TIME = 2  # 1: of LogAppendTime
    KEY_AT = 3
    KEY_SIZE = 4
    VALUE_AT = 5
    VALUE_SIZE = 6
    NUMBER = 7  # of the record in its unit
    END = 8  # position after what it is made of
