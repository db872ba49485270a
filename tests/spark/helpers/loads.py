"""Helpers for tests in real Spark: load a log, collect values, and expect an error."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.source.helpers.driver import SUBSCRIPTIONS


def load(spark: Any, path: Path | str | list[str], schema: str | StructType | None = None, **options: object) -> Any:
    """`spark.read.format("kafkalog").options(...).load(path)`; no registration call. All topics unless
    some are named."""
    reader = spark.read.format("kafkalog")
    if schema is not None:
        reader = reader.schema(schema)
    for name, value in options.items():
        reader = reader.option(name, value)
    if not options.keys() & SUBSCRIPTIONS:
        reader = reader.option("allTopics", True)
    return reader.load(path if isinstance(path, list) else str(path))


def values(df: Any) -> list[str]:
    """Run one action: return the values as text, by partition and offset."""
    rows = df.select("partition", "offset", "value").toArrow().to_pylist()
    return [row["value"].decode() for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]


def explained(df: Any) -> str:
    """Return the text of explain("formatted")."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        df.explain("formatted")
    return text.getvalue()


@contextlib.contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session and restore it afterwards."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


class Failure:
    """Filled in by `fails`: `line` is the first line that says anything, without what Spark puts before our text."""

    line: str = ""
    text: str = ""


@contextlib.contextmanager
def fails() -> Iterator[Failure]:
    """The block must fail with one of our errors, in the first line of Spark's exception and without a traceback.

    PySpark gives the heading "An exception was thrown from the Python worker:" a line of its own, which the JVM's text
    does not have; the line after it counts as the first.
    """
    from pyspark.errors import PySparkException

    failure = Failure()
    with pytest.raises(PySparkException) as caught:
        yield failure
    failure.text = str(caught.value)
    first, *others = failure.text.strip().splitlines()
    line = others[0] if "thrown from the Python worker" in first else first
    assert "kafkalog_spark.errors." in line, failure.text
    assert "Traceback" not in failure.text
    failure.line = line.partition("kafkalog_spark.errors.")[2].partition(": ")[2]
