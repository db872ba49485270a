"""Python data sources that read no log. They measure the cost of Spark's Data Source API alone.

`Ceiling` hands over a table that each worker builds once in memory, the upper limit for every source. As a stream, all
its rows are available at once, for Trigger.AvailableNow in batches of `maxOffsetsPerTrigger`. `Nothing` hands over 10
rows per partition, the lower limit for the time of a small query. As a stream, it has 20 rows per second, which depend
only on the clock, the lower limit for the time of a micro-batch. `Counting` is a sink that counts its rows, the upper
limit for every sink.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

BATCH_ROWS = 32_768
"""Rows of a batch. Spark is slower with fewer than 8 k rows, and not faster with more than 32 k."""

_FIELDS = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestampType": (IntegerType(), pa.int32()),
}


@cache
def batch(columns: tuple[str, ...], value_size: int, topic: str) -> pa.RecordBatch:
    """Return BATCH_ROWS rows like those of a log without keys, built once per process."""
    n = BATCH_ROWS
    arrays = {
        "key": lambda: pa.nulls(n, pa.binary()),
        "value": lambda: pa.array([os.urandom(value_size)] * n, pa.binary()),
        "topic": lambda: pa.array([topic] * n, pa.string()),
        "partition": lambda: pa.array([0] * n, pa.int32()),
        "offset": lambda: pa.array(range(n), pa.int64()),
        "timestamp": lambda: pa.array(range(n), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": lambda: pa.array([0] * n, pa.int32()),
    }
    schema = pa.schema([pa.field(name, _FIELDS[name][1]) for name in columns])
    return pa.RecordBatch.from_arrays([arrays[name]() for name in columns], schema=schema)


class Ceiling(DataSource):
    """Source of rows from memory, the upper limit for every source.

    Options, with their defaults: partitions (4), rows of a partition (1000000), value_size in bytes (100), topic
    (benchmark), and columns, separated by commas (all seven).
    """

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def columns(self) -> tuple[str, ...]:
        return tuple(self.options.get("columns", ",".join(_FIELDS)).split(","))

    def schema(self) -> StructType:
        return StructType([StructField(name, _FIELDS[name][0]) for name in self.columns()])

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(
            int(self.options.get("partitions", "4")),
            int(self.options.get("rows", "1000000")),
            int(self.options.get("value_size", "100")),
            self.columns(),
            self.options.get("topic", "benchmark"),
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CeilingStream(self.reader(schema), int(self.options["maxOffsetsPerTrigger"]))


class CeilingReader(DataSourceReader):
    """Reader that yields the same batch until a partition has its number of rows."""

    def __init__(self, partitions: int, rows: int, value_size: int, columns: tuple[str, ...], topic: str):
        self.shape = (partitions, rows, value_size, columns, topic)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self.shape[0])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _, rows, value_size, columns, topic = self.shape
        whole = batch(columns, value_size, topic)
        for done in range(0, rows, BATCH_ROWS):
            yield whole if rows - done >= BATCH_ROWS else whole.slice(0, rows - done)


class CeilingStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream of the same rows, with at most `cap` rows in a micro-batch and tasks of equal size."""

    def __init__(self, reader: Any, cap: int):
        self.shape, self.cap = reader.shape, cap

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        partitions, rows, *_ = self.shape
        return {"n": min(start["n"] + self.cap, partitions * rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        tasks = self.shape[0]
        return [InputPartition((end["n"] - start["n"]) // tasks) for _ in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        partitions, _, *others = self.shape
        return CeilingReader(partitions, partition.value, *others).read(partition)


class Counting(DataSource):
    """Sink that only counts the rows of its Arrow batches, the upper limit for every sink."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return CountingWriter()


class Counted(WriterCommitMessage):
    def __init__(self, rows: int):
        self.rows = rows


class CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class Nothing(Ceiling):
    """Source of 10 rows per partition. Option: partitions (4)."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(int(self.options.get("partitions", "4")), 10, 100, self.columns(), "benchmark")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ClockReader(self.columns())


class ClockReader(DataSourceStreamReader):
    """Stream of one row every 50 ms, with its time as timestamp."""

    EVERY_MS = 50

    def __init__(self, columns: tuple[str, ...]):
        self.columns = columns
        self.first: int | None = None

    def _now(self) -> int:
        return int(time.time() * 1000) // self.EVERY_MS

    def initialOffset(self) -> dict[str, int]:
        self.first = self.first or self._now()
        return {"n": self.first}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"n": max(self._now(), start["n"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["n"], end["n"]))] if end["n"] > start["n"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, end = partition.value
        whole = batch(self.columns, 20, "benchmark").slice(0, end - first)
        moments = pa.array([n * self.EVERY_MS * 1000 for n in range(first, end)], pa.int64())
        at = self.columns.index("timestamp")
        columns = [*whole.columns[:at], moments.cast(pa.timestamp("us", tz="UTC")), *whole.columns[at + 1 :]]
        yield pa.RecordBatch.from_arrays(columns, schema=whole.schema)
