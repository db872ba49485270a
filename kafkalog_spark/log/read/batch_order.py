"""Checks that offsets increase from batch to batch in a segment.

A batch's CRC does not cover its base offset. If the offsets of two neighbours contradict each other, either batch may
be the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.segment_file import SegmentFile


def ordered_headers(file: SegmentFile, position: int, lowest: int, *, every_crc: bool = False) -> Iterator[BatchHeader]:
    """Yield the headers from `position` on. A header is yielded after the next header has confirmed its offsets.

    Args:
        file: The segment.
        position: Position of a batch.
        lowest: Lowest offset that the first batch may have. Later batches must have higher offsets, and all offsets
            must be below the next segment's.
        every_crc: Check the CRC of every batch, and not only of those whose offsets do not fit.

    Raises:
        CorruptBatch: For a batch with wrong offsets or a wrong CRC.
        UnsupportedFormat: For a batch of an unknown format.
    """
    held: BatchHeader | None = None
    previous = lowest - 1
    source = file.good_headers(position) if every_crc else file.headers(position)
    while True:
        try:
            header = next(source, None)
            if header is not None and held is not None and header.base_offset <= held.last_offset:
                file.check_crc(header)
                base, last = held.base_offset, held.last_offset
                if not is_follower_wrong(previous, base, last, header.base_offset, base_offset_after(file, header)):
                    raise offsets_too_high(held, previous, header)
                _check_offsets(file, header, last + 1)
            elif header is not None:
                try:
                    _check_offsets(file, header, (previous if held is None else held.last_offset) + 1)
                except CorruptBatch:
                    file.check_crc(header)  # if the whole header is damaged, report that and not its offsets
                    raise
        except KafkalogError as error:
            if held is not None and error.position != held.position:
                yield held
            raise
        if held is not None:
            yield held
            previous = held.last_offset
        if header is None:
            return
        held = header


def is_follower_wrong(previous: int, base: int, last: int, follower: int, after: int | None) -> bool:
    """Return True if the second of two batches with contradicting offsets is the wrong one, False if the first one is.

    The first batch is correct if it begins right after `previous`, or if the batch after both continues its offsets.
    Otherwise its offsets are too high.

    Args:
        previous: Last offset before both.
        base: Base offset of the first batch.
        last: Last offset of the first batch.
        follower: Base offset of the second batch, at most `last`.
        after: Base offset of the batch after both, None if there is none.
    """
    if follower <= previous or base == previous + 1:
        return True
    return after is not None and after > last


def base_offset_after(file: SegmentFile, header: BatchHeader) -> int | None:
    """Return the base offset of the batch right after that of `header`; None if no good batch is there."""
    next_header = file.proven_header(header.end)
    return None if next_header is None else next_header.base_offset


def offsets_too_high(header: BatchHeader, previous: int, follower: BatchHeader) -> CorruptBatch:
    """Return the error for a batch whose offsets are proved too high by the batch after it, `follower`."""
    return CorruptBatch(
        f"offsets {header.base_offset} to {header.last_offset} do not fit between {previous} and the next batch, which "
        f"begins at offset {follower.base_offset} (byte {follower.position})",
        position=header.position,
        offset=header.base_offset,
    )


def _check_offsets(file: SegmentFile, header: BatchHeader, lowest: int) -> None:
    """Raise CorruptBatch unless the offsets of a batch are between `lowest` and the next segment."""
    end = MAX_INT64 if file.next_base_offset is None else file.next_base_offset
    if not max(lowest, file.base_offset) <= header.base_offset <= header.last_offset < end:
        raise CorruptBatch(
            f"offsets {header.base_offset} to {header.last_offset} do not follow {lowest - 1}"
            + (f", or reach into the next segment at {end}" if file.next_base_offset is not None else ""),
            position=header.position,
            offset=header.base_offset,
        )
