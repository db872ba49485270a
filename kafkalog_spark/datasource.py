"""format("kafkalog"): names, schema, and which reader serves what. Spark imports this; everything else comes later."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from kafkalog_spark.spark_errors import first_line


class KafkaLogDataSource(DataSource):
    """Kafka's segment files as a table; options: see README, or kafkalog_spark.source.option_names."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    @first_line
    def schema(self) -> StructType:
        """The schema of the columns asked for. Options and paths are checked here, so that mistakes show at load()."""
        from kafkalog_spark.log.log_dir import check_paths
        from kafkalog_spark.source.spark_schema import spark_schema

        check_paths(self._read_options.paths)
        return spark_schema(self._read_options.columns)

    @first_line
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkalog_spark.source.batch_reader import KafkaLogBatchReader
        from kafkalog_spark.source.spark_schema import columns_of

        columns_of(schema)
        return KafkaLogBatchReader(self._read_options, schema)

    @cached_property
    def _read_options(self) -> Any:
        # Spark keeps this object as it is after schema(), so a load parses once, and warns once. With a schema of the
        # user's own it does not ask for ours, and every query parses.
        from kafkalog_spark.source.options import parse_read_options

        return parse_read_options(self.options)
