"""Arrow batches as the plain rows that golden_data and the plain decoder speak of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.log.decode.record_schema import COLUMNS

ALL_COLUMNS = (*COLUMNS, "headers")


def plain_rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """One dict a row: timestamp in ms, headers as [(str, bytes or None)], empty where the column is null."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        columns: dict[str, list[Any]] = {}
        for name in batch.schema.names:
            column = batch.column(name)
            if name == "timestamp":
                columns[name] = [us // 1000 for us in column.cast(pa.int64()).to_pylist()]
            elif name == "headers":
                columns[name] = [
                    [(header["key"], header["value"]) for header in headers or []] for headers in column.to_pylist()
                ]
            else:
                columns[name] = column.to_pylist()
        rows.extend(dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return rows
