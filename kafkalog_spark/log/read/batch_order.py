"""Order of the batches in a segment. Offsets rise from batch to batch, but lie outside the CRC.

If two neighbours contradict each other, either of them may have the wrong offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.segment_file import SegmentFile


def ordered_headers(file: SegmentFile, position: int, lowest: int, *, every_crc: bool = False) -> Iterator[BatchHeader]:
    """Yield the headers from `position` on, each once the header after it confirms its offsets.

    Args:
        file: The segment.
        position: Position of a batch.
        lowest: Lowest offset that the first batch may have. Offsets then rise, and end before the next segment.
        every_crc: Check the CRC of every batch, and not only where offsets do not fit.

    Raises:
        CorruptBatch: For the batch whose offsets are wrong, or whose CRC is.
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
                if not is_follower_wrong(previous, base, last, header.base_offset, base_offset_behind(file, header)):
                    raise moved_upward(held, previous, header)
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
    """Return which of two batches with contradicting offsets is wrong: True for the second one.

    The first one is right if it begins right after `previous`, or if the batch after both continues its offsets.
    Otherwise its offsets were moved upward.

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


def base_offset_behind(file: SegmentFile, header: BatchHeader) -> int | None:
    """Return the base offset of the good batch right after that of `header`, None if there is none."""
    after = file.proven_header(header.end)
    return None if after is None else after.base_offset


def moved_upward(header: BatchHeader, previous: int, follower: BatchHeader) -> CorruptBatch:
    """Return the error for a batch whose offsets its follower proves wrong."""
    return CorruptBatch(
        f"offsets {header.base_offset} to {header.last_offset} do not fit between {previous} and the next batch, which "
        f"begins at offset {follower.base_offset} (byte {follower.position})",
        position=header.position,
        offset=header.base_offset,
    )


def _check_offsets(file: SegmentFile, header: BatchHeader, lowest: int) -> None:
    """Raise CorruptBatch unless the offsets of a batch lie between `lowest` and the next segment."""
    end = MAX_INT64 if file.next_base_offset is None else file.next_base_offset
    if not max(lowest, file.base_offset) <= header.base_offset <= header.last_offset < end:
        raise CorruptBatch(
            f"offsets {header.base_offset} to {header.last_offset} do not follow {lowest - 1}"
            + (f", or reach into the next segment at {end}" if file.next_base_offset is not None else ""),
            position=header.position,
            offset=header.base_offset,
        )
