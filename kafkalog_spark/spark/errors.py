"""Errors as Spark's users meet them: our sentence in the first line, and nothing after it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from kafkalog_spark.errors import DecompressesTooFar, KafkalogError

F = TypeVar("F", bound=Callable[..., Any])


def raise_first_line(error: KafkalogError) -> NoReturn:
    """Raise `error` so that Spark's message begins with its text instead of "Traceback (most recent call last)".

    Spark's workers leave the traceback out when SPARK_HIDE_TRACEBACK is set (pyspark.util.handle_worker_exception), and
    a worker ends with the exception it reports: the setting outlives nothing else.
    """
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    if isinstance(error, DecompressesTooFar) and error.hint:  # the log format knows no options
        error.hint = "raise the option maxDecompressedBatchBytes if such batches are meant to be there"
    raise error


def first_line(function: F) -> F:
    """Decorator for what Spark calls: a KafkalogError leaves it with its text in the first line."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except KafkalogError as error:
            raise_first_line(error)

    return call  # type: ignore[return-value]


def first_line_of(batches: Iterator[Any]) -> Iterator[Any]:
    """The same for what an iterator raises while it is read."""
    try:
        yield from batches
    except KafkalogError as error:
        raise_first_line(error)
