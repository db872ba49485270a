"""Truncations of mirrored logs reach the disk before anything relies on them."""

from __future__ import annotations

from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.atomic_file import fsync_file


def flush_truncation(log: Log) -> None:
    """Return when the truncation of a log, and what is left of it, are on disk.

    Otherwise a power cut may bring records back that were cut off: behind the new end, or between batches that were
    appended in their place, where CRCs and offsets may fit. Blocks; for a thread.

    Raises:
        BrokerError: kafka_storage_error; the log is offline then.
    """
    log.flush()
    try:
        fsync_file(log.local.active.log_path)  # a flush passes over a segment that was cut to nothing
    except OSError as error:
        log.fail(error)
