"""Limits on schemas: nesting, number of columns, and depth of recursive types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import Parser

MOST_COLUMNS = 100_000
"""Columns in columns that a schema may have: types that name each other can make more than any memory holds."""


@contextmanager
def recursion_bounded(what: str) -> Iterator[None]:
    """Walks over types that a schema nests: where Python's stack ends, an OptionError."""
    try:
        yield
    except RecursionError:
        raise OptionError(f"{what} is nested too deeply") from None


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
