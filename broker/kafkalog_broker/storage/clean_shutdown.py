"""Marker file `.kafka_cleanshutdown` of a log directory (Kafka: `CleanShutdownFileHandler`).

It means that all logs were flushed and closed. A shutdown writes it as its last step. A start removes it before the
logs are loaded, so that after a crash during loading they are recovered. Only the file's presence matters here; the
broker epoch in it is for a cluster's controller.
"""

from __future__ import annotations

import json
from pathlib import Path

from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE


def take_clean_shutdown(directory: Path) -> bool:
    """Remove the marker durably, and return whether it existed. A directory of that name is ignored. Raises OSError."""
    try:
        (directory / CLEAN_SHUTDOWN_FILE).unlink()
    except FileNotFoundError:
        return False
    except OSError:
        if (directory / CLEAN_SHUTDOWN_FILE).is_dir():
            return False
        raise
    # Otherwise a power failure could restore the marker after the logs were written to.
    fsync_directory(directory)
    return True


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """Write the marker as Kafka 4.3 does, and sync it to disk. Raises OSError."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(directory / CLEAN_SHUTDOWN_FILE, text.encode("ascii"))
