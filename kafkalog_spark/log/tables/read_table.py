"""The rows of a table: whoever has units reads them here, a Spark task or `LogDirs.table`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import DataLoss, KafkalogError, NotALogDirectory
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE
from kafkalog_spark.log.check.dir_files import LogDirState, check_directories
from kafkalog_spark.log.check.finding import Findings
from kafkalog_spark.log.check.partition_task import check_partition
from kafkalog_spark.log.read.partition_log import Checkpoints, PartitionLocation, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.tables import table
from kafkalog_spark.log.tables.internal_topics import (
    consumer_offset_rows,
    group_rows,
    transactional_id_rows,
)
from kafkalog_spark.log.tables.segments import batch_rows, left_over_rows, partition_row, segment_row
from kafkalog_spark.log.tables.transactions import producer_rows, transaction_rows

_log = logging.getLogger(__name__)

Batches = Iterator[pa.RecordBatch]


def rows_of_units(units: Iterable[table.TableUnit], query: table.TableQuery, around: table.Surroundings) -> Batches:
    """The rows of the units, in their order. Raises NotALogDirectory for what cannot be read; DataLoss for what has
    gone since the units were made, unless the query passes over that."""
    reader = _Reader(query, around)
    for unit in units:
        yield from reader.batches(unit)


class _Reader:
    """Reads unit after unit. Neighbours of one partition share its listing, and those of one log directory its listing
    and checkpoints: reading these for each partition again would take hours if there are many."""

    def __init__(self, query: table.TableQuery, around: table.Surroundings) -> None:
        self._query = query
        self._around = around
        self._place: PartitionLocation | None = None
        self._opened: PartitionLog | None = None
        self._end_of = cache(self._find_end)
        self._checkpoints = Checkpoints()
        self._closed: dict[str, bool] = {}
        self._dir_states: dict[str, LogDirState] = {}

    def batches(self, unit: table.TableUnit) -> Batches:
        query = self._query
        if unit.place is None:
            rows = _finding_rows(partial(check_directories, self._around.roots, self._around.places))
            yield from query.of.batches(query.columns, rows)
            return
        try:
            if query.of is not table.BATCHES:
                yield from query.of.batches(query.columns, self._rows(unit, unit.place))
                return
            assert unit.segment is not None
            log = self._log(unit.place)
            with _opened_segment(log, unit.segment) as file:
                limit = query.max_decompressed
                yield from batch_rows(file, log, query.columns, unit.start, unit.end, max_decompressed=limit)
        except NotALogDirectory as gone:
            if unit.place.exists():
                raise
            self._lose(gone)
        except FileNotFoundError as gone:
            what = "its files went away while they were read" if unit.segment is None else "the segment has gone"
            name, path = f"{unit.place.topic}-{unit.place.partition}", gone.filename or unit.place.directory
            self._lose(DataLoss(f"{what}: {gone.strerror}", topic_partition=name, path=path, offset=unit.segment))

    def _rows(self, unit: table.TableUnit, place: PartitionLocation) -> Iterable[Mapping[str, Any]]:
        history, coordinators = self._query.history, self._around.coordinators
        if self._query.of is table.PARTITIONS:
            return [partition_row(place, self._checkpoints, closed=place.has_checkpoints and self._is_closed(place))]
        if self._query.of is table.FINDINGS:
            state = self._dir_state(place.local) if place.local.has_checkpoints else None
            return _finding_rows(partial(check_partition, place, state=state))
        log = self._log(place)
        match self._query.table:
            case "consumer_offsets":
                return consumer_offset_rows(log, self._end_of, history=history)
            case "groups":
                return group_rows(log, self._end_of, history=history)
            case "transactional_ids":
                return transactional_id_rows(log, history=history)
            case "transactions":
                return transaction_rows(log, coordinators)
            case "producers":
                return producer_rows(log, coordinators)
        if unit.segment is None:
            return left_over_rows(log)
        with _opened_segment(log, unit.segment) as file:
            return [segment_row(file, log)]

    def _log(self, place: PartitionLocation) -> PartitionLog:
        if self._opened is None or self._place != place:
            self._place = place
            self._opened = place.open(pass_over_damage=True, checkpoints=self._checkpoints)
        return self._opened

    def _is_closed(self, place: PartitionLocation) -> bool:
        if place.log_dir not in self._closed:
            self._closed[place.log_dir] = CLEAN_SHUTDOWN_FILE in place.store.list(place.log_dir).names
        return self._closed[place.log_dir]

    def _dir_state(self, place: PartitionLocation) -> LogDirState:
        if place.log_dir not in self._dir_states:
            self._dir_states[place.log_dir] = LogDirState.read(place.log_dir, place.store, Findings())
        return self._dir_states[place.log_dir]

    def _find_end(self, topic: str, partition: int) -> int | None:
        place = self._around.places.get((topic, partition))
        if place is None:
            return None
        try:
            return place.open(pass_over_damage=True, checkpoints=self._checkpoints).log_end_offset
        except KafkalogError as error:
            _log.warning("no log end offset: %s", error)
            return None

    def _lose(self, error: KafkalogError) -> None:
        if self._query.fail_on_data_loss:
            raise error.at(hint="failOnDataLoss=false reads what is left")
        _log.warning("%s", error)


def _finding_rows(check: Callable[[Findings], object]) -> Iterator[dict[str, Any]]:
    findings = Findings()
    check(findings)
    findings.add_omitted()
    for finding in findings.kept:
        topic, _, number = (finding.topic_partition or "").rpartition("-")
        row = {"severity": finding.severity.value, "path": finding.path} | finding.fault._asdict()
        yield row | ({"topic": topic, "partition": int(number)} if number else {})


def _opened_segment(log: PartitionLog, base_offset: int) -> SegmentFile:
    """Lists again while the segment is being renamed. Raises FileNotFoundError."""
    file = log.open_segment_at(base_offset)
    if file is not None:
        if log.segments[log.segment_index(base_offset)].base_offset == base_offset:
            return file
        file.close()
    raise FileNotFoundError(2, "is not part of the log any more", log.directory)
