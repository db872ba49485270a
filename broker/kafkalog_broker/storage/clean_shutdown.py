"""Marker file `.kafka_cleanshutdown`: all logs were flushed and closed (Kafka's CleanShutdownFileHandler).

It is read and removed before the logs are loaded, so that a crash during loading counts as a crash, and written as the
last step of a shutdown. Only its presence matters: the broker epoch in it is for the controller of a cluster.
"""

from __future__ import annotations

import json
from pathlib import Path

from kafkalog_spark.format.atomic_file import fsync_directory, replace_file
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE


def take_clean_shutdown(directory: Path) -> bool:
    """Remove the marker, for good on return; True when it was there. A directory of that name is no marker. Raises
    OSError."""
    try:
        (directory / CLEAN_SHUTDOWN_FILE).unlink()
    except FileNotFoundError:
        return False
    except OSError:
        if (directory / CLEAN_SHUTDOWN_FILE).is_dir():
            return False
        raise
    # Without this an operating system crash could bring the marker back for a log that was being written.
    fsync_directory(directory)
    return True


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """The bytes that Kafka 4.3 writes; on disk on return. Raises OSError."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(directory / CLEAN_SHUTDOWN_FILE, text.encode("ascii"))
