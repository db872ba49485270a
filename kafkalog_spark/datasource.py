"""format("kafkalog"): names, schema, and which reader or writer serves what. Spark imports this; everything else comes
later."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from kafkalog_spark.spark_errors import first_line


class KafkaLogDataSource(DataSource):
    """Kafka's segment files as a table; options: see README, kafkalog_spark.source.option_names and sink.options."""

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

    @first_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkalog_spark.sink.options import parse_write_options
        from kafkalog_spark.sink.writers import KafkaLogBatchWriter

        options = parse_write_options(self.options)
        if options.producer:
            from kafkalog_spark.sink.bootstrap import ProducerBatchWriter

            return ProducerBatchWriter(options, schema, overwrite)
        return KafkaLogBatchWriter(options, schema, overwrite)

    @first_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """overwrite: true in output mode `complete`, which appends, as in Spark's Kafka sink."""
        from kafkalog_spark.sink.options import parse_write_options
        from kafkalog_spark.sink.writers import KafkaLogStreamWriter

        options = parse_write_options(self.options)
        if options.producer:
            from kafkalog_spark.sink.bootstrap import ProducerStreamWriter

            return ProducerStreamWriter(options, schema)
        return KafkaLogStreamWriter(options, schema, self.options)

    @cached_property
    def _read_options(self) -> Any:
        # Spark keeps this object as it is after schema(), so a load parses once, and warns once. With a schema of the
        # user's own it does not ask for ours, and every query parses.
        from kafkalog_spark.source.options import parse_read_options

        return parse_read_options(self.options)
