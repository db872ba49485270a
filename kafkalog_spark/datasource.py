"""format("kafkalog"): names, schema, and which reader or writer serves what. Spark imports this; everything else comes
later."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.spark.errors import first_line


class KafkaLogDataSource(DataSource):
    """Kafka's segment files as a table; options: docs/options.md and docs/sink.md.

    application_options: what the application says about storage, which yields to the options of a load or a write; set
    by register().
    """

    application_options: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    @first_line
    def schema(self) -> StructType:
        """The schema of the columns asked for. Options and paths are checked here, so that mistakes show at load()."""
        from kafkalog_spark.source.load_options import check_pushdown
        from kafkalog_spark.source.resolve_partitions import check_load
        from kafkalog_spark.source.schema import load_schema

        options = self._load_options.either()
        check_pushdown(options)
        check_load(options)
        if options.table is not None:
            from kafkalog_spark.source.table_reader import table_schema

            return table_schema(options.table)
        return load_schema(options, self._load_options.formats(options))

    @first_line
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkalog_spark.source.batch_reader import KafkaLogBatchReader
        from kafkalog_spark.source.load_options import check_pushdown

        options = self._load_options.batch()
        if options.table is not None:
            from kafkalog_spark.source.table_reader import TableReader

            return TableReader(options, schema)
        read = self._load_options.resolved(options, schema)
        read.projection()  # a schema that cannot be had is refused before anything is planned
        check_pushdown(options)
        return KafkaLogBatchReader(read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kafkalog_spark.source.stream_reader import RefusedStreamReader

        try:
            options = self._load_options.stream()
            try:
                from kafkalog_spark.source.stream_reader import KafkaLogStreamReader
            except ImportError as error:  # ReadLimit is new in 4.2
                raise OptionError(
                    f"reading streams needs Spark 4.2 or newer, this is {pyspark.__version__}: {error}"
                ) from error
            return KafkaLogStreamReader(self._load_options.resolved(options, schema))
        except KafkalogError as error:
            return RefusedStreamReader(error)

    @first_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkalog_spark.sink.options import parse_write_options, refuse_overwrite
        from kafkalog_spark.sink.writer import KafkaLogBatchWriter
        from kafkalog_spark.source.option_spec import ONLY_OF_READS

        options = parse_write_options(self._all_options, ONLY_OF_READS)
        refuse_overwrite(overwrite)
        if options.producer:
            from kafkalog_spark.sink.producer import ProducerBatchWriter

            return ProducerBatchWriter(options, schema)
        return KafkaLogBatchWriter(options, schema)

    @first_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """overwrite: true in output mode `complete`, which appends, as in Spark's Kafka sink."""
        from kafkalog_spark.sink.options import parse_write_options
        from kafkalog_spark.sink.writer import KafkaLogStreamWriter
        from kafkalog_spark.source.option_spec import ONLY_OF_READS
        from kafkalog_spark.spark.types import check_stream_writers

        check_stream_writers()
        options = parse_write_options(self._all_options, ONLY_OF_READS)
        if options.producer:
            from kafkalog_spark.sink.producer import ProducerStreamWriter

            return ProducerStreamWriter(options, schema)
        return KafkaLogStreamWriter(options, schema, self.options)

    @property
    def _all_options(self) -> dict[str, str]:
        return {**self.application_options, **self.options}

    @cached_property
    def _load_options(self) -> Any:
        # Spark keeps this object as it is after schema(), so a load parses once, and warns once. With a schema of the
        # user's own it does not ask for ours, and every query parses.
        from kafkalog_spark.source.load_options import LoadOptions

        return LoadOptions.parse(self._all_options)
