"""Batch reader of the tables about logs (option `table`), such as `batches` and `segments`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tables.table import TableContext, TableQuery, TableUnit
from kafkalog_spark.log.tables.units import partitions_of, units_of, warn_of_missing_topic
from kafkalog_spark.source.bounds import AT_EARLIEST, AT_LATEST
from kafkalog_spark.source.log_bounds import resolve_ranges
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.planning import check_scan_bytes
from kafkalog_spark.source.read_locations import open_log_dirs
from kafkalog_spark.source.record_projection import batch_in_schema
from kafkalog_spark.source.store_requests import requests_logged
from kafkalog_spark.source.subscription import assigned_partitions, unmatched_warning
from kafkalog_spark.source.task_packing import cores, group_splits
from kafkalog_spark.spark.release_differences import arrow_schema
from kafkalog_spark.spark.shortened_errors import shorten_errors, shorten_iterator_errors
from kafkalog_spark.spark.worker_process import yield_until_spark_stops

_log = logging.getLogger(__name__)


def table_schema(query: TableQuery) -> StructType:
    """Return the schema of a query. All columns are nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(query.table.schema(query.columns))


def narrow_query(query: TableQuery, schema: StructType) -> TableQuery:
    """Return the query with only the columns that a schema names, in any case.

    The schema of a count has no columns; the query then reads a single one. Raises OptionError for an unknown column,
    and for a column of another type.
    """
    known = {name.lower(): name for name in query.table.columns}
    names = tuple(known.get(field.name.lower(), field.name) for field in schema.fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    query = replace(query, columns=names or query.table.default_columns[:1])
    for field, ours in zip(schema.fields, table_schema(query).fields, strict=bool(names)):
        if field.dataType.simpleString() != ours.dataType.simpleString():
            raise OptionError(
                f"the schema's column '{field.name}' is {field.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}"
            )
        if not field.nullable:
            raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but it may be null in a table of a log")
    return query


@dataclass(frozen=True, slots=True)
class TableTask:
    """Units of a table that one Spark task reads, and the context of the query."""

    units: tuple[TableUnit, ...]
    context: TableContext


class TableReader(DataSourceReader):
    """Reader of the table that the options name. Small when pickled: no listing, no open file."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        assert options.table is not None
        self._query = narrow_query(options.table, schema)
        # A damaged log is opened too, because the tables report the damage.
        self._options = replace(options, mode="DROPMALFORMED")
        self._schema = schema

    @shorten_errors
    def partitions(self) -> list[InputPartition]:
        """Plan the tasks. Raises NotALogDirectory, UnknownPartition, and the errors of `resolve_ranges`."""
        from kafkalog_spark.log.tables.context import context_of, needed_partitions

        options, query = self._options, self._query
        dirs = open_log_dirs(options)
        with requests_logged(f"planning the table {query.table_name}", (root.store for root in dirs.roots)):
            subscription, present = options.subscription, dirs.locations
            if subscription.is_given:
                wanted = assigned_partitions(subscription, present)
                if text := unmatched_warning(subscription, present, dirs.paths):
                    _log.warning("%s", text)
            else:
                wanted = partitions_of(query, present)
            warn_of_missing_topic(query, present, dirs.paths)
            locations = dirs.choose_locations(wanted, options.replicas, pass_over_damage=True)
            ranges = None  # if no option narrows the offsets, no log need be opened to find them
            if options.start != AT_EARLIEST or options.end != AT_LATEST:
                resolved = resolve_ranges(options, locations, locations.keys())
                ranges = {each.topic_partition: range(each.range.start, each.range.end) for each in resolved}
            units = units_of(query, locations, ranges, is_unnarrowed=not subscription.is_given)
            check_scan_bytes(sum(unit.size for unit in units), options)
            needed = dirs.choose_locations(needed_partitions(query, present), options.replicas, pass_over_damage=True)
            context = context_of(query, needed, dirs.roots)
        groups = group_splits(
            [unit.size for unit in units],
            [1] * len(units),
            cores=cores(),
            max_partition_bytes=options.max_partition_bytes,
            min_partitions=options.min_partitions,
        )
        return [InputPartition(TableTask(tuple(units[group]), context)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that holds None.
        if partition is None or partition.value is None:
            return iter(())
        return shorten_iterator_errors(self._read(partition.value))

    def _read(self, task: TableTask) -> Iterator[pa.RecordBatch]:
        from kafkalog_spark.log.tables.read_table import rows_of_units

        stores = [store for unit in task.units if unit.location is not None for store in unit.location.stores]
        with requests_logged(f"a task of {len(task.units)} pieces of the table {self._query.table_name}", stores):
            rows = rows_of_units(task.units, self._query, task.context)
            yield from map(partial(batch_in_schema, target=arrow_schema(self._schema)), yield_until_spark_stops(rows))
