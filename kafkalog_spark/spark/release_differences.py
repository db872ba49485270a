"""Differences between Spark's releases, hidden from readers and writers."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.types import StructType

StreamWriterBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
"""Base class of stream writers that receive Arrow batches; `object` in Spark 4.0, which has no such class."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the batches that Spark expects from a reader. The time zone of timestamps is UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before Spark 4.2 the zone is always UTC
