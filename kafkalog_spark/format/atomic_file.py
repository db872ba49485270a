"""Atomic replacement, safe opening and syncing of files in log directories.

A crash at any time leaves either the whole old content or the whole new content of a state file, as in Kafka
(Utils.atomicMoveWithFallback). Other users may be able to write to a log directory, and a name in it may stand for a
pipe, which would block an open, a device or a sparse file, which would never end, or a symbolic link out of the
directory. Therefore `open_regular` opens every file that another process may have created, and symbolic links are
followed only for reading.
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
"""Modes of all other files and directories, before the umask: never writable by all users."""

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of the temporary file that is renamed, as in Kafka. The next write removes a leftover one."""

DAMAGED_SUFFIX = ".damaged"
"""Suffix to which a damaged state file is renamed, or a directory that has the name of a file."""
NOT_REGULAR = "is not a regular file"
MOST_STATE_BYTES = 64 << 20
"""Default size limit in bytes of a file that is read whole: a checkpoint of a million partitions has 50 MB."""


class NotRegularFile(OSError):
    """A path that is not a regular file, or is a symbolic link and was opened for writing."""


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file and return its descriptor.

    Raises:
        NotRegularFile: For a pipe, a socket, a device or a directory; with flags for writing also for a symbolic link,
            because the file behind it may belong to somebody else.
        OSError: If it cannot be opened for another reason.
    """
    # Without O_NONBLOCK, opening a pipe would block until another process opens it for writing.
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
    """Open a file with `open_regular`, and close its descriptor at the end of the block."""
    fd = open_regular(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


class OpenFile:
    """Base class of files that own a descriptor, which is -1 after `close`. A context manager that closes the file."""

    _fd = -1

    def flush(self) -> None:
        """Fsync the file; no-op after `close`."""
        if self._fd >= 0:
            fsync_descriptor(self._fd)

    def close(self) -> None:
        """Close the descriptor without truncating the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data` at the current position of the descriptor, with as many calls as needed."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(fd, remaining) :]


def read_whole(path: str | os.PathLike[str], most: int = MOST_STATE_BYTES) -> bytes:
    """Return the content of a small file.

    Args:
        most: Size limit in bytes.

    Raises:
        CorruptFile: If the file is larger than `most`; nothing is read then.
        NotRegularFile: If the path is not a regular file.
        OSError: If the file cannot be read.
    """
    with descriptor(path) as fd:
        size = os.fstat(fd).st_size
        if size > most:
            raise _too_large(f"{size}", path)
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)


def parsed(
    read: Callable[[int], bytes], parse: Callable[[bytes], Content], path: str, most: int = MOST_STATE_BYTES
) -> Content:
    """Read and parse a file.

    Args:
        read: Returns the content, at most the given number of bytes.
        parse: Parses the content.
        path: Path that errors contain.
        most: Size limit in bytes.

    Raises:
        CorruptFile: If the content is larger than `most`.
        KafkalogError: If `parse` raises it; with the path.
    """
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
    """Read and parse a state file.

    Returns:
        The parsed content, or None if the file does not exist.

    Raises:
        CorruptFile: If the path is not a regular file or the content is larger than `most`.
        KafkalogError: If `parse` raises it; with the path.
        OSError: If the file cannot be read.
    """
    try:
        return parsed(lambda size: read_whole(path, size), parse, os.fspath(path), most)
    except FileNotFoundError:
        return None
    except NotRegularFile as error:
        raise CorruptFile(NOT_REGULAR, path=os.fspath(path)) from error


# The project calls fsync and fdatasync only in the next four functions. Syncing a file does not sync its directory
# entry, and syncing a directory does not sync the content of its files.


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


def _fsync_path(path: str | os.PathLike[str], flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        fsync_descriptor(fd)
    finally:
        os.close(fd)


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


def fsync_tree(path: str | os.PathLike[str]) -> None:
    """Sync all regular files below a directory, and the entries of the directory and its subdirectories."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            fsync_tree(entry.path)
        elif entry.is_file(follow_symlinks=False):
            fsync_file(entry.path)
    fsync_directory(path)


def replace_files(paths: Sequence[Path], data: bytes, *, private: bool = False) -> None:
    """Replace all copies of a file, one in each log directory, and ignore copies that cannot be written.

    Raises:
        OSError: If no copy can be written: the error of the first one.
    """
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

    The content is fsynced before the rename, so after a power cut `path` has either the old content or the new one.
    """
    _rename_aside(Path(path), data)


def replace_files_in(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Replace several files of one directory as `replace_file` does, with one fsync of the directory for all of them.

    The fsync also covers all entries created, renamed or removed in the directory before.
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
    """Create a temporary file and return its descriptor for writing.

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
        _set_directory_aside(path)
    return os.open(path, flags, FILE_MODE)


def _set_directory_aside(path: str | os.PathLike[str]) -> None:
    damaged = os.fspath(path) + DAMAGED_SUFFIX
    os.rename(path, damaged)
    _log.warning("%s is a directory, expected a file: it was renamed to %s", os.fspath(path), damaged)
