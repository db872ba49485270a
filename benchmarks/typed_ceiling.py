"""Python data source of typed columns from memory, the upper limit for every decoder.

`benchmarks.sources.Ceiling` is the corresponding source with the columns of Kafka records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.sources import BATCH_ROWS
from benchmarks.typed_formats import SCHEMA, values_of
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.formats import ResolvedFormat


@cache
def batch(ddl: str, rows: int) -> pa.RecordBatch:
    """Return a batch of `rows` rows with the columns of `ddl`, decoded once per process."""
    schema = schema_of_ddl(ddl)
    values = pa.array(list(islice(cycle(values_of("avro")), rows)), pa.binary())
    return pa.RecordBatch.from_struct_array(
        ResolvedFormat("avro", {"schema": json.dumps(SCHEMA)}).decoder(schema).decode(values).columns
    )


class TypedCeiling(DataSource):
    """Source of decoded rows from memory. The schema of the read selects fields of the benchmark's values.

    Options, with their defaults: partitions (4), rows of a partition (500000), and batch_rows (32768).
    """

    @classmethod
    def name(cls) -> str:
        return "typed_ceiling"

    def reader(self, schema: object) -> DataSourceReader:
        ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)  # type: ignore[attr-defined]
        return TypedCeilingReader(
            int(self.options.get("partitions", "4")),
            int(self.options.get("rows", "500000")),
            int(self.options.get("batch_rows", str(BATCH_ROWS))),
            ddl,
        )


class TypedCeilingReader(DataSourceReader):
    """Reader that yields the same batch until a partition has its number of rows."""

    def __init__(self, partitions: int, rows: int, batch_rows: int, ddl: str):
        self.shape = (partitions, rows, batch_rows, ddl)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self.shape[0])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _, rows, size, ddl = self.shape
        whole = batch(ddl, size)
        for done in range(0, rows, size):
            yield whole if rows - done >= size else whole.slice(0, rows - done)
