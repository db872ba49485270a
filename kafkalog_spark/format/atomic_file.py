"""State files, read and replaced so that a crash at any instant leaves the old content or the new, whole, as Kafka does
it with its checkpoints, partition.metadata and meta.properties (Utils.atomicMoveWithFallback).

Whoever may write to a log directory chooses what its names stand for: a pipe of a checkpoint's name would keep an open
waiting, a device or a sparse file would never end, and a symbolic link may lead out of the directory. `open_regular`
opens every file that others may have made. Symbolic links are followed for reading only.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from kafkalog_spark.errors import CorruptFile, KafkalogError

Content = TypeVar("Content")

_log = logging.getLogger(__name__)

OWNER_ONLY = 0o600  # the mode of files that hold passwords
FILE_MODE, DIRECTORY_MODE = 0o664, 0o775
"""Modes of all other files and directories, less the umask: never writable by everybody."""

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of the file written aside, as in Kafka; the next write removes a left-over one."""

DAMAGED_SUFFIX = ".damaged"
"""Suffix of a damaged state file, or of a directory in the place of a file, that was renamed to make room."""
NOT_REGULAR = "is not a regular file"
MOST_STATE_BYTES = 64 << 20
"""Bytes of a file that is read whole, unless its kind has fewer: a checkpoint of a million partitions has 50 MB."""


class NotRegularFile(OSError):
    """A path that is not a regular file, or is a symbolic link and was opened for writing."""


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file and return its descriptor.

    Raises:
        NotRegularFile: For a pipe, a socket, a device or a directory; with flags for writing also for a symbolic link,
            because the file behind it may belong to somebody else.
        OSError: If it cannot be opened for another reason.
    """
    # without O_NONBLOCK a pipe would not even be opened before somebody writes to it
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if flags & (os.O_WRONLY | os.O_RDWR):
        flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, FILE_MODE)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW and os.path.islink(path):
            what = "is a symbolic link, and files are not written through one"
            raise NotRegularFile(errno.EINVAL, what, os.fspath(path)) from None
        if error.errno not in (errno.ENXIO, errno.EISDIR):  # ENXIO: a socket
            raise
    raise NotRegularFile(errno.EINVAL, NOT_REGULAR, os.fspath(path))


@contextmanager
def descriptor(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> Iterator[int]:
    """As `open_regular`, closed when the block ends."""
    fd = open_regular(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


class OpenFile:
    """A file with a descriptor of its own, -1 when it is closed. A context manager that closes it."""

    _fd = -1

    def flush(self) -> None:
        if self._fd >= 0:
            fsync_descriptor(self._fd)

    def close(self) -> None:
        """Close the descriptor; the file keeps its size. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write at the descriptor's place, however many calls that takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_whole(path: str | os.PathLike[str], most: int = MOST_STATE_BYTES) -> bytes:
    """A small file's bytes. Raises CorruptFile for more than `most`, of which none is read, and OSError."""
    with descriptor(path) as fd:
        size = os.fstat(fd).st_size
        if size > most:
            raise _too_large(f"{size}", path)
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)


def parsed(
    read: Callable[[int], bytes], parse: Callable[[bytes], Content], path: str, most: int = MOST_STATE_BYTES
) -> Content:
    """`parse` of what `read` gives of so many bytes at most. Errors get the path; CorruptFile for more than `most`."""
    try:
        data = read(most + 1)
        if len(data) > most:
            raise _too_large(f"more than {most}", path)
        return parse(data)
    except KafkalogError as error:
        raise error.at(path=path) from None


def _too_large(size: str, path: str | os.PathLike[str]) -> CorruptFile:
    return CorruptFile(f"it has {size} bytes, and no broker writes so many into such a file", path=os.fspath(path))


def read_state(
    path: str | os.PathLike[str], parse: Callable[[bytes], Content], most: int = MOST_STATE_BYTES
) -> Content | None:
    """As `parsed`, None when there is no such file. Raises CorruptFile also for a path that is not a regular file, and
    OSError for every other trouble."""
    try:
        return parsed(lambda size: read_whole(path, size), parse, os.fspath(path), most)
    except FileNotFoundError:
        return None
    except NotRegularFile as error:
        raise CorruptFile(NOT_REGULAR, path=os.fspath(path)) from error


