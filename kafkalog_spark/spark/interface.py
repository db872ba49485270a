"""Interface to Spark: its types in Arrow, the base of its stream writers, errors as its users meet them: our
sentence in the first line, nothing after it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from kafkalog_spark.errors import DecompressesTooFar, KafkalogError, OptionError

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


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects a batch of these columns, or hands it over but for zones."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2 timestamps are in UTC without being asked


StreamWriterBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
"""Base of stream writers that are given Arrow batches, which Spark 4.0 does not have."""


def check_stream_writers() -> None:
    """Raises OptionError where Spark has none."""
    if StreamWriterBase is object:
        raise OptionError(
            f"writing streams needs Spark 4.1 or newer, this is {pyspark.__version__}",
            hint="write each micro-batch with foreachBatch",
        )
