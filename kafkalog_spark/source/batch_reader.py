"""Batch readers, of records and of the other tables: Spark plans on the driver, and tasks read with a pickled copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkalog_spark.errors import DataLoss, KafkalogError, OptionError
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.log.tables import table
from kafkalog_spark.log.tables.table import FINDINGS, TableQuery
from kafkalog_spark.source.filters import RowFilter, split_filters
from kafkalog_spark.source.offsets import AT_EARLIEST, AT_LATEST, assigned_partitions, unmatched
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_bounds import (
    OffsetRange,
    open_log_dirs,
    opened_bounds,
    rebind,
    requests_logged,
    resolve_ranges,
)
from kafkalog_spark.source.planning import Split, check_scan_bytes, cores, group_splits, plan, tasks_of
from kafkalog_spark.source.resolved_read import RecordProjection, ResolvedRead, batch_in_schema
from kafkalog_spark.spark.interface import arrow_schema, first_line, first_line_of, until_spark_has_enough

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
    from kafkalog_spark.log.decode.scan_request import ScanRequest
    from kafkalog_spark.log.read.partition_log import PartitionLog
    from kafkalog_spark.log.read.segment_lookup import PositionHint
    from kafkalog_spark.log.read.segment_scan import ScanStatistics

    RowsOf = Callable[[Split, ScanRequest, ScanBuffers], Iterator[pa.RecordBatch]]

FILTERS_STAY_WITH_THEIR_SCAN = hasattr(DataSourceReader, "pushLimit")
"""True if Spark keeps the filters of one scan out of the others of the same load (SPARK-58551, Spark 5; the change
brought `pushLimit`).

