"""How a state file is replaced so that a crash at any instant leaves the old content or the new, whole.

Kafka does the same with its checkpoints, partition.metadata and meta.properties (Utils.atomicMoveWithFallback).
"""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"
"""What Kafka calls the file written aside; a left-over one is overwritten by the next write."""


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Return when what has been written to the file is on disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Return when the directory's entries are on disk: files made, renamed and removed in it before now."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: str | os.PathLike[str], data: bytes, *, sync: bool = True) -> None:
    """Make `data` the whole content of `path`: written to `path`.tmp, fsynced, renamed, and the directory fsynced.

    `sync=False` leaves out both fsyncs: the content still changes all at once for other processes, but an operating
    system crash may lose or empty it. One writer a path at a time. On error (OSError) the old content stays and the
    file written aside is removed.
    """
    target = Path(path)
    aside = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        with open(aside, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:  # an unbuffered write may take a part
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if sync:
        fsync_directory(target.parent)
