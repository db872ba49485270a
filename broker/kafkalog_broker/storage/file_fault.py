"""Classification of an OSError that was raised while log files were used: what must go offline because of it."""

from __future__ import annotations

import enum
import errno
import socket
import ssl

from kafkalog_broker.storage.partition.file_handles import is_out_of_descriptors
from kafkalog_spark.format.regular_file import NotRegularFile

_LOG_ERRNOS = (None, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
"""Error numbers that concern a file name, not the disk. Decompressors raise OSError without a number."""
_NOT_ABOUT_FILES = (
    ConnectionError,
    BlockingIOError,
    InterruptedError,
    ChildProcessError,
    ssl.SSLError,
    socket.gaierror,
)


class FileFault(enum.Enum):
    """Extent of a fault.

    DIRECTORY: The file system refuses an operation, so the log directory goes offline.
    LOG: One log is damaged, or one of its files is missing or not a regular file.
    NONE: The files are good; the same operation may succeed later.
    """

    DIRECTORY = enum.auto()
    LOG = enum.auto()
    NONE = enum.auto()


def file_fault(error: OSError) -> FileFault:
    """Classify `error`.

    A TimeoutError without an error number comes from a future, asyncio or a socket; one of a network file system has
    a number.
    """
    if is_out_of_descriptors(error) or isinstance(error, _NOT_ABOUT_FILES):
        return FileFault.NONE
    if isinstance(error, TimeoutError) and error.errno is None:
        return FileFault.NONE
    concerns_one_log = isinstance(error, NotRegularFile) or error.errno in _LOG_ERRNOS
    return FileFault.LOG if concerns_one_log else FileFault.DIRECTORY


def is_transient(error: BaseException) -> bool:
    """Return whether `error` is, or was raised from, an OSError with FileFault.NONE: the caller may try again."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return file_fault(cause) is FileFault.NONE
        cause = cause.__cause__
    return False
