"""Options that hold a schema or the name of a file with one, and bounds on what they may hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import Parser

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
    """Text of a schema: `given` itself where it is JSON, else of the local file of that name. Raises OptionError."""
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    return file_bytes(option, given).decode("utf-8", "replace")


def file_bytes(option: str, path: str) -> bytes:
    """Bytes of a local file. Raises OptionError, naming the option."""
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


def depth(most: int, *, strict: bool) -> Parser:
    """Parser of the depth of a recursive schema: 0 and less refuse such schemas, as in Spark. strict: more than `most`
    is refused even where none is recursive."""
    expected = f"expected 1 to {most}, or 0 or less to refuse recursive schemas"

    def parse(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"option '{name}' is '{text}': {expected}") from None
        if strict and number > most:
            raise OptionError(f"option '{name}' is {number}: {expected}")
        return number

    return parse
