"""Paths that data names: the one place that decides whether a relative path stays below its root."""

from __future__ import annotations

import re

from kafkalog_spark.errors import UnsafePath

_DRIVE = re.compile(r"[A-Za-z]:")
_MOST_SHOWN = 100  # characters of a refused path in the error


def joined_below(root: str, relative: str) -> str:
    """Return `root`/`relative`, a path that lies below `root`.

    Every relative path that comes from a topic, a manifest, a checkpoint or a listing goes through this function before
    a file or an object is named by it. The check is on the text alone: symbolic links are the business of the store.

    Args:
        root: A directory, or `scheme://bucket/key`, as the configuration names it.
        relative: Parts with one slash between them.

    Raises:
        UnsafePath: If `relative` is empty or absolute, has an empty part, `.` or `..`, a backslash, a NUL or a drive.
    """
    parts = relative.split("/")
    if "\\" in relative or "\0" in relative or _DRIVE.match(relative) or any(part in ("", ".", "..") for part in parts):
        shown = relative if len(relative) <= _MOST_SHOWN else f"{relative[:_MOST_SHOWN]}..."
        raise UnsafePath(
            f"{shown!r} is no path below {root}: expected names with one slash between them, none of them '.' or '..'"
        )
    return f"{root.rstrip('/')}/{relative}"
