"""The batch reader of a table other than `records`: units of work planned on the driver, some of them a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.log.tables import table_query
from kafkalog_spark.log.tables.table import FINDINGS
from kafkalog_spark.log.tables.table_query import TableQuery
from kafkalog_spark.source.offsets import Earliest, Latest, NotSaid, assigned_partitions
from kafkalog_spark.source.option_spec import ReadOptions
from kafkalog_spark.source.planning import check_scan_bytes, cores, group_splits
from kafkalog_spark.source.resolve_partitions import open_log_dirs, places_to_read, requests_logged, resolve_ranges
from kafkalog_spark.source.resolved_read import batch_in_schema
from kafkalog_spark.spark.interface import arrow_schema, first_line, first_line_of
from kafkalog_spark.spark.worker_process import until_spark_has_enough


def table_schema(query: TableQuery) -> StructType:
    """Schema of the query's columns, in their order; all of them nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(query.of.schema(query.columns))


def narrowed(query: TableQuery, schema: StructType) -> TableQuery:
    """The query of the columns that a schema names, in any case; of a schema without any, of one that costs little.

    Raises OptionError for a name that is no column, a column that is named twice, and for another type.
    """
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


Task = tuple[tuple[table_query.TableUnit, ...], table_query.Surroundings]


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
        return [InputPartition(task) for task in table_tasks(self._options, self._query)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that holds None
        if partition is None or partition.value is None:
            return iter(())
        return first_line_of(self._read(partition.value))

    def _read(self, task: Task) -> Iterator[pa.RecordBatch]:
        from kafkalog_spark.log.tables.read_table import rows_of_units

        units, around = task
        stores = [store for unit in units if unit.place is not None for store in unit.place.stores]
        with requests_logged(f"a task of {len(units)} pieces of the table {self._query.table}", stores):
            rows = rows_of_units(units, self._query, around)
            yield from map(partial(batch_in_schema, target=arrow_schema(self._schema)), until_spark_has_enough(rows))


def table_tasks(options: ReadOptions, query: TableQuery) -> list[Task]:
    """Plan the tasks. Raises NotALogDirectory, UnknownPartition, and what the bounds raise."""
    dirs = open_log_dirs(options)
    with requests_logged(f"planning the table {query.table}", (root.store for root in dirs.roots)):
        said = not isinstance(options.subscription, NotSaid)
        wanted = (
            assigned_partitions(options.subscription, dirs.places)
            if said
            else table_query.partitions_of(query, dirs.places)
        )
        places = places_to_read(options, dirs, wanted)
        ranges = None  # where no option narrows them, which opens no log
        if options.start != Earliest() or options.end != Latest():
            resolved = resolve_ranges(options, places, places.keys())
            ranges = {each.topic_partition: (each.range.start, each.range.end) for each in resolved}
        units = table_query.units_of(query, places, ranges, whole=not said)
        check_scan_bytes(sum(unit.size for unit in units), options)
        # only tables that look beyond their own partitions ask for all of them
        others = [
            tp for tp in dirs.places if tp[0] == TRANSACTION_TOPIC or not query.of.of_topics or query.of is FINDINGS
        ]
        around = table_query.surroundings_of(query, places_to_read(options, dirs, others), dirs.roots)
    groups = group_splits(
        [unit.size for unit in units],
        [1] * len(units),
        cores=cores(),
        max_partition_bytes=options.max_partition_bytes,
        min_partitions=options.min_partitions,
    )
    return [(tuple(units[group]), around) for group in groups]
