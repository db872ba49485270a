"""Spark's types in Arrow."""

from __future__ import annotations

from inspect import signature

import pyarrow as pa
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects a batch of these columns, or hands it over but for zones."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2 timestamps are in UTC without being asked
