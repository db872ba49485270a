"""What record_walk and its kernel hand to each other: the names of the places in their arrays."""

from __future__ import annotations

from enum import IntEnum


class F(IntEnum):
    """Places in the facts of a walk: int64[len(F)]."""

    COUNT = 0  # records that are whole and well-formed
    AT = 1  # position after them
    MAX_TIMESTAMP = 2  # ms, -1 when no record has one
    MAX_INDEX = 3  # of the first record with it, -1
    LOW = 4  # smallest timestamp of the records that have one
    HIGH = 5  # largest
    IN_SEQUENCE = 6  # 1: offset deltas are 0, 1, 2 ...
    NULL_KEYS = 7


class Refusal(IntEnum):
    """Which rule a record breaks (LogValidator.validateRecord)."""

    NO_KEY = 1  # in a compacted topic
    APPEND_TIME_SET = 2  # by a producer
    TIMESTAMP = 3  # out of bounds


class Rules(IntEnum):
    """Entries of the kernel's rules, int64[len(Rules)]."""

    LOWEST = 0  # timestamp, ms
    HIGHEST = 1
    NEEDS_KEYS = 2  # 0 or 1
    APPEND_TIME_SET = 3  # 0 or 1
    REFUSED_TIMESTAMPS = 4  # out: how many records break another rule than NO_KEY


class Found(IntEnum):
    """Places in what find_timestamp found: int64[len(Found)]."""

    TIMESTAMP = 0  # ms
    DELTA = 1  # of the offset


class Broken(IntEnum):
    """Columns of the records that break a rule: int64[n, len(Broken)]."""

    PLACE = 0  # in the batch
    RULE = 1  # a Refusal
    TIMESTAMP = 2  # ms
