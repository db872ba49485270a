"""Types of metadata tables: the declaration of a table, a query of a table, and the units of work of a query.

All values are small and picklable. The tables themselves are declared in `declarations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError, in_utf8
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.roots import Root

_ROWS_PER_BATCH = 8 << 10  # rows of a RecordBatch that is converted from dicts


class Unit(Enum):
    """Kind of the units of work of a table. Options for starts and ends narrow only tables with SEGMENT."""

    PARTITION = auto()
    SEGMENT = auto()


class Need(Enum):
    """Facts from outside a table's own partitions. `context.context_of` collects them on the driver."""

    COORDINATORS = auto()
    """States of transactional IDs, from __transaction_state."""
    LOG_ENDS = auto()
    """Log end offsets of any partition."""
    LOG_DIRS = auto()
    """The log directories, and the locations of all partitions in them."""


@dataclass(frozen=True, slots=True)
class Table:
    """Declaration of a table.

    Attributes:
        name: Value of the option `table`.
        columns: Arrow types by name, in order.
        rows: Function that returns the rows of a unit, as `module.function` of this package. It takes an `OpenUnit` and
            returns an iterator of RecordBatches. It is imported when rows are read.
        unit: Kind of its units of work.
        needs: The facts that the rows need, each with the columns that depend on it; an empty tuple if all rows do.
        on_demand: Columns that are read only if a query names them, because they cost more than the others.
        topic: The internal topic whose records are the rows; None for other tables. A table with a topic has a history,
            and cannot be narrowed to other topics.
        has_log_dir_rows: It also has rows about the log directories themselves.
        has_left_overs: It also has rows about segment files that are not part of a log.
    """

    name: str
    columns: Mapping[str, pa.DataType]
    rows: str
    unit: Unit = Unit.PARTITION
    needs: Mapping[Need, tuple[str, ...]] = field(default_factory=dict)
    on_demand: tuple[str, ...] = ()
    topic: str | None = None
    has_log_dir_rows: bool = False
    has_left_overs: bool = False

    @property
    def has_ranges(self) -> bool:
        """True if options for starts and ends narrow the table."""
        return self.unit is Unit.SEGMENT

    @property
    def default_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.on_demand)

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """Return the schema of these columns. Raises OptionError for a name that is not a column."""
        for name in columns:
            if name not in self.columns:
                raise OptionError(
                    f"the table '{self.name}' has no column '{name}'", hint=f"its columns are {', '.join(self.columns)}"
                )
        return pa.schema([(name, self.columns[name]) for name in columns])

    def batches(self, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of rows; null if a row has no value of that name. Timestamps are in microseconds."""
        schema, remaining = self.schema(columns), iter(rows)
        while chunk := list(islice(remaining, _ROWS_PER_BATCH)):
            try:
                batch = pa.RecordBatch.from_pylist(chunk, schema)
            except UnicodeEncodeError:  # a path or name in the file system that is not UTF-8
                batch = pa.RecordBatch.from_pylist(list(map(_in_utf8, chunk)), schema)
            yield batch


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Query of a table.

    Attributes:
        table: The table.
        columns: Names, in the order of the result.
        history: Every record of an internal topic instead of the latest one of each key.
        fail_on_data_loss: Raise an error for files that disappear between planning and reading.
        max_decompressed: Bytes that one batch may decompress to, None for the default of reading.
    """

    table: Table
    columns: tuple[str, ...]
    history: bool = False
    fail_on_data_loss: bool = True
    max_decompressed: int | None = None

    @property
    def table_name(self) -> str:
        return self.table.name

    def needs(self, need: Need) -> bool:
        """Return True if one of the queried columns depends on a need."""
        if need not in self.table.needs:
            return False
        dependent = self.table.needs[need]
        return not dependent or not set(dependent).isdisjoint(self.columns)


@dataclass(frozen=True, slots=True)
class TableUnit:
    """A unit of work of a query, independent of the others.

    Attributes:
        location: The partition; None for the log directories themselves.
        segment: Base offset of the segment; None for the whole partition, and for its left-over files.
        start: First offset.
        end: End of the offsets [start, end).
        size: Bytes of the .log files.
    """

    location: PartitionLocation | None
    segment: int | None = None
    start: int = 0
    end: int = MAX_INT64
    size: int = 0


TransactionalId = Mapping[str, Any]
"""A row of the table `transactional_ids` without its source record: the state of a coordinator."""


@dataclass(frozen=True, slots=True)
class TableContext:
    """Facts from outside of a query's own partitions, collected on the driver (`context.context_of`).

    A fact that the table does not declare as a need is None, so that its use raises an error. A declared fact is empty
    if no column of the query depends on it.

    Attributes:
        coordinators: States of transactional IDs by producer ID (Need.COORDINATORS).
        locations: Locations of all partitions (Need.LOG_ENDS, Need.LOG_DIRS).
        roots: The log directories (Need.LOG_DIRS).
    """

    coordinators: Mapping[int, TransactionalId] | None = None
    locations: Mapping[TopicPartition, PartitionLocation] | None = None
    roots: tuple[Root, ...] | None = None


def _in_utf8(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: in_utf8(value) if isinstance(value, str) else value for name, value in row.items()}