Before, the plan that a reader makes after its filters were pushed is kept with the load (PythonDataSourceV2.readInfo),
and every later scan of it takes that plan without asking: an explain() plans with its filter, and the count() after it
runs that plan, and lacks rows. Nothing that a task is given says which scan it serves.
"""

_log = logging.getLogger(__name__)


def check_pushdown(options: ReadOptions) -> None:
    """Raise OptionError where pushdown=true could give wrong rows."""
    if options.pushdown == "true" and not FILTERS_STAY_WITH_THEIR_SCAN:
        raise OptionError(
            "option 'pushdown' needs Spark 5: Spark 4 uses the filters of one query in later queries of the same load, "
            "which then miss rows (SPARK-58551)",
            hint="leave it out, and narrow the read by assign, startingOffsets, endingOffsets, startingTimestamp and "
            "endingTimestamp: these read no more than they name",
        )


def takes_filters(options: ReadOptions) -> bool:
    """True if filters that Spark pushes are applied by the read. `pushdown=auto` logs why, once in a process: Spark
    pushes only in sessions with spark.sql.python.filterPushdown.enabled, where somebody wanted it."""
    if options.reports_damage:
        return False  # of rows about damage Spark alone knows what a filter leaves
    if options.pushdown == "auto":
        _log_auto(FILTERS_STAY_WITH_THEIR_SCAN)
        return FILTERS_STAY_WITH_THEIR_SCAN
    return options.pushdown == "true"


@cache
def _log_auto(on: bool) -> None:
    if on:
        _log.info("pushdown=auto: on, Spark %s keeps the filters of a query to itself", pyspark.__version__)
    else:
        _log.warning(
            "pushdown=auto: off, Spark %s would use the filters of one query in later queries of the same load "
            "(SPARK-58551); Spark applies them itself, after reading",
            pyspark.__version__,
        )


class _PushFilters:
    """Stand-in for the method `pushFilters` of a reader, which Spark 4.3.0 must not find overridden (it looks at
    `__func__`) while spark.sql.python.filterPushdown.enabled is off."""

    def __init__(self, reader: KafkaLogBatchReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)


class KafkaLogBatchReader(DataSourceReader):
    """Reads the offset ranges that the options ask for. Small when pickled: no listing, no open file."""

    def __init__(self, read: ResolvedRead) -> None:
        self._read, self._options = read, read.options
        self._filter = RowFilter()

    @property
    def pushFilters(self) -> Any:  # type: ignore[override]
        return _PushFilters(self)

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Keep what is applied here to every row; returns the filters that Spark has to apply."""
        if not takes_filters(self._options):
            return filters
        self._filter, rest = split_filters(filters)
        return rest

    @first_line
    def partitions(self) -> list[InputPartition]:
        splits = plan(self._options, self._filter)
        check_scan_bytes(sum(split.size for split in splits), self._options)
        return [InputPartition(task) for task in tasks_of(splits, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that holds None
        if partition is None or partition.value is None:
            return iter(())
        return first_line_of(read_splits(self._read, self._filter, self._rows_of, partition.value))

    def _rows_of(self, split: Split, request: ScanRequest, buffers: ScanBuffers) -> Iterator[pa.RecordBatch]:
        options, fail_on_data_loss = self._options, self._options.fail_on_data_loss
        opened = opened_bounds(split.place, options, fixed_end=split.range.fixed_end, known_end=split.known_end)
        if opened is None:
            return
        log, bounds = opened
        offsets = rebind(split.range, bounds.log_start, bounds.log_end, fail_on_data_loss=fail_on_data_loss)
        if options.tail is not None:
            from kafkalog_spark.log.read.tail import tail_start

            start = tail_start(log, offsets.start, offsets.end, options.tail, request)
            from_earliest = offsets.start_is_earliest and start == offsets.start
            offsets = replace(offsets, start=start, start_is_earliest=from_earliest)
        start, end = max(offsets.start, self._filter.offset_from), min(offsets.end, self._filter.offset_until)
        offsets = replace(offsets, start=start, end=end)
        damage = None
        if options.reports_damage:
            damage = {"is_first": split.is_first, "is_last": split.range.end_is_latest}
        yield from scan_range(
            log, offsets, request, split.hint, buffers, fail_on_data_loss=fail_on_data_loss, damage=damage
        )


def read_splits(
    read: ResolvedRead, row_filter: RowFilter, rows_of: RowsOf, splits: Iterable[Split]
) -> Iterator[pa.RecordBatch]:
    """The rows of several splits in the schema of the read."""
    projection = RecordProjection(read)
    request = scan_request(read.options, row_filter, projection.columns)
    yield from map(projection.apply, rows_of_splits(rows_of, splits, request))


def rows_of_splits(rows_of: RowsOf, splits: Iterable[Split], request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """The rows of several splits, small batches coalesced. All splits use the same buffers in turn."""
    # the kernels are loaded where records are decoded, and nowhere else
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers

    buffers, splits = ScanBuffers(), list(splits)
    stores = [store for split in splits for store in split.place.stores]
    with requests_logged(f"a task of {len(splits)} splits", stores):
        rows = chain.from_iterable(rows_of(split, request, buffers) for split in splits)
        yield from until_spark_has_enough(coalesce_batches(rows))


def scan_range(
    log: PartitionLog,
    offsets: OffsetRange,
    request: ScanRequest,
    hint: PositionHint | None,
    buffers: ScanBuffers,
    *,
    fail_on_data_loss: bool,
    damage: Mapping[str, bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range that `rebind` has bound; logs what mode=DROPMALFORMED passed over. damage: of
    mode=PERMISSIVE, which has rows about it: `is_first` and `is_last` of scan_with_damage.

    Until the first batch is handed over, a range from earliest begins again where retention has moved the log start.
    Whatever else is gone by the time it is read raises DataLoss, or is logged with fail_on_data_loss=False.
    """
    from kafkalog_spark.log.read.partition_scan import scan_partition
    from kafkalog_spark.log.read.segment_scan import ScanStatistics

    while True:
        statistics = ScanStatistics()
        on_loss = partial(_lose, log, offsets, statistics, fail_on_data_loss)
        begun: dict[str, Any] = {"statistics": statistics, "on_loss": on_loss, "buffers": buffers}
        try:
            if damage is not None:
                from kafkalog_spark.log.repair.damage_rows import scan_with_damage  # no other read needs it

                begun |= damage
                yield from scan_with_damage(log, offsets.start, offsets.end, request.columns, request, **begun)
                return
            yield from scan_partition(log, offsets.start, offsets.end, request, position_hint=hint, **begun)
            break
        except DataLoss:
            if not _overtaken(log, offsets, statistics):
                raise
            offsets = replace(offsets, start=log.log_start_offset)
    for error in statistics.dropped:
        _log.warning("mode=DROPMALFORMED: passed over: %s", error)


def _lose(
    log: PartitionLog, offsets: OffsetRange, statistics: ScanStatistics, fail_on_data_loss: bool, error: KafkalogError
) -> None:
    if fail_on_data_loss or _overtaken(log, offsets, statistics):
        raise error.at(hint="failOnDataLoss=false reads what is left")
    _log.warning("%s", error)


def _overtaken(log: PartitionLog, offsets: OffsetRange, statistics: ScanStatistics) -> bool:
    """True if a range from earliest, of which nothing has been handed over yet, begins below the log start now."""
    return offsets.from_earliest and not statistics.rows and log.log_start_offset > offsets.start


def scan_request(options: ReadOptions, row_filter: RowFilter, columns: tuple[str, ...]) -> ScanRequest:
    """Options and pushed filters in the log's terms. columns: with mode=PERMISSIVE those about damage among them."""
    from kafkalog_spark.log.decode.scan_request import ScanRequest

    return ScanRequest(
        columns=columns,
        timestamp_from_ms=row_filter.timestamp_from_ms,
        timestamp_until_ms=row_filter.timestamp_until_ms,
        offset_in=row_filter.offset_in or (),
        timestamp_in_ms=row_filter.timestamp_in_ms or (),
        read_committed=options.read_committed,
        max_decompressed=options.max_decompressed_batch_bytes,
        drop_malformed=options.passes_over_damage,
        wanted=options.wanted,
    )


SMALL_BATCH = 64 << 10
"""Bytes of rows up to which a batch is copied and coalesced with its neighbours; a larger one is handed on as it is."""
SMALL_ROWS = 1 << 10
"""So is a batch of as many rows, which is what a scan gives first (row_buffers.FIRST_BATCH_ROWS), for show()."""
COALESCED_BATCH = 1 << 20  # bytes of rows that are handed over together
_FIRST_COALESCED = 64 << 10
"""The first ones, for show() and limit(): what the buffer between a Python worker and Spark holds."""


def coalesce_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Coalesce small record batches, in their order: every batch sent to Spark has a fixed cost. Small ones are copied.
    What `batches` raises comes after the rows before it."""
    pending: list[pa.RecordBatch] = []
    held, enough = 0, _FIRST_COALESCED
    try:
        for batch in batches:
            size = batch.nbytes  # asked once: it takes 1.5 us
            small = size <= SMALL_BATCH and batch.num_rows < SMALL_ROWS
            if small and batch.num_columns:  # without columns a batch is nothing but a number
                pending.append(as_large_as_its_rows(batch))
                held += size
                batch = None  # its buffers may be filled again
                if held < enough:
                    continue
            if pending:
                yield pa.concat_batches(pending)
                pending, held, enough = [], 0, COALESCED_BATCH
            if batch is not None:
                yield batch
                enough = COALESCED_BATCH
    except Exception:
        if pending:
            yield pa.concat_batches(pending)
        raise
    if pending:
        yield pa.concat_batches(pending)


def as_large_as_its_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy, which does not pin a scan's buffers: they have room for far more rows."""
    return pa.concat_batches([batch]) if batch.num_columns else batch


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
            asked, there = options.subscription, dirs.places
            wanted = assigned_partitions(asked, there) if asked.said else table.partitions_of(query, there)
            if asked.said and (text := unmatched(asked, there, dirs.paths)):
                _log.warning("%s", text)
            table.warn_of_missing_topic(query, there, dirs.paths)
            places = dirs.chosen(wanted, options.replicas, pass_over_damage=True)
            ranges = None  # where no option narrows them, which opens no log
            if options.start != AT_EARLIEST or options.end != AT_LATEST:
                resolved = resolve_ranges(options, places, places.keys())
                ranges = {each.topic_partition: (each.range.start, each.range.end) for each in resolved}
            units = table.units_of(query, places, ranges, whole=not asked.said)
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
        stores = [store for unit in units if unit.place is not None for store in unit.place.stores]
        with requests_logged(f"a task of {len(units)} pieces of the table {self._query.table}", stores):
            rows = rows_of_units(units, self._query, around)
            yield from map(partial(batch_in_schema, target=arrow_schema(self._schema)), until_spark_has_enough(rows))
