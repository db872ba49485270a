"""Directories of partitions, and sizes of segments, in a log directory of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from kafkalog_spark.format import names
from kafkalog_spark.format.names import LOG_SUFFIX, PartitionDir


def partition_dirs(log_dir: str | os.PathLike[str]) -> Iterator[tuple[PartitionDir, str]]:
    """Yield (parsed name, path) of the partition directories of every kind in a log directory. Raises OSError."""
    with os.scandir(log_dir) as entries:
        for entry in entries:
            parsed = names.parse_partition_dir(entry.name)
            if parsed is not None and os.path.isdir(entry.path):  # is_dir() of an entry raises for a link to itself
                yield parsed, entry.path


def log_files(directory: str | os.PathLike[str]) -> dict[int, os.stat_result]:
    """Return the .log files without a transient suffix, with their stat, by base offset. Raises OSError."""
    found: dict[int, os.stat_result] = {}
    for entry in os.scandir(directory):
        if entry.name.endswith(LOG_SUFFIX) and (file := names.parse_segment_file(entry.name)):
            with suppress(FileNotFoundError):  # deleted since it was listed
                found[file.base_offset] = entry.stat()
    return dict(sorted(found.items()))


def log_bytes(directory: str | os.PathLike[str]) -> int:
    """Return the bytes of the .log files in a partition directory; 0 if it cannot be read."""
    try:
        return sum(facts.st_size for facts in log_files(directory).values())
    except OSError:
        return 0
