"""What lies in a local log directory: partitions' directories, and the .log files in one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.names import LOG_SUFFIX, PartitionDir


def partition_dirs(log_dir: str | os.PathLike[str]) -> Iterator[tuple[PartitionDir, str]]:
    """(name taken apart, path) of the partitions' directories in a log directory, of every kind. Raises OSError."""
    with os.scandir(log_dir) as entries:
        for entry in entries:
            parsed = names.parse_partition_dir(entry.name) if entry.is_dir() else None
            if parsed is not None:
                yield parsed, entry.path


def log_files(directory: str | os.PathLike[str]) -> dict[int, os.stat_result]:
    """By base offset, in order: the .log files in a partition's directory that are not on their way in or out,
    with what the system says of them. Raises OSError."""
    found: dict[int, os.stat_result] = {}
    for entry in os.scandir(directory):
        if entry.name.endswith(LOG_SUFFIX) and (file := names.parse_segment_file(entry.name)):
            with suppress(FileNotFoundError):  # gone since it was listed
                found[file.base_offset] = entry.stat()
    return dict(sorted(found.items()))


def log_bytes(directory: str | os.PathLike[str]) -> int:
    """Bytes of the .log files in a partition's directory; 0 when it cannot be read: it is going away, or whoever opens
    it says what is wrong."""
    try:
        return sum(facts.st_size for facts in log_files(directory).values())
    except OSError:
        return 0
