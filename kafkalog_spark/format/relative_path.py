"""Checks that a relative path from untrusted data stays below its root."""

from __future__ import annotations

import re

from kafkalog_spark.errors import UnsafePath

_DRIVE = re.compile(r"[A-Za-z]:")
_MAX_SHOWN = 100  # characters of a refused path in the error


def joined_below(root: str, relative: str) -> str:
    """Return `root`/`relative` after checking that it is below `root`.

    Call it for every relative path from a topic, a manifest, a checkpoint or a listing before opening or writing that
    path. Only the text is checked; symbolic links are handled by the store.

    Args:
        root: Configured directory or `scheme://bucket/key`.
        relative: Names separated by single slashes.

    Raises:
        UnsafePath: If `relative` is empty or absolute, has an empty part, `.` or `..`, a backslash, a NUL or a drive.
    """
    parts = relative.split("/")
    if "\\" in relative or "\0" in relative or _DRIVE.match(relative) or any(part in ("", ".", "..") for part in parts):
        shown = relative if len(relative) <= _MAX_SHOWN else f"{relative[:_MAX_SHOWN]}..."
        raise UnsafePath(
            f"{shown!r} is no path below {root}: expected names with one slash between them, none of them '.' or '..'"
        )
    return f"{root.rstrip('/')}/{relative}"
