"""format("kafkalog"): names, schema, and which reader serves what. Spark imports this; everything else comes later."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from kafkalog_spark.source.spark_errors import first_line


class KafkaLogDataSource(DataSource):
    """Kafka's segment files as a table; options: see README, or kafkalog_spark.source.option_names."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    @first_line
    def schema(self) -> StructType:
        """The schema of the columns asked for. Options are checked here, so that mistakes show at load()."""
        from kafkalog_spark.source.spark_schema import spark_schema

        return spark_schema(self._read_options().columns)

    @first_line
    def reader(self, schema: StructType) -> DataSourceReader:
        # parsed again: with a schema of the user's own, Spark does not ask for ours
        from kafkalog_spark.source.batch_reader import KafkaLogBatchReader
        from kafkalog_spark.source.spark_schema import columns_of

        columns_of(schema)
        return KafkaLogBatchReader(self._read_options(), schema)

    def _read_options(self) -> Any:
        from kafkalog_spark.source.options import parse_read_options

        return parse_read_options(self.options)
