"""Batch reader of records. Spark calls `partitions` on the driver, and `read` of a pickled copy in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkalog_spark.source.batch_task import read_batch_task
from kafkalog_spark.source.filters import split_filters
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.pushdown import applies_filters
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.scan_limit import check_scan_bytes
from kafkalog_spark.source.task_packing import tasks_of
from kafkalog_spark.spark.shortened_errors import shorten_errors, shorten_iterator_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class KafkaLogBatchReader(DataSourceReader):
    """Reader of the offset ranges that the options name. Small when pickled: no listing, no open file."""

    def __init__(self, read: ResolvedRead) -> None:
        self._read, self._options = read, read.options
        self._filter = RowFilter()

    @property
    def pushFilters(self) -> _PushFilters:  # type: ignore[override]
        return _PushFilters(self)

    def accept_filters(self, filters: list[Filter]) -> list[Filter]:
        """Store the filters that the read applies, and return those that Spark has to apply."""
        if not applies_filters(self._options):
            return filters
        split = split_filters(filters)
        self._filter = split.row_filter
        return split.residual

    @shorten_errors
    def partitions(self) -> list[InputPartition]:
        splits = plan(self._options, self._filter)
        check_scan_bytes(sum(split.size for split in splits), self._options)
        return [InputPartition(task) for task in tasks_of(splits, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that holds None.
        if partition is None or partition.value is None:
            return iter(())
        return shorten_iterator_errors(read_batch_task(self._read, self._filter, partition.value))


class _PushFilters:
    """Replacement for the method `pushFilters` of a reader.

    While spark.sql.python.filterPushdown.enabled is off, Spark 4.3.0 refuses a reader that overrides the method, which
    it recognises by `__func__`.
    """

    def __init__(self, reader: KafkaLogBatchReader) -> None:
        self._reader = reader
        self.__func__: Any = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.accept_filters(filters)
