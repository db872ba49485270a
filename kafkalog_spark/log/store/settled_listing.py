"""The names in a local directory while a broker renames files in it.

A listing is no moment's picture: the system hands names out piece by piece, and a file that is renamed from a place not
yet reached to one already passed is in none of them. Compaction renames a `.log.swap` to `.log` exactly so, and what
has not been listed would look like a gap that compaction has left: records would be lost without a word.
"""

from __future__ import annotations

import os
import time

from kafkalog_spark.log.format.names import DELETED_SUFFIX

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
