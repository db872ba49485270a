"""A table without Spark: units made and read one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.read.discovery import Root
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.tables.table import RECORDS, TABLES
from kafkalog_spark.log.tables.table_query import TableQuery, partitions_of, surroundings_of, units_of


def table_query(
    name: str, columns: Iterable[str] | None = None, *, of_topics: bool = False, history: bool = False
) -> TableQuery:
    """The query of a table. of_topics: whether it is narrowed to topics. Raises OptionError for a name or a column that
    there is not, and for what the table does not have: a history, or topics."""
    table = TABLES.get(name)
    if table is None and name == RECORDS:
        raise OptionError(f"the table '{name}' has no history", hint="compaction leaves what there is of it")
    if table is None:
        raise OptionError(f"there is no table '{name}'", hint=f"there are {', '.join((RECORDS, *TABLES))}")
    if history and not table.has_history:
        of = ", ".join(table.name for table in TABLES.values() if table.has_history)
        raise OptionError(f"the table '{name}' has no history", hint=f"these have one: {of}")
    if of_topics and not table.of_topics:
        raise OptionError(f"the table '{name}' is not of single topics", hint="filter its rows")
    chosen = table.default_columns if columns is None else tuple(columns)
    table.schema(chosen)
    return TableQuery(name, chosen, history)


def open_table(
    name: str,
    places: Mapping[TopicPartition, PartitionLocation],
    roots: tuple[Root, ...],
    topic: str | None = None,
    columns: Iterable[str] | None = None,
    *,
    history: bool = False,
) -> pa.RecordBatchReader:
    """A table of the partitions in `places`, or of those of one topic. See LogDirs.table."""
    query = table_query(name, columns, of_topics=topic is not None, history=history)
    wanted = {tp: places[tp] for tp in partitions_of(query, places) if topic is None or tp[0] == topic}

    def rows() -> Iterable[pa.RecordBatch]:
        from kafkalog_spark.log.tables.read_table import rows_of_units

        around = surroundings_of(query, places, roots)
        yield from rows_of_units(units_of(query, wanted, whole=topic is None), query, around)

    return pa.RecordBatchReader.from_batches(query.of.schema(query.columns), rows())
