"""Checks offsets and leader epochs in a source's responses against the values that a log can have."""

from __future__ import annotations

from kafkalog_broker.protocol.mirror_fetch_messages import FetchedSourcePartition
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64

MAX_OFFSET = MAX_INT64 - 1  # a log that ends at 2^63-1 is full
MAX_EPOCH = MAX_INT32 - 1  # a takeover of the copy must be able to write with a higher epoch, which is an int32
UNKNOWN = -1  # offset or epoch that the source does not know


class ImpossibleOffsets(KafkalogError):
    """Offsets or epochs in a response are out of bounds or contradict each other."""


def check_offset(what: str, offset: int, lowest: int = 0) -> int:
    """Return the offset. Raises ImpossibleOffsets if it is out of bounds."""
    if not lowest <= offset <= MAX_OFFSET:
        raise ImpossibleOffsets(f"the source says that {what} is {offset}, expected {lowest} to 2^63-2")
    return offset


def check_epoch(what: str, epoch: int) -> int:
    """Return the leader epoch, or UNKNOWN. Raises ImpossibleOffsets if it is out of bounds."""
    if not UNKNOWN <= epoch <= MAX_EPOCH:
        raise ImpossibleOffsets(f"the source says that {what} is {epoch}, expected {UNKNOWN} to 2^31-2")
    return epoch


def check_log_bounds(start: int, high_watermark: int) -> None:
    """Raise ImpossibleOffsets if these bounds of a log contradict each other. Both may be UNKNOWN."""
    check_offset("its log start offset", start, UNKNOWN)
    check_offset("its high watermark", high_watermark, UNKNOWN)
    if start > high_watermark > UNKNOWN:
        raise ImpossibleOffsets(
            f"the source says that its log starts at {start}, above its high watermark {high_watermark}"
        )


def check_fetched(fetched: FetchedSourcePartition) -> None:
    """Raise ImpossibleOffsets if the offsets or epochs of a fetched partition are out of bounds.

    Batches are not checked.
    """
    check_log_bounds(fetched.log_start_offset, fetched.high_watermark)
    if fetched.diverging is not None:
        epoch, end_offset = fetched.diverging
        check_epoch("the leader epoch after which the logs diverge", epoch)
        check_offset("the end offset of that epoch", end_offset, UNKNOWN)
