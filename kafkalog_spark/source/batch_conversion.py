"""Conversion of scanned record batches to the schema of a read, with values and keys decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import MalformedValue
from kafkalog_spark.source.record_projection import RECORD_ID, RecordProjection
from kafkalog_spark.typed.decoder import decode_column
from kafkalog_spark.typed.formats import ResolvedFormat


def convert_batch(projection: RecordProjection, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch. Raises MalformedValue for a malformed value in mode FAILFAST."""
    if not projection.decoders:
        return batch_in_schema(batch, projection.schema)
    decoded: dict[str, list[Any]] = {}
    keep: np.ndarray | None = None
    for side, (given, decoder) in projection.decoders.items():
        result = decode_column(decoder, batch, side)
        if result.bad is not None:
            if given.mode == "FAILFAST":
                raise _malformed(projection.columns, batch, given, int(np.argmax(result.bad)), result.why)
            if given.mode == "DROPMALFORMED":
                keep = ~result.bad if keep is None else keep & ~result.bad
        struct = result.columns
        fields = struct.flatten() if struct.null_count else map(struct.field, range(struct.type.num_fields))
        decoded[side] = [*fields, struct]  # the struct is last, at WHOLE_STRUCT
    arrays = [
        _as_type(batch.column(position), field.type) if side is None else decoded[side][position]
        for (side, position), field in zip(projection.origins, projection.schema, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=projection.schema)
    return rows if keep is None else rows.filter(pa.array(keep))


def batch_in_schema(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch with Spark's schema and the same buffers. Bytes become strings unchecked, as in Spark's cast."""
    if not len(target):
        return batch.select([])  # keeps the number of rows, which from_arrays would take from the first column
    arrays = [_as_type(array, field.type) for array, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _malformed(
    columns: tuple[str, ...], batch: pa.RecordBatch, given: ResolvedFormat, row: int, why: Callable[[int], str]
) -> MalformedValue:
    topic, partition, offset = (batch.column(columns.index(column))[row].as_py() for column in RECORD_ID)
    return MalformedValue(
        f"the {given.side} cannot be read as {given.name}: {why(row)}",
        topic_partition=f"{topic}-{partition}",
        offset=offset,
        hint=f"{given.side}.mode=PERMISSIVE reads such fields as null, DROPMALFORMED skips such records",
    )


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type: bytes as strings, others unchanged."""
    if kind != pa.string() or array.type != pa.binary():
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers(), null_count=array.null_count, offset=array.offset)
