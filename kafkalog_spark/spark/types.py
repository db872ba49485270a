"""Spark's types in Arrow."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError


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
