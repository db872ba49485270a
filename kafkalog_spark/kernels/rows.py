"""Arguments of the decode kernels, and helpers that add rows to the buffers.

A kernel gets `Rows` (the Arrow buffers of the record batch that is being built), `cursor` (how far each buffer is
filled, and where decoding stopped) and `limits` (the size of each buffer). It returns a `Status`, on which the caller
acts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.kernels.primitives import copy_bytes, helper, inlined


class Rows(NamedTuple):
    """Arrow buffers. A column that is not requested has arrays of length 0, and its entry in `limits` is -1."""

    offset: np.ndarray  # int64[rows]
    timestamp: np.ndarray  # int64[rows], us
    timestamp_type: np.ndarray  # int32[rows]
    key_offsets: np.ndarray  # int32[rows + 1]
    key_data: np.ndarray  # uint8
    key_valid: np.ndarray  # uint8 bitmap, zeroed
    value_offsets: np.ndarray  # int32[rows + 1]
    value_data: np.ndarray  # uint8
    value_valid: np.ndarray  # uint8 bitmap, zeroed
    header_lists: np.ndarray  # int32[rows + 1], index of the first header
    header_lists_valid: np.ndarray  # uint8 bitmap, zeroed
    header_key_offsets: np.ndarray  # int32[headers + 1]
    header_key_data: np.ndarray  # uint8
    header_value_offsets: np.ndarray  # int32[headers + 1]
    header_value_data: np.ndarray  # uint8
    header_value_valid: np.ndarray  # uint8 bitmap, zeroed


FILL_LEVELS = 10
"""Number of fill levels: the entries of `cursor` from ROWS to HEADER_VALUE_NULLS."""


class Cursor(IntEnum):
    """Entries of `cursor`, int64[SAVED + FILL_LEVELS]: fill levels, where decoding resumes, and the fault."""

    ROWS = 0
    KEY_BYTES = 1
    VALUE_BYTES = 2
    HEADERS = 3
    HEADER_KEY_BYTES = 4
    HEADER_VALUE_BYTES = 5
    KEY_NULLS = 6
    VALUE_NULLS = 7
    HEADER_LIST_NULLS = 8
    HEADER_VALUE_NULLS = 9
    BATCH = 10  # row in `batches` of the batch to resume with
    RECORD = 11  # next record of that batch
    POSITION = 12  # byte of the payload where that record begins; -1 if decoding of the batch has not begun
    LAST_DELTA = 13  # offset delta of the previous record, in message sets its offset; -1 for none
    FAULT_POSITION = 14  # byte of the payload where a fault was found
    NEEDED = 15  # after NEED_*: free bytes (or headers) that the buffer must have for the next record
    FAULT_OFFSET = 16  # with TIMESTAMP_RANGE: offset of the record
    FAULT_TIMESTAMP = 17  # with TIMESTAMP_RANGE: timestamp of the record, in ms
    SAVED = 18  # first of FILL_LEVELS entries: the fill levels at the beginning of the batch, for a rollback


class Limit(IntEnum):
    """Entries of `limits`, int64[len(Limit)]: capacity of each buffer (-1: not requested), then the row filter."""

    ROWS = 0
    KEY_BYTES = 1
    VALUE_BYTES = 2
    HEADERS = 3
    HEADER_KEY_BYTES = 4
    HEADER_VALUE_BYTES = 5
    OFFSET_FROM = 6
    OFFSET_UNTIL = 7
    TIMESTAMP_FROM = 8  # ms
    TIMESTAMP_LAST = 9  # ms, inclusive, because a record may have the largest int64 as its timestamp
    WANT_OFFSET = 10  # 1 if the column is requested, else 0
    WANT_TIMESTAMP = 11
    WANT_TIMESTAMP_TYPE = 12


class BatchColumn(IntEnum):
    """Columns of `batches`, int64[n, len(BatchColumn)]: header fields of a v2 batch for decoding its records."""

    BASE_OFFSET = 0
    LAST_DELTA = 1
    COUNT = 2
    BASE_TIMESTAMP = 3  # ms
    MAX_TIMESTAMP = 4  # ms
    LOG_APPEND = 5  # 1 with LogAppendTime: every record has MAX_TIMESTAMP


class LegacyBatchColumn(IntEnum):
    """Columns of `batches`, int64[n, len(LegacyBatchColumn)]: fields of a message set (v0, v1) for decoding it.

    A message set is a single message, or the messages of a wrapper.
    """

    MAGIC = 0
    OFFSET_SHIFT = 1  # number to add to each message's offset
    LAST_OFFSET = 2
    IS_LOG_APPEND = 3  # 1 with LogAppendTime: the wrapper's timestamp replaces those of its messages
    LOG_APPEND_TIMESTAMP = 4  # that timestamp, ms
    TIMESTAMP_TYPE = 5  # a layout.TimestampType


class Status(FaultCode):
    """Why a kernel returned. DONE, FULL and NEED_* are normal; all others are faults of the batch."""

    DONE = 0
    FULL = 1  # the caller must take the rows, then call again with the same cursor
    NEED_KEY_BYTES = 2  # the buffer is too small for a single record: enlarge it for cursor[NEEDED], then call again
    NEED_VALUE_BYTES = 3
    NEED_HEADERS = 4
    NEED_HEADER_KEY_BYTES = 5
    NEED_HEADER_VALUE_BYTES = 6
    RECORD_OVERRUNS = 10, "a record runs past the end of the batch (the record count or a length is wrong)"
    RECORD_LENGTH = 11, "a record's length does not match its fields"
    FIELD_OVERRUNS = 12, "a varint or field runs past the end of its record"
    TRAILING_BYTES = 13, "bytes are left after the last record (the record count is wrong)"
    OFFSET_ORDER = 14, "a record's offset does not increase, or is outside the batch"
    HEADER_KEY_NULL = 15, "a header has no key"
    TIMESTAMP_RANGE = 16, "a timestamp does not fit int64 microseconds"
    INNER_MAGIC = 17, "a message inside a compressed message set has another magic"
    INNER_CRC = 18, "CRC-32 of a message inside a compressed message set does not match"
    NESTED = 19, "a compressed message lies inside a compressed message set"
    EMPTY = 20, "a compressed message set holds no message"


@helper
def passes_filter(values, value):  # type: ignore[no-untyped-def]
    """Return True if `values` (sorted int64[]) contains `value`, or is empty, which means no filter."""
    low, high = 0, values.size
    if high == 0:
        return True
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < values.size and values[low] == value


@inlined
def begin_batch(cursor, start):  # type: ignore[no-untyped-def]
    """Begin batch cursor[BATCH] at byte `start` of the payload, or resume it; save the fill levels for a rollback.

    Returns:
        (byte of the payload to read next, offset delta of the previous record)
    """
    for i in range(FILL_LEVELS):
        cursor[Cursor.SAVED + i] = cursor[i]
    if cursor[Cursor.POSITION] < 0:
        cursor[Cursor.RECORD], cursor[Cursor.LAST_DELTA] = 0, -1
        return start, np.int64(-1)
    return cursor[Cursor.POSITION], cursor[Cursor.LAST_DELTA]


@helper
def stop_decoding(cursor, status, batch, position, previous_delta):  # type: ignore[no-untyped-def]
    """Store in `cursor` where decoding stopped, and return the Status for the caller.

    NEED_* becomes FULL if rows are ready: the caller takes them first. The rows of a faulty batch are removed from the
    buffers; with TIMESTAMP_RANGE, the rows before the record remain.
    """
    if Status.NEED_KEY_BYTES <= status <= Status.NEED_HEADER_VALUE_BYTES and cursor[Cursor.ROWS] > 0:
        status = np.int64(Status.FULL)
    if status >= Status.RECORD_OVERRUNS and status != Status.TIMESTAMP_RANGE:
        for i in range(FILL_LEVELS):
            cursor[i] = cursor[Cursor.SAVED + i]
    cursor[Cursor.BATCH], cursor[Cursor.POSITION], cursor[Cursor.LAST_DELTA] = batch, position, previous_delta
    cursor[Cursor.FAULT_POSITION] = position
    return status


@njit(inline="always")
def set_bit(bitmap, index):  # type: ignore[no-untyped-def]
    bitmap[index >> 3] |= np.uint8(1 << (index & 7))


@njit(inline="always")
def clear_bit(bitmap, index):  # type: ignore[no-untyped-def]
    """Clear a bit. The bitmap begins zeroed, but a batch that was rolled back may have left bits set."""
    bitmap[index >> 3] &= np.uint8(~(1 << (index & 7)) & 0xFF)


@njit(inline="always")
def put_bytes(data, offsets, valid, row, filled, source, position, size):  # type: ignore[no-untyped-def]
    """Append source[position:position + size] as value `row` of a binary column, or null if `size` is negative.

    Returns:
        The new fill level of `data`, in bytes.
    """
    if size >= 0:
        copy_bytes(data, filled, source, position, size)
        filled += size
        set_bit(valid, row)
    else:
        clear_bit(valid, row)
    offsets[row + 1] = np.int32(filled)
    return filled
