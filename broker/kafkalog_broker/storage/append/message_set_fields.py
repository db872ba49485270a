"""What the kernel of message sets v0 and v1 and its caller hand to each other: the names of the places in arrays."""

from __future__ import annotations

from enum import IntEnum


class S(IntEnum):
    """Places in what is known of a message set: int64[len(S)]."""

    COUNT = 0  # messages; the one at which a fault was found is the next
    FILLED = 1  # bytes of `out`
    BASE_TIMESTAMP = 2  # ms, of the first one; -1
    MAX_TIMESTAMP = 3  # ms, -1 where none has one
    LAST_OFFSET = 4  # of the last message, as it stands there
    NULL_KEYS = 5  # messages without a key, where they need one
    BAD_TIMESTAMPS = 6  # messages whose timestamp is out of bounds
    END = 7  # position after the last message that was taken


class R(IntEnum):
    """Places in the rules for a message set: int64[len(R)]."""

    MAGIC = 0  # that every message has
    IS_INNER = 1  # 1: it was in a wrapper
    MOST_BYTES = 2  # of one message
    MOST_RECORDS = 3
    NEEDS_KEYS = 4  # 0 or 1
    LOWEST = 5  # timestamp, ms
    HIGHEST = 6


class SetFault(IntEnum):
    """What is wrong with a message set."""

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
