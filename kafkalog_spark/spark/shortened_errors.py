"""Errors in Spark's messages: the error's own sentence in the first line, without a Python traceback."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from pyspark.sql import datasource

from kafkalog_spark.errors import DecompressesTooFar, KafkalogError

F = TypeVar("F", bound=Callable[..., Any])


def raise_shortened(error: KafkalogError) -> NoReturn:
    """Raise `error` so that Spark's message begins with its text instead of "Traceback (most recent call last)".

    An environment variable of the worker process tells PySpark to omit the traceback
    (`pyspark.util.handle_worker_exception`). It affects no other error, because the process ends with this one.
    """
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    if isinstance(error, DecompressesTooFar) and error.hint:  # the code that raises it does not know Spark's options
        error.hint = "raise the option maxDecompressedBatchBytes if such batches are intended"
    raise error


def shorten_errors(function: F) -> F:
    """Decorate a method that Spark calls so that it raises every KafkalogError by `raise_shortened`."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except KafkalogError as error:
            raise_shortened(error)

    return call  # type: ignore[return-value]


def shorten_iterator_errors(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches; a KafkalogError of the iterator is raised by `raise_shortened`."""
    try:
        yield from batches
    except KafkalogError as error:
        raise_shortened(error)


class RefusedStreamReader(datasource.DataSourceStreamReader):
    """Reader of a stream with invalid options. It raises `error` when the query starts.

    Spark replaces an error during the creation of a reader by a NameError (`python_streaming_source_runner.py`).
    """

    def __init__(self, error: KafkalogError) -> None:
        self._error = error

    def _refuse(self, *_: Any) -> NoReturn:
        raise_shortened(self._error)

    getDefaultReadLimit = initialOffset = latestOffset = reportLatestOffset = partitions = read = _refuse
