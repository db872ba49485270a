"""Atomic replacement of state files: a temporary file is written, synced and renamed.

A crash at any time leaves either the whole old content or the whole new content of the file, as in Kafka
(Utils.atomicMoveWithFallback).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalog_spark.format.fsync import fsync_descriptor, fsync_directory
from kafkalog_spark.format.regular_file import FILE_MODE, write_all

_log = logging.getLogger(__name__)

OWNER_ONLY = 0o600
"""Mode of files that hold passwords."""
TEMPORARY_SUFFIX = ".tmp"
"""Suffix of the temporary file that is renamed, as in Kafka. The next write removes a leftover one."""
DAMAGED_SUFFIX = ".damaged"
"""Suffix to which a damaged state file is renamed, or a directory that has the name of a file."""


def replace_file(path: str | os.PathLike[str], data: bytes, *, sync: bool = True, private: bool = False) -> None:
    """Replace the whole content of `path` by `data`, so that a crash leaves the old content or the new one.

    Writes `path`.tmp, fsyncs it, renames it and fsyncs the directory. Only one thread at a time may replace a path.
    Whatever has one of the two names is replaced: a file, a pipe or a symbolic link, which is not followed. A directory
    is renamed `.damaged`.

    Args:
        sync: False leaves both fsyncs to the caller. Until the caller has fsynced the file and its directory, a power
            cut can leave `path` with its old content, missing or empty.
        private: Create the file so that only its owner can read it, at any time.

    Raises:
        OSError: If the file cannot be written; the old content stays. If only the fsync of the directory failed, the
            new content is in place, but a power cut may still bring back the old one.
    """
    target = Path(path)
    _write_and_rename(target, data, sync=sync, private=private)
    if sync:
        fsync_directory(target.parent)


def replace_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the content of `path` as `replace_file` does, but leave the fsync of the directory to the caller.

    The content is fsynced before the rename, so after a power cut `path` has either the old content or the new one.
    """
    _write_and_rename(Path(path), data)


def replace_files_in(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Replace several files of one directory as `replace_file` does, with one fsync of the directory for all of them.

    The fsync also covers all entries created, renamed or removed in the directory before.
    """
    for name, data in contents.items():
        replace_bytes(directory / name, data)
    fsync_directory(directory)


def replace_files(paths: Sequence[Path], data: bytes, *, private: bool = False) -> None:
    """Replace all copies of a file, one in each log directory, and ignore copies that cannot be written.

    Raises:
        OSError: If there are copies, and none can be written: the error of the first one.
    """
    failures = []
    for path in paths:
        try:
            replace_file(path, data, private=private)
        except OSError as error:
            failures.append(error)
    if failures and len(failures) == len(paths):
        raise failures[0]


def create_temporary(path: str | os.PathLike[str], mode: int = FILE_MODE) -> int:
    """Create a temporary file with a mode, before the umask, and return its descriptor for writing.

    An existing file is removed, not truncated: it may be a leftover of a crash, but also a link that another user made
    to a file outside the directory.

    Raises:
        OSError: If the file cannot be created.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        if not os.path.isdir(path):
            raise
        _rename_damaged(path)
    return os.open(path, flags, mode)


def _write_and_rename(target: Path, data: bytes, *, sync: bool = True, private: bool = False) -> None:
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    fd = create_temporary(temporary, OWNER_ONLY if private else FILE_MODE)
    try:
        try:
            write_all(fd, data)
            if sync:
                fsync_descriptor(fd)
        finally:
            os.close(fd)
        try:
            os.replace(temporary, target)
        except IsADirectoryError:
            _rename_damaged(target)
            os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _rename_damaged(path: str | os.PathLike[str]) -> None:
    damaged = os.fspath(path) + DAMAGED_SUFFIX
    os.rename(path, damaged)
    _log.warning("%s is a directory, expected a file: it was renamed to %s", os.fspath(path), damaged)
