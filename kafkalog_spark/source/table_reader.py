"""Batch reader of the metadata tables (option `table`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.log.tables import table
from kafkalog_spark.log.tables.table import FINDINGS, TableQuery
from kafkalog_spark.source.log_bounds import resolve_ranges
from kafkalog_spark.source.offsets import AT_EARLIEST, AT_LATEST, assigned_partitions, unmatched
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.planning import check_scan_bytes
from kafkalog_spark.source.read_locations import open_log_dirs
from kafkalog_spark.source.record_projection import batch_in_schema
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.store_requests import requests_logged
from kafkalog_spark.source.task_packing import cores, group_splits
from kafkalog_spark.spark.interface import arrow_schema, first_line, first_line_of, until_spark_has_enough

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
    from kafkalog_spark.log.decode.scan_request import ScanRequest

    RowsOf = Callable[[Split, ScanRequest, ScanBuffers], Iterator[pa.RecordBatch]]

_log = logging.getLogger(__name__)


def table_schema(query: TableQuery) -> StructType:
    """The query's columns, all of them nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(query.of.schema(query.columns))


def narrowed(query: TableQuery, schema: StructType) -> TableQuery:
    """Query of a schema's columns, in any case; of a schema without any, of a cheap one. Raises OptionError."""
    known = {name.lower(): name for name in query.of.columns}
    names = tuple(known.get(field.name.lower(), field.name) for field in schema.fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    query = replace(query, columns=names or query.of.default_columns[:1])
    for field, ours in zip(schema.fields, table_schema(query).fields, strict=bool(names)):
        if field.dataType.simpleString() != ours.dataType.simpleString():
            raise OptionError(
                f"the schema's column '{field.name}' is {field.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}"
            )
        if not field.nullable:
            raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but it may be null in a table of a log")
    return query


class TableReader(DataSourceReader):
    """Reads what `options.table` asks for. Small when pickled: no listing, no open file."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        assert options.table is not None
        self._query = narrowed(options.table, schema)
        # damage is what such a table is about: it never keeps a log from being opened
        self._options = replace(options, mode="DROPMALFORMED")
        self._schema = schema

    @first_line
    def partitions(self) -> list[InputPartition]:
        """Raises NotALogDirectory, UnknownPartition, and what the bounds raise."""
        from kafkalog_spark.log.tables.internal_topics import surroundings_of  # with definitions of messages

        options, query = self._options, self._query
        dirs = open_log_dirs(options)
        with requests_logged(f"planning the table {query.table}", (root.store for root in dirs.roots)):
            asked, there = options.subscription, dirs.locations
            wanted = assigned_partitions(asked, there) if asked.said else table.partitions_of(query, there)
            if asked.said and (text := unmatched(asked, there, dirs.paths)):
                _log.warning("%s", text)
            table.warn_of_missing_topic(query, there, dirs.paths)
            locations = dirs.chosen(wanted, options.replicas, pass_over_damage=True)
            ranges = None  # where no option narrows them, which opens no log
            if options.start != AT_EARLIEST or options.end != AT_LATEST:
                resolved = resolve_ranges(options, locations, locations.keys())
                ranges = {each.topic_partition: (each.range.start, each.range.end) for each in resolved}
            units = table.units_of(query, locations, ranges, whole=not asked.said)
            check_scan_bytes(sum(unit.size for unit in units), options)
            # only tables that look beyond their own partitions ask for all of them
            others = [tp for tp in there if tp[0] == TRANSACTION_TOPIC or query.of.topic or query.of is FINDINGS]
            around = surroundings_of(query, dirs.chosen(others, options.replicas, pass_over_damage=True), dirs.roots)
        groups = group_splits(
            [unit.size for unit in units],
            [1] * len(units),
            cores=cores(),
            max_partition_bytes=options.max_partition_bytes,
            min_partitions=options.min_partitions,
        )
        return [InputPartition((tuple(units[group]), around)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that holds None
        if partition is None or partition.value is None:
            return iter(())
        return first_line_of(self._read(partition.value))

    def _read(self, task: tuple[tuple[table.TableUnit, ...], table.Surroundings]) -> Iterator[pa.RecordBatch]:
        from kafkalog_spark.log.tables.read_table import rows_of_units

        units, around = task
        stores = [store for unit in units if unit.location is not None for store in unit.location.stores]
        with requests_logged(f"a task of {len(units)} pieces of the table {self._query.table}", stores):
            rows = rows_of_units(units, self._query, around)
            yield from map(partial(batch_in_schema, target=arrow_schema(self._schema)), until_spark_has_enough(rows))
