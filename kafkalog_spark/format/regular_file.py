"""Opens and reads regular files in directories to which other users may be able to write.

A name in such a directory may stand for a pipe, which would block an open, for a device or a sparse file, whose content
may be endless, or for a symbolic link out of the directory. Therefore every file that another process may have created
is opened by `open_regular`, and symbolic links are followed only for reading.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from kafkalog_spark.errors import CorruptFile, KafkalogError
from kafkalog_spark.format.fsync import fsync_descriptor

Content = TypeVar("Content")

FILE_MODE = 0o664
"""Mode of new files, before the umask: never writable by all users."""
NOT_REGULAR = "is not a regular file"
MAX_STATE_FILE_BYTES = 64 << 20
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


def read_whole(path: str | os.PathLike[str], max_bytes: int = MAX_STATE_FILE_BYTES) -> bytes:
    """Return the content of a small file.

    Args:
        max_bytes: Size limit in bytes.

    Raises:
        CorruptFile: If the file is larger than `max_bytes`; nothing is read then.
        NotRegularFile: If the path is not a regular file.
        OSError: If the file cannot be read.
    """
    with descriptor(path) as fd:
        size = os.fstat(fd).st_size
        if size > max_bytes:
            raise _too_large(f"{size}", path)
        with open(fd, "rb", closefd=False) as file:
            return file.read(max_bytes)


def parsed(
    read: Callable[[int], bytes], parse: Callable[[bytes], Content], path: str, max_bytes: int = MAX_STATE_FILE_BYTES
) -> Content:
    """Read and parse a file.

    Args:
        read: Returns the content, at most the given number of bytes.
        parse: Parses the content.
        path: Path that errors contain.
        max_bytes: Size limit in bytes.

    Raises:
        CorruptFile: If the content is larger than `max_bytes`.
        KafkalogError: If `parse` raises it; with the path.
    """
    try:
        data = read(max_bytes + 1)
        if len(data) > max_bytes:
            raise _too_large(f"more than {max_bytes}", path)
        return parse(data)
    except KafkalogError as error:
        raise error.at(path=path) from None


def read_state(
    path: str | os.PathLike[str], parse: Callable[[bytes], Content], max_bytes: int = MAX_STATE_FILE_BYTES
) -> Content | None:
    """Read and parse a state file.

    Returns:
        The parsed content, or None if the file does not exist.

    Raises:
        CorruptFile: If the path is not a regular file or the content is larger than `max_bytes`.
        KafkalogError: If `parse` raises it; with the path.
        OSError: If the file cannot be read.
    """
    try:
        return parsed(lambda size: read_whole(path, size), parse, os.fspath(path), max_bytes)
    except FileNotFoundError:
        return None
    except NotRegularFile as error:
        raise CorruptFile(NOT_REGULAR, path=os.fspath(path)) from error


def _too_large(size: str, path: str | os.PathLike[str]) -> CorruptFile:
    return CorruptFile(f"it has {size} bytes, and no broker writes so many into such a file", path=os.fspath(path))
