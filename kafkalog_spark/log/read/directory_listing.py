"""What lies in a log directory, and in a partition's while a broker renames files in it.

A listing is no moment's picture: the system hands names out piece by piece, and a file that is renamed from a place not
yet reached to one already passed is in none of them. Compaction renames a `.log.swap` to `.log` exactly so, and what
has not been listed would look like a gap that compaction has left: records would be lost without a word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.names import DELETED_SUFFIX, LOG_SUFFIX, PartitionDir

_QUIET_NS = 1_000_000_000
"""A directory that nobody has changed for so long is listed once: far above the clock's ticks, which times of
modification come in."""
_LISTINGS = 100
"""A swap takes milliseconds, and there is one in seconds: the second listing is like the first."""


def settled_listing(directory: str) -> list[str]:
    """As os.listdir, and taken again until two in a row agree, where files may be being renamed. Raises OSError.

    `.deleted` files, whose coming and going tells nothing, may be missing.
    """
    before = os.stat(directory).st_mtime_ns
    listed = os.listdir(directory)
    for _ in range(_LISTINGS):
        after = os.stat(directory).st_mtime_ns
        if after == before and time.time_ns() - after > _QUIET_NS:
            break
        previous, listed = listed, os.listdir(directory)
        if _that_count(listed) == _that_count(previous):
            break
        before = after
    return listed


def _that_count(names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(DELETED_SUFFIX)}


def partition_dirs(log_dir: str | os.PathLike[str]) -> Iterator[tuple[PartitionDir, str]]:
    """(name taken apart, path) of the partitions' directories in a log directory, of every kind. Raises OSError."""
    for entry in os.scandir(log_dir):
        parsed = names.parse_partition_dir(entry.name) if entry.is_dir() else None
        if parsed is not None:
            yield parsed, entry.path


def log_files(directory: str | os.PathLike[str]) -> dict[int, os.stat_result]:
    """By base offset, in order: the .log files in a partition's directory that are not on their way in or out,
    with what the system says of them. Raises OSError."""
    found: dict[int, os.stat_result] = {}
    for entry in os.scandir(directory):
        file = names.parse_segment_file(entry.name)
        if file is not None and file.suffix == LOG_SUFFIX and file.transient_suffix is None:
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
