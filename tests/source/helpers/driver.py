"""format("kafkalog") without Spark: the calls that Spark makes, in its order, with everything pickled in between.

    Load(path, subscribe="orders").scan().read()        # pyarrow.Table

One `Load` is one `load()`, one `Scan` one planned query: Spark 4 plans a query once and keeps that plan for all actions
on the DataFrame, so `Scan.read()` called twice is two actions.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafkalog_spark.datasource import KafkaLogDataSource
from kafkalog_spark.source.split import Split

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # Spark 4.0 has none

SUBSCRIPTIONS = frozenset({"subscribe", "subscribePattern", "assign", "allTopics"})
SPARK_5 = mock.patch("kafkalog_spark.source.pushdown.FILTERS_ARE_PER_SCAN", True)
"""Here every scan is made anew, which is what pushdown=true needs."""


class Load:
    """`spark.read.format("kafkalog").options(...).load(...)`: options are checked here, unless there is a
    schema. All topics are read unless the options name some."""

    def __init__(self, *paths: Path | str, schema: StructType | None = None, **options: object) -> None:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        if len(paths) == 1:
            texts["path"] = str(paths[0])
        elif paths:
            texts["paths"] = json.dumps([str(path) for path in paths])  # what Spark makes of load([...])
        if not texts.keys() & SUBSCRIPTIONS:
            texts["allTopics"] = "true"
        self._source = _pickled(KafkaLogDataSource(CaseInsensitiveDict(texts)))
        with SPARK_5:
            self.schema = schema if schema is not None else self._source.schema()

    def scan(self, *filters: Filter) -> Scan:
        """Plan a query with these pushed filters (all must hold)."""
        return Scan(_pickled(self._source), self.schema, list(filters))


class Scan:
    """A planned query. `residual`: the filters that were handed back to Spark."""

    def __init__(self, source: KafkaLogDataSource, schema: StructType, filters: list[Filter]) -> None:
        self._schema = schema
        with SPARK_5:
            reader = source.reader(schema=schema)
        self.residual: list[Filter] = []
        if filters:  # else Spark does not call it
            self.residual = list(reader.pushFilters(filters))
            # Spark finds the ones handed back by identity (DATA_SOURCE_EXTRANEOUS_FILTERS)
            assert all(any(back is pushed for pushed in filters) for back in self.residual)
        partitions = reader.partitions()
        assert type(partitions) is list
        self.pickled_reader: bytes = cloudpickle.dumps(reader)
        self.pickled_partitions = [pickle.dumps(p) for p in partitions or [InputPartition(None)]]

    @property
    def splits(self) -> list[Split]:
        """Return the unpickled splits of all tasks."""
        return [split for task in self.splits_by_task for split in task]

    @property
    def splits_by_task(self) -> list[tuple[Split, ...]]:
        """Return the splits of each task."""
        values = [pickle.loads(pickled).value for pickled in self.pickled_partitions]
        return [value for value in values if value is not None]

    def tasks(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Return the batches that each task yields, in the order of `splits_by_task`."""
        for pickled in self.pickled_partitions:
            yield self._task(pickled)

    def _task(self, pickled: bytes) -> Iterator[pa.RecordBatch]:
        expected = to_arrow_schema(self._schema, timezone="UTC")
        for batch in pickle.loads(self.pickled_reader).read(pickle.loads(pickled)):
            assert batch.schema.equals(expected), f"Spark refuses {batch.schema}, it expects {expected}"
            yield batch

    def read(self) -> pa.Table:
        """Run one action: return the rows of all tasks in the order of `splits`."""
        batches = [batch for task in self.tasks() for batch in task]
        return pa.Table.from_batches(batches, schema=to_arrow_schema(self._schema, timezone="UTC"))


def read(*paths: Path | str, filters: Iterable[Filter] = (), **options: object) -> pa.Table:
    """Load, plan and read once."""
    return Load(*paths, **options).scan(*filters).read()  # type: ignore[arg-type]


def _pickled(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))
