"""Makes truncations of mirrored logs durable."""

from __future__ import annotations

from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.fsync import fsync_file


def flush_truncation(log: Log) -> None:
    """Put the truncation of a log, and its remaining records, on disk. Blocks; call it on a worker thread.

    Otherwise a power failure may restore truncated records after the new end, or between batches that were appended in
    their place, where CRCs and offsets may match.

    Raises:
        BrokerError: kafka_storage_error; the log is offline then.
    """
    log.flush()
    try:
        fsync_file(log.local.active.log_path)  # a flush skips a segment that was truncated to 0 bytes
    except OSError as error:
        log.go_offline_and_raise(error)
