"""Offsets rise from batch to batch. They lie outside the CRC, so of two neighbours that contradict each other either
may be the damaged one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log.format.batch_header import BatchHeader
from kafkalog_spark.log.read.segment_file import SegmentFile


def follower_lies(previous: int, base: int, last: int, follower: int, after: int | None) -> bool:
    """Whether, of a batch with offsets `base` to `last` and one after it that begins at `follower` <= last, the second
    is the one with wrong offsets.

    previous: last offset before both; after: where the third batch begins, None when there is none. The first one is
    right when it begins right after `previous`, or when the third follows it; otherwise it was moved upward.
    """
    if follower <= previous or base == previous + 1:
        return True
    return after is not None and after > last


def moved_upward(header: BatchHeader, previous: int, follower: BatchHeader) -> CorruptBatch:
    """The error for a batch whose offsets its follower proves wrong."""
    return CorruptBatch(
        f"offsets {header.base_offset} to {header.last_offset} do not fit between {previous} and the next batch, which "
        f"begins at offset {follower.base_offset} (byte {follower.position})",
        position=header.position,
        offset=header.base_offset,
    )


def base_behind(file: SegmentFile, header: BatchHeader) -> int | None:
    """Where the good batch after that of `header` begins; None when there is none."""
    after = file.proven_header(header.end)
    return None if after is None else after.base_offset


def ordered_headers(
    file: SegmentFile,
    position: int,
    lowest: int,
    headers: Callable[[int], Iterator[BatchHeader]] | None = None,
) -> Iterator[BatchHeader]:
    """The headers from `position` on whose offsets begin at `lowest`, rise, and end before the next segment.

    headers: file.headers (CRCs are looked at where offsets do not fit) or file.good_headers. A header is given when the
    one after it agrees. Raises as they do, and CorruptBatch for the batch whose offsets are wrong.
    """
    held: BatchHeader | None = None
    previous = lowest - 1
    source = (headers or file.headers)(position)
    while True:
        try:
            header = next(source, None)
            if header is not None and held is not None and header.base_offset <= held.last_offset:
                _judge(file, previous, held, header)
            elif header is not None:
                _check(file, header, previous if held is None else held.last_offset)
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


def _judge(file: SegmentFile, previous: int, first: BatchHeader, second: BatchHeader) -> None:
    """Raise for one of two batches that contradict each other."""
    file.check_crc(second)
    if not follower_lies(previous, first.base_offset, first.last_offset, second.base_offset, base_behind(file, second)):
        raise moved_upward(first, previous, second)
    file.check_offsets(second, first.last_offset + 1)


def _check(file: SegmentFile, header: BatchHeader, previous: int) -> None:
    try:
        file.check_offsets(header, previous + 1)
    except CorruptBatch:
        file.check_crc(header)  # a header that is damaged altogether is not a matter of its offsets
        raise
