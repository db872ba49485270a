"""What a producer would refuse of a batch of rows, found before anything of it is written. Arrow's kernels look."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.log.format.layout import MAX_TIMESTAMP_MS
from kafkalog_spark.log.write.compress import check_decompressed


def check_rows(batch: pa.RecordBatch, *, timestamps: bool = True) -> None:
    """Raise InvalidRecord for a timestamp before 1970, or beyond what Spark has (not looked at without `timestamps`),
    and for a null header."""
    names = batch.schema.names
    if timestamps and "timestamp" in names:
        column = batch.column("timestamp")
        earliest, latest = pc.min_max(column.view(pa.int64())).as_py().values()
        if latest is not None and latest > MAX_TIMESTAMP_MS and column.type == pa.int64():
            raise InvalidRecord(
                f"Invalid timestamp: {latest}. In microseconds, which Spark's timestamps have, it does not fit 64 "
                f"bits, and no reader would take it; the last one is {MAX_TIMESTAMP_MS}",
                hint="a bigint `timestamp` is in milliseconds",
            )
        if earliest is not None and earliest < 0:
            raise InvalidRecord(
                f"Invalid timestamp: {pc.min(column).as_py()}. Timestamp should always be non-negative or null",
                hint="Kafka takes no records from before 1970; a null timestamp becomes the time of the write",
            )
    if "headers" in names:
        headers = pc.list_flatten(batch.column("headers"))
        if headers.null_count or pc.struct_field(headers, "key").null_count:
            raise InvalidRecord("a header, or a header's key, is null", hint="leave it out of the array")


def check_sizes(batch: pa.RecordBatch) -> None:
    """Raise InvalidRecord for a record whose key and value are more than a compressed batch may hold."""
    columns = [batch.column(name) for name in ("key", "value") if name in batch.schema.names]
    sizes = [pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0) for column in columns]
    check_decompressed(pc.max(reduce(pc.add, sizes)).as_py() or 0)
