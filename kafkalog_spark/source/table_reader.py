"""The batch reader of a table other than `records`: units of work planned on the driver, some of them a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.small_files import Checkpoints
from kafkalog_spark.log.tables.table import FINDINGS
from kafkalog_spark.log.tables.table_query import (
    Surroundings,
    TableQuery,
    TableUnit,
    partitions_of,
    surroundings_of,
    units_of,
)
from kafkalog_spark.source.load_options import check_scan_bytes
from kafkalog_spark.source.offsets import Earliest, Latest, NotSaid, TopicPartition, assigned_partitions
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_bounds import resolve_bounds
from kafkalog_spark.source.planning import cores, group_splits
from kafkalog_spark.source.resolve_partitions import open_log_dirs, opened_view, places_to_read, requests_logged
from kafkalog_spark.spark.errors import first_line, first_line_of
from kafkalog_spark.spark.types import arrow_schema
from kafkalog_spark.spark.worker_process import until_spark_has_enough

# The schema of a table other than `records` in Spark's types, and what a user's own `.schema(...)` may ask for.


def table_schema(query: TableQuery) -> StructType:
    """Schema of the query's columns, in their order; all of them nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(query.of.schema(query.columns))


def narrowed(query: TableQuery, schema: StructType) -> TableQuery:
    """The query of the columns that a schema names, in any case; of a schema without any, of one that costs little.

    Raises OptionError for a name that is no column, a column that is named twice, and for another type.
    """
    known = {column.name.lower(): column.name for column in query.of.columns}
    names = tuple(known.get(field.name.lower(), field.name) for field in schema.fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    query = replace(query, columns=names or query.of.default_columns[:1])
    for asked, ours in zip(schema.fields, table_schema(query).fields, strict=bool(names)):
        if asked.dataType.simpleString() != ours.dataType.simpleString():
            raise OptionError(
                f"the schema's column '{asked.name}' is {asked.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}"
            )
        if not asked.nullable:
            raise OptionError(f"the schema's column '{asked.name}' is NOT NULL, but it may be null in a table of a log")
    return query


class TableProjection:
    """Brings batches of a table into the Arrow schema that Spark expects of a StructType."""

    def __init__(self, schema: StructType) -> None:
        self._target: pa.Schema = arrow_schema(schema)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows under Spark's schema, which names the elements of lists differently."""
        if not len(self._target):
            return batch.select([])  # nothing but a number of rows
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


Task = tuple[tuple[TableUnit, ...], Surroundings]


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
            yield from map(TableProjection(self._schema).apply, until_spark_has_enough(rows))


def table_tasks(options: ReadOptions, query: TableQuery) -> list[Task]:
    """Plan the tasks. Raises NotALogDirectory, UnknownPartition, and what the bounds raise."""
    dirs = open_log_dirs(options)
    with requests_logged(f"planning the table {query.table}", (root.store for root in dirs.roots)):
        said = not isinstance(options.subscription, NotSaid)
        wanted = assigned_partitions(options.subscription, dirs.places) if said else partitions_of(query, dirs.places)
        places = places_to_read(options, dirs, wanted)
        units = units_of(query, places, _ranges(options, places), whole=not said)
        check_scan_bytes(sum(unit.size for unit in units), options)
        around = _surroundings(options, query, dirs)
    groups = group_splits(
        [unit.size for unit in units],
        [1] * len(units),
        cores=cores(),
        max_partition_bytes=options.max_partition_bytes,
        min_partitions=options.min_partitions,
    )
    return [(tuple(units[group]), around) for group in groups]


def _surroundings(options: ReadOptions, query: TableQuery, dirs: LogDirs) -> Surroundings:
    """Surroundings of all partitions, as they would be read; only tables that look beyond their own ask for it."""
    if query.of.of_topics and query.of is not FINDINGS:
        return surroundings_of(query, places_to_read(options, dirs, _coordinator_partitions(dirs)), dirs.roots)
    return surroundings_of(query, places_to_read(options, dirs, list(dirs.places)), dirs.roots)


def _coordinator_partitions(dirs: LogDirs) -> list[TopicPartition]:
    """Those of __transaction_state."""
    return [tp for tp in dirs.places if tp[0] == TRANSACTION_TOPIC]


def _ranges(
    options: ReadOptions, places: Mapping[TopicPartition, PartitionLocation]
) -> dict[TopicPartition, tuple[int, int]] | None:
    """The offsets of each partition; None where no option narrows them, which opens no log."""
    if options.start == Earliest() and options.end == Latest():
        return None
    checkpoints = Checkpoints()
    opened = {tp: opened_view(place, options, checkpoints=checkpoints) for tp, place in places.items()}
    views = {tp: found[1] for tp, found in opened.items() if found is not None}
    ranges = resolve_bounds(
        options.start,
        options.end,
        views,
        assigned=list(places),
        on_no_match=options.on_no_match,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return {one.topic_partition: (one.start, one.end) for one in ranges}
