"""Classification of an OSError from work on log files: does it concern one log, its directory, or no file at all?"""

from __future__ import annotations

import enum
import errno
import socket
import ssl

from kafkalog_broker.storage.partition.file_handles import is_out_of_descriptors
from kafkalog_spark.format.regular_file import NotRegularFile

_LOG_ERRNOS = (None, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
"""Errors about a name in a partition's directory, not about the disk."""
_NOT_ABOUT_FILES = (
    ConnectionError,
    BlockingIOError,
    InterruptedError,
    ChildProcessError,
    ssl.SSLError,
    socket.gaierror,
)


class FileFault(enum.Enum):
    """What an error says about the files.

    DIRECTORY: the file system refuses an operation, so the log directory goes offline.
    LOG: one log is damaged, or one of its files is missing or not a regular file.
    NONE: the files are good; the same operation may succeed later.
    """

    DIRECTORY = enum.auto()
    LOG = enum.auto()
    NONE = enum.auto()


def file_fault(error: OSError) -> FileFault:
    """Classify `error`.

    TimeoutError of futures, asyncio and sockets is an OSError without an errno; only a network file system raises it
    with one. Decompressors raise OSError without an errno for damaged bytes.
    """
    if is_out_of_descriptors(error) or isinstance(error, _NOT_ABOUT_FILES):
        return FileFault.NONE
    if isinstance(error, TimeoutError) and error.errno is None:
        return FileFault.NONE
    concerns_one_log = isinstance(error, NotRegularFile) or error.errno in _LOG_ERRNOS
    return FileFault.LOG if concerns_one_log else FileFault.DIRECTORY


def is_transient(error: BaseException) -> bool:
    """Return whether `error` is, or was raised from, an OSError that says nothing about the files.

    The same operation may succeed later.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return file_fault(cause) is FileFault.NONE
        cause = cause.__cause__
    return False
