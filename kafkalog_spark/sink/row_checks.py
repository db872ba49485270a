"""What a producer would refuse of a batch of rows, found before anything of it is written. Arrow's kernels look."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord


def check_rows(batch: pa.RecordBatch, *, timestamps: bool = True) -> None:
    """Raise InvalidRecord for a timestamp before 1970 (not looked at without `timestamps`) and for a null header."""
    names = batch.schema.names
    if timestamps and "timestamp" in names:
        column = batch.column("timestamp")
        earliest = pc.min(column.view(pa.int64())).as_py()
        if earliest is not None and earliest < 0:
            raise InvalidRecord(
                f"Invalid timestamp: {pc.min(column).as_py()}. Timestamp should always be non-negative or null",
                hint="Kafka takes no records from before 1970; a null timestamp becomes the time of the write",
            )
    if "headers" in names:
        headers = pc.list_flatten(batch.column("headers"))
        if headers.null_count or pc.struct_field(headers, "key").null_count:
            raise InvalidRecord("a header, or a header's key, is null", hint="leave it out of the array")
