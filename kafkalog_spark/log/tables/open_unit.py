"""A unit of work that is being read: its log, its segment, and the context of the query."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.log.tables.table import Need, TableContext, TableQuery, TableUnit, TransactionalId

Batches = Iterator[pa.RecordBatch]
ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)


class TaskState:
    """State that the units of a task share: the log of one partition, and the checkpoints of log directories.

    Consecutive units of a partition share its listing, and all units of a log directory share its files. With many
    partitions, it would take hours to read these again for each partition.
    """

    def __init__(self, query: TableQuery, context: TableContext) -> None:
        self.query = query
        self.context = context
        self.checkpoints = Checkpoints()
        self.log_end_of = cache(self._log_end_of)  # opens each log once
        self._results_by_log_dir: dict[tuple[object, str], Any] = {}
        self._location: PartitionLocation | None = None
        self._opened: PartitionLog | None = None

    def log(self, location: PartitionLocation) -> PartitionLog:
        """Open a partition, or return the one that was opened last."""
        if self._opened is None or self._location != location:
            self._location = location
            self._opened = location.open(pass_over_damage=True, checkpoints=self.checkpoints)
        return self._opened

    def once_per_log_dir(self, location: PartitionLocation, read: Callable[[PartitionLocation], ValueT]) -> ValueT:
        """Return `read(location)`, called once for each log directory."""
        key = read, location.log_dir
        if key not in self._results_by_log_dir:
            self._results_by_log_dir[key] = read(location)
        result: ValueT = self._results_by_log_dir[key]
        return result

    def _log_end_of(self, topic: str, partition: int) -> int | None:
        location = _require_declared(self.context.locations, self.query, Need.LOG_ENDS).get((topic, partition))
        if location is None:
            return None
        try:
            return location.open(pass_over_damage=True, checkpoints=self.checkpoints).log_end_offset
        except KafkalogError as error:
            _log.warning("no log end offset: %s", error)
            return None


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """What `Table.rows` gets: the unit to read, and the state of its task."""

    unit: TableUnit
    task: TaskState

    @property
    def query(self) -> TableQuery:
        return self.task.query

    @property
    def location(self) -> PartitionLocation:
        """The partition. Only tables with `has_log_dir_rows` have units without one."""
        assert self.unit.location is not None
        return self.unit.location

    @property
    def log(self) -> PartitionLog:
        """The opened partition. Raises NotALogDirectory."""
        return self.task.log(self.location)

    @property
    def checkpoints(self) -> Checkpoints:
        return self.task.checkpoints

    @property
    def coordinators(self) -> Mapping[int, TransactionalId]:
        """States of transactional IDs by producer ID (Need.COORDINATORS)."""
        return _require_declared(self.task.context.coordinators, self.query, Need.COORDINATORS)

    @property
    def locations(self) -> Mapping[tuple[str, int], PartitionLocation]:
        """Locations of all partitions (Need.LOG_DIRS)."""
        return _require_declared(self.task.context.locations, self.query, Need.LOG_DIRS)

    @property
    def roots(self) -> tuple[Root, ...]:
        """The log directories (Need.LOG_DIRS)."""
        return _require_declared(self.task.context.roots, self.query, Need.LOG_DIRS)

    def log_end_of(self, topic: str, partition: int) -> int | None:
        """Return the log end offset of any partition (Need.LOG_ENDS).

        None if it is unknown: no directory holds the partition, or its log cannot be read (a warning is logged).
        """
        return self.task.log_end_of(topic, partition)

    def open_segment(self) -> SegmentFile:
        """Open the segment of the unit, with new listings while the cleaner renames it.

        Raises:
            FileNotFoundError: If the segment is no longer part of the log.
        """
        log, base_offset = self.log, self.unit.segment
        assert base_offset is not None
        file = log.open_segment_at(base_offset)
        if file is not None:
            if log.segments[log.segment_index(base_offset)].base_offset == base_offset:
                return file
            file.close()
        raise FileNotFoundError(errno.ENOENT, "it is no longer part of the log", log.directory)

    def batches(self, rows: Iterable[Mapping[str, Any]]) -> Batches:
        """Return RecordBatches of these rows, with the columns of the query."""
        return self.query.table.batches(self.query.columns, rows)


def _require_declared(value: ValueT | None, query: TableQuery, need: Need) -> ValueT:
    """Return a value of the context. Raises LookupError for one that the table does not declare as a need."""
    if value is None:
        raise LookupError(f"the table '{query.table_name}' does not declare Need.{need.name}")
    return value
