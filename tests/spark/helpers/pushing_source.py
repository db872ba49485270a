"""format("kafkalog_pushing"): kafkalog without the check that refuses pushdown=true, to see what Spark makes of it."""

from __future__ import annotations

from unittest import mock

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from kafkalog_spark.datasource import KafkaLogDataSource

ALLOWED = "kafkalog_spark.source.pushdown.FILTERS_STAY_WITH_THEIR_SCAN"


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
            return KafkaLogDataSource.reader(self, schema)
