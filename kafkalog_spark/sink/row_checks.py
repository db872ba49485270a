"""Checks for rows that a producer would refuse, with the messages of Kafka's producer and of Spark's Kafka sink."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.layout import MAX_TIMESTAMP_MS


def check_rows(batch: pa.RecordBatch, *, timestamps: bool = True) -> None:
    """Raise InvalidRecord for a null header, and for a timestamp before 1970 or beyond Spark's range.

    Called before any record of the batch is written.

    Args:
        batch: The rows.
        timestamps: False to skip the check of timestamps.
    """
    names = batch.schema.names
    if timestamps and "timestamp" in names:
        column = batch.column("timestamp")
        earliest, latest = pc.min_max(column.view(pa.int64())).as_py().values()
        if latest is not None and latest > MAX_TIMESTAMP_MS and column.type == pa.int64():
            raise InvalidRecord(
                f"Invalid timestamp: {latest}. In microseconds, the unit of Spark's timestamps, it does not fit 64 "
                f"bits, and no reader would accept it; the largest valid timestamp is {MAX_TIMESTAMP_MS}",
                hint="a bigint `timestamp` is in milliseconds",
            )
        if earliest is not None and earliest < 0:
            raise InvalidRecord(
                f"Invalid timestamp: {pc.min(column).as_py()}. Timestamp should always be non-negative or null",
                hint="Kafka accepts no records from before 1970; a null timestamp becomes the time of the write",
            )
    if "headers" in names:
        headers = pc.list_flatten(batch.column("headers"))
        if headers.null_count or pc.struct_field(headers, "key").null_count:
            raise InvalidRecord("a header, or the key of a header, is null", hint="remove it from the array")


def topic_column(batch: pa.RecordBatch) -> pa.Array:
    """Return the column `topic`. Raises InvalidRecord, with the connector's message, for nulls in it."""
    column = batch.column("topic")
    if column.null_count:
        raise InvalidRecord(
            "[KAFKA_NULL_TOPIC_IN_DATA] null topic present in the data. Use the topic option for setting a default "
            "topic",
            hint=f"it is row {pc.index(column.is_null(), True).as_py()} of an Arrow batch",
        )
    return column


def negative_partition(partition: int) -> str:
    """Return Kafka's message for a negative partition number."""
    return f"Invalid partition number: {partition}. Partition number should always be non-negative or null."
