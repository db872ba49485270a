"""Limits on schemas: nesting, number of columns, and depth of recursive types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import Parser

MAX_COLUMNS = 100_000
"""Columns of a schema, nested ones included. Types that refer to each other can expand without bound."""


@contextmanager
def recursion_bounded(what: str) -> Iterator[None]:
    """Raise OptionError if the block exceeds Python's recursion limit. what: the schema that it walks."""
    try:
        yield
    except RecursionError:
        raise OptionError(f"{what} is nested too deeply") from None


def depth_parser(maximum: int, *, strict: bool) -> Parser:
    """Return the parser of an option that limits how deep a recursive type is read.

    As in Spark, 0 and negative numbers mean that recursive types are refused.

    Args:
        maximum: Largest depth that Spark allows.
        strict: Whether a larger number is refused when the option is parsed. Otherwise the caller refuses it, and only
            if a type is recursive.
    """
    expected = f"expected 1 to {maximum}, or 0 or less to refuse recursive schemas"

    def parse(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"option '{name}' is '{text}': {expected}") from None
        if strict and number > maximum:
            raise OptionError(f"option '{name}' is {number}: {expected}")
        return number

    return parse
