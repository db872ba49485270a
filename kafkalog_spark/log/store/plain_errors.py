"""What the file systems of other libraries raise, as OSErrors with a sentence. Their own texts are not shown: nobody
here knows what they hold."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def asked(path: str, call: Callable[[], T]) -> T:
    """What `call` returns. Raises FileNotFoundError, PermissionError, OSError, each with a sentence and `path`."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - any class may come out of a file system of fsspec
        failed = _plain(error, path)
    raise failed  # not in `except`: a traceback would show the library's text above it


def _plain(error: Exception, path: str) -> OSError:
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is nothing of this name", path)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, "the file system does not allow it with the credentials it has", path)
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    reason = os.strerror(number) if number != errno.EIO else type(error).__name__
    return OSError(number, f"the file system fails ({reason})", path)