# All calls of fsync and fdatasync in the project are in the next four functions. They differ in what they make durable:
# the bytes of a file, or the names in a directory. Syncing a file does not sync its name.


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Put the bytes and the size of a file on disk. Raises OSError."""
    _fsync_path(path, os.O_NONBLOCK)  # an open without O_NONBLOCK would wait for the other end of a pipe


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Put the entries of a directory on disk: every file created, renamed or removed in it so far. Raises OSError."""
    _fsync_path(path, os.O_DIRECTORY)


def fsync_descriptor(fd: int) -> None:
    """Put the bytes, the size and the times of an open file on disk. Raises OSError."""
    os.fsync(fd)


def fdatasync_descriptor(fd: int) -> None:
    """Put the bytes and the size of an open file on disk, but not its times. Raises OSError."""
    os.fdatasync(fd)


def _fsync_path(path: str | os.PathLike[str], flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        fsync_descriptor(fd)
    finally:
        os.close(fd)


def make_directories(path: str | os.PathLike[str]) -> None:
    """Create a directory and its missing parents; their names are on disk on return.

    Each directory that gets a new entry is fsynced, because a power cut could otherwise take the directory away from
    the files that were synced in it. Does nothing if the directory exists.

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


def fsync_tree(path: str | os.PathLike[str]) -> None:
    """Put all regular files below a directory on disk, and the names in it and in its subdirectories."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            fsync_tree(entry.path)
        elif entry.is_file(follow_symlinks=False):
            fsync_file(entry.path)
    fsync_directory(path)


def replace_files(paths: Sequence[Path], data: bytes, *, private: bool = False) -> None:
    """`replace_file` of all copies, one a log directory. Raises the first OSError when none can be written."""
    failures = []
    for path in paths:
        try:
            replace_file(path, data, private=private)
        except OSError as error:
            failures.append(error)
    if len(failures) == len(paths):
        raise failures[0]


def replace_file(path: str | os.PathLike[str], data: bytes, *, sync: bool = True, private: bool = False) -> None:
    """Replace the whole content of `path` by `data`, so that a crash leaves the old content or the new one.

    Writes `path`.tmp, fsyncs it, renames it and fsyncs the directory. Only one thread at a time may replace a path.
    Whatever has one of the two names is replaced: a file, a pipe or a symbolic link, which is not followed. A directory
    is renamed `.damaged`.

    Args:
        sync: False leaves both fsyncs to the caller. Until the caller has fsynced the file and its directory, a power
            cut can leave `path` with its old content, missing or empty.
        private: Create the file so that only its owner can ever read it.

    Raises:
        OSError: If the file cannot be written; the old content stays. If only the fsync of the directory failed, the
            new content is in place, but a power cut may still bring back the old one.
    """
    target = Path(path)
    _rename_aside(target, data, sync=sync, private=private)
    if sync:
        fsync_directory(target.parent)


def replace_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the content of `path` as `replace_file` does, but leave the fsync of the directory to the caller.

    The bytes are on disk before they get the name: after a power cut the name stands for the old content or the new.
    """
    _rename_aside(Path(path), data)


def replace_files_in(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Replace several files of one directory as `replace_file` does, with one fsync of the directory for all of them.

    All names that were created, renamed or removed in the directory before are on disk on return, too.
    """
    for name, data in contents.items():
        replace_bytes(directory / name, data)
    fsync_directory(directory)


def _rename_aside(target: Path, data: bytes, *, sync: bool = True, private: bool = False) -> None:
    aside = target.with_name(target.name + TEMPORARY_SUFFIX)
    fd = create_aside(aside)
    try:
        try:
            if private:
                os.fchmod(fd, OWNER_ONLY)
            write_all(fd, data)
            if sync:
                fsync_descriptor(fd)
        finally:
            os.close(fd)
        try:
            os.replace(aside, target)
        except IsADirectoryError:
            _set_directory_aside(target)
            os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def create_aside(path: str | os.PathLike[str]) -> int:
    """Create the file that is written aside, and return its descriptor for writing.

    A left-over one is removed first, not truncated: a crash leaves a file, but somebody else may have left a link to a
    file outside the directory. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        if not os.path.isdir(path):
            raise
        _set_directory_aside(path)
    return os.open(path, flags, FILE_MODE)


def _set_directory_aside(path: str | os.PathLike[str]) -> None:
    damaged = os.fspath(path) + DAMAGED_SUFFIX
    os.rename(path, damaged)
    _log.warning("%s is a directory, expected a file: it is kept as %s", os.fspath(path), damaged)
