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


class ConversionRule(IntEnum):
    """Rules for the messages to make: int64[len(ConversionRule)]."""

    MAGIC = 0  # 0 or 1
    FROM_OFFSET = 1  # messages below are left out
    RELATIVE = 2  # 1: offsets count from the first message, as in a wrapper v1
    ROOM = 3  # bytes that may be filled


class Cursor(IntEnum):
    """Cursor of a conversion, int64[len(Cursor)]: where to go on, and what was written since it was last cleared."""

    UNIT = 0
    AT = 1  # in the payload; -1: the unit is not begun
    RECORD = 2  # of the unit
    FILLED = 3  # bytes
    COUNT = 4  # messages
    FIRST_OFFSET = 5
    LAST_OFFSET = 6
    LARGEST_TIMESTAMP = 7  # ms, -1
    NEEDED = 8  # bytes of the message for which there was no room


class ConversionStatus(IntEnum):
    """Why a kernel came back."""

    DONE = 0
    FULL = 1
    MALFORMED = 2
