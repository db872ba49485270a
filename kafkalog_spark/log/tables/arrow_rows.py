"""From what was found to RecordBatches: columns of numpy tables, and small rows in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.log.format.layout import NO_TIMESTAMP
from kafkalog_spark.log.tables.table import TIMESTAMP

ROWS_A_BATCH = 8 << 10
"""Rows that are collected for one batch, of tables whose rows are few."""

_LARGEST_MS = (2**63 - 1) // 1000


def timestamps(ms: npt.NDArray[np.int64], known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Milliseconds as a column; null for -1, for what is not `known`, and for what microseconds cannot hold."""
    good = (ms != NO_TIMESTAMP) & (ms >= -_LARGEST_MS) & (ms <= _LARGEST_MS)
    if known is not None:
        good &= known
    return pa.array(np.where(good, ms, 0) * 1000, mask=~good).cast(TIMESTAMP)


def timestamp_us(ms: int) -> int | None:
    """One timestamp as a value of such a column."""
    return ms * 1000 if ms != NO_TIMESTAMP and abs(ms) <= _LARGEST_MS else None


def constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """A column that says the same everywhere."""
    return pa.repeat(pa.scalar(value, kind), rows)


class RowCollector:
    """Rows as tuples in the order of `schema`, handed over as RecordBatches."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]

    def add(self, row: Sequence[Any]) -> None:
        """row: as long as the schema; timestamps in microseconds."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self._columns[0])

    def take(self) -> pa.RecordBatch:
        """What was added since the last time."""
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)]
        self._columns = [[] for _ in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def collected(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
    """The rows in batches of ROWS_A_BATCH; none for no rows."""
    collector = RowCollector(schema)
    for row in rows:
        collector.add(row)
        if len(collector) >= ROWS_A_BATCH:
            yield collector.take()
    if len(collector):
        yield collector.take()
