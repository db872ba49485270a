"""Records that retention, DeleteRecords or a truncation has deleted since a read was planned."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_spark.errors import DataLoss, KafkalogError
from kafkalog_spark.log.read.partition_log import PartitionLog

OnLoss = Callable[[KafkalogError], None]
"""Called with the error that names the deleted offsets; the read resumes after them."""


def report_loss(log: PartitionLog, start: int, end: int, on_loss: OnLoss | None) -> None:
    """Call `on_loss` with the error that records of [start, end) are gone; raise the error if `on_loss` is None."""
    error = DataLoss(
        f"records in [{start}, {end}) are gone: they were deleted (retention, DeleteRecords) or the log was truncated "
        "while it was read",
        topic_partition=log.name,
        path=log.directory,
        offset=start,
    )
    if on_loss is None:
        raise error
    on_loss(error)


def ignore_loss(error: KafkalogError) -> None:
    """Ignore deleted records: an `on_loss` for scans that only search or count records."""
