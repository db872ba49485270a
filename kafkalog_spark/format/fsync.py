"""Fsync of files and directories, and creation of directories that survive a power cut.

No other module of the project calls fsync or fdatasync, so that the order of writes can be reviewed. Syncing a file
does not sync its directory entry, and syncing a directory does not sync the content of its files.
"""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY_MODE = 0o775
"""Mode of new directories, before the umask: never writable by all users."""


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Sync the content and the size of a file. Raises OSError."""
    _fsync_path(path, os.O_NONBLOCK)  # an open without O_NONBLOCK would wait for the other end of a pipe


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Sync the entries of a directory: all files created, renamed or removed in it so far. Raises OSError."""
    _fsync_path(path, os.O_DIRECTORY)


def fsync_descriptor(fd: int) -> None:
    """Sync the content, the size and the times of an open file. Raises OSError."""
    os.fsync(fd)


def fdatasync_descriptor(fd: int) -> None:
    """Sync the content and the size of an open file, but not its times. Raises OSError."""
    os.fdatasync(fd)


def fsync_tree(path: str | os.PathLike[str]) -> None:
    """Sync all regular files below a directory, and the entries of the directory and its subdirectories."""
    for dir_entry in os.scandir(path):
        if dir_entry.is_dir(follow_symlinks=False):
            fsync_tree(dir_entry.path)
        elif dir_entry.is_file(follow_symlinks=False):
            fsync_file(dir_entry.path)
    fsync_directory(path)


def make_directories(path: str | os.PathLike[str]) -> None:
    """Create a directory and its missing parents, and fsync their entries.

    Without the fsync of each parent, a power cut could remove the directory together with files already synced in it.
    No-op if the directory exists.

    Raises:
        OSError: If a directory cannot be created or synced; FileExistsError if `path` is a file.
    """
    directory = Path(path)
    if directory.is_dir():
        return
    if directory.parent != directory:
        make_directories(directory.parent)
    try:
        directory.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        if not directory.is_dir():
            raise
    fsync_directory(directory.parent)


def _fsync_path(path: str | os.PathLike[str], flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        fsync_descriptor(fd)
    finally:
        os.close(fd)
