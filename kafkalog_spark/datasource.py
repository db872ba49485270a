"""Entry point of format("kafkalog"): its schema, readers and writers.

Spark imports only this module; everything else is imported lazily.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

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
from kafkalog_spark.spark.kernel_warming import warm_in_background
from kafkalog_spark.spark.release_differences import StreamWriterBase
from kafkalog_spark.spark.shortened_errors import RefusedStreamReader, shorten_errors

if TYPE_CHECKING:
    from kafkalog_spark.sink.options import WriteOptions
    from kafkalog_spark.source.resolved_read import LoadOptions


class KafkaLogDataSource(DataSource):
    """Kafka's segment files as a table. Options: docs/options.md and docs/sink.md.

    Attributes:
        application_options: Storage settings of the application, set by `register`. Options of a read or write override
            them.
    """

    application_options: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    @shorten_errors
    def schema(self) -> StructType:
        """Return the schema of a load. Checks options and paths, so that load() reports mistakes."""
        from kafkalog_spark.source.default_schema import load_schema
        from kafkalog_spark.source.load_check import check_load

        options = self._load_options.parse_any()
        check_load(options)
        if options.table is not None:
            from kafkalog_spark.source.table_reader import table_schema

            return table_schema(options.table)
        warm_in_background(format.name for format in options.formats.values())
        return load_schema(options, self._load_options.formats(options))

    @shorten_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkalog_spark.source.batch_reader import KafkaLogBatchReader
        from kafkalog_spark.source.load_check import check_pushdown
        from kafkalog_spark.source.record_projection import plan_projection

        options = self._load_options.parse(streaming=False)
        if options.table is not None:
            from kafkalog_spark.source.table_reader import TableReader

            return TableReader(options, schema)
        warm_in_background(format.name for format in options.formats.values())
        read = self._load_options.resolve(options, schema)
        plan_projection(read)  # rejects an unsupported schema before planning
        check_pushdown(options)
        return KafkaLogBatchReader(read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. For refused options it is a reader whose methods raise the error.

        Spark replaces an error of this method by an error of its own, but reports an error of the reader's methods.
        """
        try:
            options = self._load_options.parse(streaming=True)
            try:
                from kafkalog_spark.source.stream_reader import KafkaLogStreamReader
            except ImportError as error:  # ReadLimit is new in 4.2
                raise OptionError(
                    f"reading streams needs Spark 4.2 or newer, this is {pyspark.__version__}: {error}"
                ) from error
            warm_in_background(format.name for format in options.formats.values())
            return KafkaLogStreamReader(self._load_options.resolve(options, schema))
        except KafkalogError as error:
            return RefusedStreamReader(error)

    @shorten_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkalog_spark.sink.writer import KafkaLogBatchWriter

        options = self._write_options()
        if overwrite:
            raise OptionError(
                "Save mode overwrite not allowed for Kafka",  # the connector's sentence
                hint='write with .mode("append"), the only save mode that Spark and kafkalog both support',
            )
        if options.producer:
            from kafkalog_spark.sink.producer import ProducerBatchWriter

            return ProducerBatchWriter(options, schema)
        return KafkaLogBatchWriter(options, schema)

    @shorten_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream.

        Args:
            schema: Schema of the rows.
            overwrite: True in output mode `complete`, in which rows are appended, as in Spark's Kafka sink.
        """
        from kafkalog_spark.sink.writer import KafkaLogStreamWriter

        if StreamWriterBase is object:
            raise OptionError(
                f"writing streams needs Spark 4.1 or newer, this is {pyspark.__version__}",
                hint="write each micro-batch with foreachBatch",
            )
        options = self._write_options()
        if options.producer:
            from kafkalog_spark.sink.producer import ProducerStreamWriter

            return ProducerStreamWriter(options, schema)
        return KafkaLogStreamWriter(options, schema, self.options)

    def _write_options(self) -> WriteOptions:
        from kafkalog_spark.sink.option_parsing import parse_write_options
        from kafkalog_spark.source.options import READ_ONLY_OPTIONS

        return parse_write_options(self._all_options, READ_ONLY_OPTIONS)

    @property
    def _all_options(self) -> dict[str, str]:
        return {**self.application_options, **self.options}

    @cached_property
    def _load_options(self) -> LoadOptions:
        from kafkalog_spark.source.resolved_read import LoadOptions

        return LoadOptions(self._all_options)
