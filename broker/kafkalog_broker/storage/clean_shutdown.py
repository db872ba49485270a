"""`.kafka_cleanshutdown`: says that every log in the directory was flushed and closed (CleanShutdownFileHandler).

Read and removed before the logs are loaded, so that a crash during loading is a crash; written last at shutdown.
Its presence decides. The broker epoch in it is for the controller of a cluster.
"""

from __future__ import annotations

import json
from pathlib import Path

from kafkalog_spark.log.format.durable import fsync_directory, replace_file
from kafkalog_spark.log.format.names import CLEAN_SHUTDOWN_FILE

VERSION = 0


def take_clean_shutdown(directory: Path) -> bool:
    """Whether the marker was there; it is gone for good on return. Raises OSError."""
    try:
        (directory / CLEAN_SHUTDOWN_FILE).unlink()
    except FileNotFoundError:
        return False
    # Without this an operating system crash could bring the marker back for a log that was being written.
    fsync_directory(directory)
    return True


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """The bytes that Kafka 4.3 writes; on disk on return. Raises OSError."""
    text = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(directory / CLEAN_SHUTDOWN_FILE, text.encode("ascii"))
