"""What file systems of other libraries raise, as readers get it."""

from __future__ import annotations

import errno
import traceback

import pytest

from kafkalog_spark.store.fsspec_store import as_os_errors


class Odd(Exception):
    pass


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (FileNotFoundError("CANARY"), FileNotFoundError, "the path does not exist"),
        (PermissionError(errno.EPERM, "CANARY"), PermissionError, "denies access"),
        (OSError("CANARY"), OSError, r"fails \(OSError\)"),
        (OSError(errno.ENOSPC, "CANARY"), OSError, "No space left"),
        (Odd("CANARY"), OSError, r"fails \(Odd\)"),
    ],
)
def test_library_errors_become_oserrors_with_a_message(raised: Exception, kind: type[OSError], said: str) -> None:
    def call() -> None:
        raise raised

    with pytest.raises(kind, match=said) as caught:
        as_os_errors("x://y", call)
    assert caught.value.filename == "x://y"
    assert caught.value.strerror
    assert "CANARY" not in "".join(traceback.format_exception(caught.value))
