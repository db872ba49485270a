"""Search for the next good batch of a segment behind damage.

A damaged length hides where the next batch begins, so the search looks at every byte.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.read.segment_file import SegmentFile

_SEARCH_WINDOW = 1 << 20
_CRC_BYTES = 64 << 20
"""Bytes, in addition to four times those searched, whose CRC a search may compute: each false header can announce the
whole rest of the file as its batch. A batch that is larger than what is left of the allowance is not checked."""


def find_batch_behind(file: SegmentFile, damaged: int, lowest_offset: int) -> BatchHeader | None:
    """Return the next good batch behind the damaged one at position `damaged`, with offsets from `lowest_offset` on.

    Looks right behind the damaged batch first, in case its length is right: a value inside it may hold whole batches,
    which a search byte by byte would find.
    """
    header = file.header_or_none(damaged)
    following = file.proven_header(header.end) if header is not None else None
    if following is not None and lowest_offset <= following.base_offset <= following.last_offset:
        return following
    return find_batch(file, damaged + 1, lowest_offset)


def find_batch(file: SegmentFile, position: int, lowest_offset: int) -> BatchHeader | None:
    """Return the first whole batch with a valid CRC that begins at or behind `position`.

    Its offsets begin at or above `lowest_offset`. None if there is no such batch.
    """
    overlap = layout.RECORDS_AT
    high = lowest_offset >> 32
    # Two allowances, for headers without and with another header behind their batch: false ones of the first kind,
    # which are the most, must not use up what a true one of the second kind needs.
    left = [_CRC_BYTES + 4 * max(file.size - position, 0)] * 2
    while position < file.size - layout.LOG_OVERHEAD:
        data = np.frombuffer(file.read(position, _SEARCH_WINDOW + overlap), np.uint8)
        if len(data) <= layout.MAGIC_AT:
            return None
        for at in _candidates(data, high, file.size - position).tolist():
            header = file.header_or_none(position + at)
            if header is None or not lowest_offset <= header.base_offset <= header.last_offset:
                continue
            followed = header.end == file.size or file.header_or_none(header.end) is not None
            if header.size > left[followed]:
                continue
            left[followed] -= header.size
            if file.proven_header(header.position) is not None:
                return header
        position += _SEARCH_WINDOW
    return None


def _candidates(data: np.ndarray, high: int, left: int) -> np.ndarray:
    """Return the positions in `data` that look like a batch header.

    Such a header has magic 0 to 2, a length below the `left` bytes of the file, and `high` or `high` + 1 as the upper
    32 bits of its offset.
    """
    n = min(len(data) - layout.MAGIC_AT, _SEARCH_WINDOW)
    if not data.any():
        return np.empty(0, np.int64)
    likely = np.flatnonzero(data[layout.MAGIC_AT : layout.MAGIC_AT + n] <= 2)

    def word(at: int) -> np.ndarray:
        parts = [data[likely + at + i].astype(np.int64) << (24 - 8 * i) for i in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    offset_high, length = word(layout.OFFSET_AT), word(layout.LENGTH_AT)
    good = (offset_high >= high) & (offset_high <= high + 1)
    good &= (length >= layout.LEGACY_MIN_SIZE[0] - layout.LOG_OVERHEAD) & (length <= left - layout.LOG_OVERHEAD)
    return likely[good]
