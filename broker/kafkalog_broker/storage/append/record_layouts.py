"""Layouts of the arrays that `record_walk` shares with its kernels. Loads no Numba."""

from __future__ import annotations

from enum import IntEnum


class WalkFact(IntEnum):
    """Entries of the result of a walk over records, int64[len(WalkFact)]."""

    COUNT = 0  # number of well-formed records
    MAX_TIMESTAMP = 1  # ms, at least -1, like the batch header's
    SMALLEST_TIMESTAMP = 2  # of the records with a timestamp
    LARGEST_TIMESTAMP = 3  # of the records with a timestamp
    IN_SEQUENCE = 4  # 1 if offset deltas are 0, 1, 2 ...
    NULL_KEYS = 5  # number of records without a key


class RecordColumn(IntEnum):
    """Columns of the records of a batch, int64[n, len(RecordColumn)]."""

    TIMESTAMP = 0  # ms
    OFFSET_DELTA = 1
    KEY_SIZE = 2  # negative for null
