"""format("kafkalog_pushing"): kafkalog without the check that refuses pushdown=true, to see what Spark makes of it."""

from __future__ import annotations

from typing import Any
from unittest import mock

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from kafkalog_spark.datasource import KafkaLogDataSource
from kafkalog_spark.source.batch_reader import KafkaLogBatchReader

ALLOWED = "kafkalog_spark.source.pushdown.FILTERS_ARE_PER_SCAN"


class PushingReader(KafkaLogBatchReader):
    def accept_filters(self, filters: list[Any]) -> list[Any]:
        with mock.patch(ALLOWED, True):
            return KafkaLogBatchReader.accept_filters(self, filters)


class PushingSource(KafkaLogDataSource):
    """Right as long as every load is scanned once."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_pushing"

    def schema(self) -> StructType:
        with mock.patch(ALLOWED, True):
            return KafkaLogDataSource.schema(self)

    def reader(self, schema: StructType) -> DataSourceReader:
        with mock.patch(ALLOWED, True):
            reader = KafkaLogDataSource.reader(self, schema)
        reader.__class__ = PushingReader
        return reader
