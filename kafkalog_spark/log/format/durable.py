"""State files: how they are read, and replaced so that a crash at any instant leaves the old content or the new, whole.

Kafka does the same with its checkpoints, partition.metadata and meta.properties (Utils.atomicMoveWithFallback).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kafkalog_spark.errors import KafkalogError

Content = TypeVar("Content")

OWNER_ONLY = 0o600
"""The mode of files that hold passwords."""
FILE_MODE, DIRECTORY_MODE = 0o664, 0o775
"""Of all others that are made, less the umask: whatever that says, not everybody may write."""

TEMPORARY_SUFFIX = ".tmp"
"""What Kafka calls the file written aside; a left-over one is overwritten by the next write."""


@contextmanager
def descriptor(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> Iterator[int]:
    """A file descriptor, closed when the block ends. A file that it makes may be read by all. Raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write at the descriptor's place, however many calls that takes. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_state(path: str | os.PathLike[str], parse: Callable[[bytes], Content]) -> Content | None:
    """`parse` of the file's bytes, None when there is no such file. What it raises names the file. Raises OSError for
    every other trouble."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    try:
        return parse(data)
    except KafkalogError as error:
        raise error.at(path=os.fspath(path)) from None


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Return when what has been written to the file is on disk. Raises OSError."""
    with descriptor(path) as fd:
        os.fsync(fd)


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Return when the directory's entries are on disk: files made, renamed and removed in it before now."""
    with descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def replace_files(paths: Sequence[Path], data: bytes, *, private: bool = False) -> None:
    """Make `data` the content of all these copies, one a log directory; on disk on return. private: as `replace_file`.
    Raises the first OSError when none of them could be written: one that fails forgets nothing that another has."""
    failures = []
    for path in paths:
        try:
            replace_file(path, data, private=private)
        except OSError as error:
            failures.append(error)
    if len(failures) == len(paths):
        raise failures[0]


def replace_file(path: str | os.PathLike[str], data: bytes, *, sync: bool = True, private: bool = False) -> None:
    """Make `data` the whole content of `path`: written to `path`.tmp, fsynced, renamed, and the directory fsynced.
    private: nobody but the owner may read it, from its first byte on; what was there may have been for all.

    `sync=False` leaves out both fsyncs: the content still changes all at once for other processes, but an operating
    system crash may lose or empty it. One writer a path at a time. On error (OSError) the old content stays and the
    file written aside is removed.
    """
    target = Path(path)
    aside = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        with descriptor(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            if private:
                os.fchmod(fd, OWNER_ONLY)
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if sync:
        fsync_directory(target.parent)
