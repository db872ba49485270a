"""Short constructors of instants and accepted filters for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import Filter

from kafkalog_spark.source.filters import split_filters
from kafkalog_spark.source.row_filter import RowFilter

OFFSET, TIMESTAMP, PARTITION, TOPIC = ("offset",), ("timestamp",), ("partition",), ("topic",)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def accepted(*filters: Filter) -> RowFilter:
    row_filter, unsupported = split_filters(filters)
    assert unsupported == []
    return row_filter
