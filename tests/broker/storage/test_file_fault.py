"""Classification of OSErrors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import gzip
import os
import socket
import ssl

import pytest

from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_spark.format.regular_file import NotRegularFile

DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.ESTALE, errno.ENOTCONN)
OTHER_ERRORS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.ECONNRESET, errno.EPIPE)


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((system_error(number), FileFault.DIRECTORY) for number in DISK_ERRORS),
        (system_error(errno.ETIMEDOUT), FileFault.DIRECTORY),  # a network file system that does not respond
        (system_error(errno.ENOENT), FileFault.LOG),
        *((system_error(number), FileFault.LOG) for number in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP)),
        (NotRegularFile(errno.EINVAL, "is not a regular file", "x.log"), FileFault.LOG),
        (OSError("the batch is damaged"), FileFault.LOG),
        (gzip.BadGzipFile("not a gzipped file"), FileFault.LOG),
        *((system_error(number), FileFault.NONE) for number in OTHER_ERRORS),
        (TimeoutError(), FileFault.NONE),
        (concurrent.futures.TimeoutError(), FileFault.NONE),
        (asyncio.TimeoutError(), FileFault.NONE),  # noqa: UP041 - the names of older releases are the subject
        (TimeoutError("timed out"), FileFault.NONE),
        (ssl.SSLError(1, "bad record"), FileFault.NONE),
        (socket.gaierror(-2, "Name or service not known"), FileFault.NONE),
    ],
    ids=repr,
)
def test_file_fault_of_an_os_error_is_directory_log_or_none(error: OSError, expected: FileFault) -> None:
    assert file_fault(error) is expected
