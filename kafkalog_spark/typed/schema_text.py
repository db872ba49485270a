"""Options that hold a schema, or the name of a file that does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog_spark.errors import OptionError

MOST_BYTES = 16 << 20
MOST_COLUMNS = 100_000
"""Columns in columns that a schema may have: types that name each other can make more than any memory holds."""


@contextmanager
def recursion_bounded(what: str) -> Iterator[None]:
    """Walks over types that a schema nests: where Python's stack ends, an OptionError."""
    try:
        yield
    except RecursionError:
        raise OptionError(f"{what} is nested too deeply") from None


def schema_text(option: str, given: str) -> str:
    """The text of a schema: `given` itself where that is JSON, else what is in the local file of that name. Raises
    OptionError."""
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    return file_bytes(option, given).decode("utf-8", "replace")


def file_bytes(option: str, path: str) -> bytes:
    """What is in a local file. Raises OptionError, naming the option."""
    try:
        with open(path.removeprefix("file://"), "rb") as file:
            found = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise OptionError(
            f"option '{option}' names {path}, which cannot be read: {error.strerror}",
            hint="the value is a schema itself, or the path of a file on the machine of the driver",
        ) from error
    if len(found) > MOST_BYTES:
        raise OptionError(f"option '{option}' names {path}, which has more than {MOST_BYTES >> 20} MB")
    return found


def switch(option: str, text: str | None) -> bool:
    """Scala's toBoolean: true or false, in any case. Raises OptionError."""
    if text is None:
        return False
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option '{option}' is '{text}': expected true or false")
    return text.lower() == "true"
