"""Layouts of the arrays that `record_walk` and its kernels share. Loads no Numba."""

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
