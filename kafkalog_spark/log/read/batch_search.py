"""Searches for the next good batch of a segment after damage.

If the length of a batch is damaged, the position of the next batch is unknown, so the search tries every byte.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.read.segment_file import SegmentFile

_SEARCH_WINDOW = 1 << 20  # bytes
_CRC_BYTES = 64 << 20
"""Bytes, in addition to four times the searched bytes, whose CRC a search may compute. The search needs a limit,
because each false header may announce the whole rest of the file as its batch. A batch that exceeds the rest of the
limit is not checked."""


def find_next_batch(file: SegmentFile, damaged: int, lowest_offset: int) -> BatchHeader | None:
    """Return the next good batch after the damaged batch at position `damaged`; None if there is none.

    The search begins at the end of the damaged batch, in case its length is correct. A search byte by byte would find
    whole batches inside its values.

    Args:
        file: The segment.
        damaged: Position of the damaged batch.
        lowest_offset: Lowest base offset that the good batch may have.
    """
    header = file.header_or_none(damaged)
    following = file.proven_header(header.end) if header is not None else None
    if following is not None and lowest_offset <= following.base_offset <= following.last_offset:
        return following
    return find_batch(file, damaged + 1, lowest_offset)


def find_batch(file: SegmentFile, position: int, lowest_offset: int) -> BatchHeader | None:
    """Return the first whole batch with a valid CRC at or after `position`; None if there is none.

    Its base offset is at least `lowest_offset`.
    """
    overlap = layout.RECORDS_AT
    # Bytes whose CRC may still be computed: [0] for headers without another header after their batch, [1] for headers
    # with one. Most false headers are of the first kind, and must not use up the limit for the second kind.
    crc_bytes_left = [_CRC_BYTES + 4 * max(file.size - position, 0)] * 2
    while position < file.size - layout.LOG_OVERHEAD:
        data = np.frombuffer(file.read(position, _SEARCH_WINDOW + overlap), np.uint8)
        if len(data) <= layout.MAGIC_AT:
            return None
        for at in _candidates(data, lowest_offset >> 32, file.size - position).tolist():
            header = file.header_or_none(position + at)
            if header is None or not lowest_offset <= header.base_offset <= header.last_offset:
                continue
            is_followed = header.end == file.size or file.header_or_none(header.end) is not None
            if header.size > crc_bytes_left[is_followed]:
                continue
            crc_bytes_left[is_followed] -= header.size
            if file.proven_header(header.position) is not None:
                return header
        position += _SEARCH_WINDOW
    return None


def _candidates(data: np.ndarray, offset_high: int, bytes_left: int) -> np.ndarray:
    """Return the positions in `data` at which a batch header may begin.

    The header must have magic 0 to 2, a batch that fits into the `bytes_left` bytes of the file, and `offset_high` or
    `offset_high` + 1 as the upper 32 bits of its offset.
    """
    count = min(len(data) - layout.MAGIC_AT, _SEARCH_WINDOW)
    if not data.any():
        return np.empty(0, np.int64)
    likely = np.flatnonzero(data[layout.MAGIC_AT : layout.MAGIC_AT + count] <= 2)

    def word(at: int) -> np.ndarray:
        parts = [data[likely + at + i].astype(np.int64) << (24 - 8 * i) for i in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    high, length = word(layout.OFFSET_AT), word(layout.LENGTH_AT)
    is_possible = (high >= offset_high) & (high <= offset_high + 1)
    is_possible &= length >= layout.LEGACY_MIN_SIZE[0] - layout.LOG_OVERHEAD
    is_possible &= length <= bytes_left - layout.LOG_OVERHEAD
    return likely[is_possible]
