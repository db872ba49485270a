"""Stream reader, as Spark calls it: one instance on the driver for each run of a query, and pickled copies in tasks.

Spark's order of calls (python_streaming_source_runner.py) is prepareForTriggerAvailableNow, getDefaultReadLimit, and
initialOffset for a query without a checkpoint; then for every trigger latestOffset and reportLatestOffset, and for
every batch commit of the previous batch and partitions. Spark may omit the commit of the last batch and the call of
stop.

The planning process reads small batches itself and returns their rows with the plan. Starting a Python task costs more
than reading a few records, and the planning process exists as long as the query, so its files, kernels and caches are
warm. Spark accepts rows with the plan from a "simple stream reader" only. It stores them in the block manager as the
only partition of the batch. If that block is lost, a task reads the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as streaming
from pyspark.sql.types import ArrayType, MapType, StructType

from kafkalog_spark.errors import DataLoss, KafkalogError, NotALogDirectory
from kafkalog_spark.log.read.partition_log import OpenHints
from kafkalog_spark.source.coalescing import compacted
from kafkalog_spark.source.data_loss import partitions_deleted, records_lost
from kafkalog_spark.source.kernel_loading import KERNELS
from kafkalog_spark.source.offsets import JsonOffsets, offsets_by_topic, offsets_of, topic_ids_of
from kafkalog_spark.source.options import RateLimits, ReadOptions, StreamOptions
from kafkalog_spark.source.range_scan import scan_range
from kafkalog_spark.source.record_projection import plan_projection
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.stream_planner import StreamPlanner
from kafkalog_spark.source.task_packing import tasks_of
from kafkalog_spark.source.task_request import scan_request
from kafkalog_spark.source.task_rows import rows_of_task
from kafkalog_spark.spark.shortened_errors import shorten_errors, shorten_iterator_errors

if TYPE_CHECKING:  # these load the kernels
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
    from kafkalog_spark.log.decode.scan_request import ScanRequest
    from kafkalog_spark.source.group_commits import GroupCommitter


_log = logging.getLogger(__name__)

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as SimpleStreamReader
except ImportError:  # the class is private; in a release without it, tasks read every batch
    SimpleStreamReader: Any = object  # type: ignore[no-redef]

MAX_PREFETCH_BYTES = 1 << 20
"""Maximum bytes of segments in a batch that the driver reads. Spark copies prefetched rows one by one, so parallel
tasks are faster for more rows (benchmark `streaming`)."""
MAX_PREFETCHED_ROW_BYTES = 4 << 20
"""Maximum bytes of the rows of such a batch in Arrow. Spark's driver keeps them as one block."""


def copy_small_batch(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    """Return copies of the batches, or None if they have more than MAX_PREFETCHED_ROW_BYTES."""
    rows, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > MAX_PREFETCHED_ROW_BYTES:
            return None
        rows.append(compacted(batch))
    return rows


class KafkaLogStreamReader(DataSourceStreamReader, streaming.SupportsTriggerAvailableNow):
    """Reader of partitions that grow. Small when pickled. Raises OptionError for an unsupported schema."""

    def __init__(self, read: ResolvedRead) -> None:
        plan_projection(read)  # raises for an unsupported schema
        self._read = read
        self._rows: Sequence[pa.RecordBatch] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the settings of commitGroup, which may contain a password and which tasks do not need."""
        options = replace(self._options, stream=replace(self._stream, commit_group=None))
        return {"_read": replace(self._read, options=options), "_rows": ()}

    @property
    def _options(self) -> ReadOptions:
        return self._read.options

    @property
    def _stream(self) -> StreamOptions:
        assert self._options.stream is not None
        return self._options.stream

    @cached_property
    def planner(self) -> StreamPlanner:
        return StreamPlanner(self._options)

    @cached_property
    def committer(self) -> GroupCommitter | None:
        """The committer; None without the option commitGroup. Raises OptionError for settings that are refused."""
        group = self._stream.commit_group
        if group is None:
            return None
        from kafkalog_spark.source.group_client import AdminGroupClient
        from kafkalog_spark.source.group_commits import GroupCommitter

        return GroupCommitter(group, AdminGroupClient(group.settings))

    def stop(self) -> None:
        if committer := self.__dict__.get("committer"):
            committer.close()

    @shorten_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.freeze()

    @shorten_errors
    def getDefaultReadLimit(self) -> streaming.ReadLimit:
        """Return the first limit that is set, since Spark supports only one. `latestOffset` applies all of them."""
        limits = self._stream.limits
        if limits.max_offsets is not None:
            return streaming.ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return streaming.ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return streaming.ReadMinRows(limits.min_offsets)
        return streaming.ReadAllAvailable()

    @shorten_errors
    def initialOffset(self) -> JsonOffsets:  # type: ignore[override]
        _ = self.committer  # raises for wrong settings before a batch is read
        return offsets_by_topic(self.planner.initial())

    @shorten_errors
    def latestOffset(self, start: JsonOffsets, limit: streaming.ReadLimit) -> JsonOffsets:  # type: ignore[override]
        """Return the end of the next batch; `start` unchanged if there is none."""
        begin = offsets_of(start)
        try:
            end = self.planner.next_end(begin, self._limits(limit), topic_ids_of(start))
        finally:
            # When Spark calls this method, it has stored that the previous batch is done, even at the last call with
            # Trigger.AvailableNow and at the first call after a restart. It calls `commit` one batch later. Deleted
            # topics are left out, because a broker refuses to commit offsets for them.
            if self.committer is not None:
                present = self.planner.latest
                self.committer.commit({tp: offset for tp, offset in begin.items() if tp in present})
        return start if end == begin else offsets_by_topic(end, self.planner.topic_ids)

    @shorten_errors
    def reportLatestOffset(self) -> JsonOffsets | None:  # type: ignore[override]
        # With topic IDs, like the end of a batch, so that the texts are equal when all records have been read.
        return offsets_by_topic(self.planner.latest, self.planner.latest_topic_ids) or None

    @shorten_errors
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:  # type: ignore[override]
        splits = self.planner.splits(offsets_of(start), offsets_of(end), topic_ids_of(end))
        rows = self._prefetched(splits)
        if rows is None:
            return [InputPartition(task) for task in tasks_of(splits, self._options)]
        self._rows = rows
        self.__class__ = _WithRows  # after this call Spark takes the rows from a reader of this class
        return [InputPartition(tuple(splits))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return shorten_iterator_errors(self._rows_of(partition.value))

    def _prefetched(self, splits: list[Split]) -> list[pa.RecordBatch] | None:
        """Return the rows of a small batch, None if tasks must read it."""
        options = self._options
        if SimpleStreamReader is object or not splits or self.planner.planned_bytes > MAX_PREFETCH_BYTES:
            return None
        if options.min_partitions is not None or options.max_records_per_partition is not None:
            return None  # the options determine the tasks
        if any(isinstance(field.dataType, StructType | ArrayType | MapType) for field in self._read.schema.fields):
            return None  # Spark's copies of such rows would point into an Arrow buffer that it has released
        if not KERNELS.are_ready():
            return None
        try:
            return copy_small_batch(self._rows_of(splits))
        except (KafkalogError, OSError):
            return None  # the tasks will fail in the same way, and Spark handles their errors

    def _limits(self, limit: streaming.ReadLimit) -> RateLimits:
        """Return the limits of a batch. ReadAllAvailable (Trigger.Once) overrides the options."""
        if isinstance(limit, streaming.ReadAllAvailable):
            return RateLimits()
        own = self._stream.limits
        return RateLimits(
            max_offsets=limit.max_rows if isinstance(limit, streaming.ReadMaxRows) else own.max_offsets,
            min_offsets=limit.min_rows if isinstance(limit, streaming.ReadMinRows) else own.min_offsets,
            max_bytes=limit.max_bytes if isinstance(limit, streaming.ReadMaxBytes) else own.max_bytes,
        )

    def _rows_of(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the splits in the schema of the read."""
        projection = plan_projection(self._read)
        request = scan_request(self._options, RowFilter(), projection.columns)
        yield from rows_of_task(self._scan_splits(splits, request), splits, projection)

    def _scan_splits(self, splits: Sequence[Split], request: ScanRequest) -> Generator[pa.RecordBatch, None, None]:
        """Scan all splits with the same buffers."""
        from kafkalog_spark.log.decode.scan_buffers import ScanBuffers  # loads the kernels

        buffers = ScanBuffers()
        for split in splits:
            yield from self._scan_split(split, request, buffers)

    def _scan_split(self, split: Split, request: ScanRequest, buffers: ScanBuffers) -> Iterator[pa.RecordBatch]:
        # The log is opened without its checkpoints: the planner has checked the range, and the scan checks every batch.
        location, fail_on_data_loss = split.location, self._options.fail_on_data_loss
        hints = OpenHints(pass_over_damage=self._options.passes_over_damage, known_end=split.known_end)
        try:
            try:
                log = location.open_without_checkpoints(hints)
            except NotALogDirectory as gone:
                if location.exists() or not location.store.exists(location.log_dir):
                    raise
                raise partitions_deleted({(location.topic, location.partition)}) from gone
            _check_topic(split)
            yield from scan_range(log, split.range, request, split.hint, buffers, fail_on_data_loss=fail_on_data_loss)
            _check_topic(split)  # the records belong to the planned topic only if it still exists now
        except DataLoss as loss:
            if fail_on_data_loss:
                raise
            _log.warning("%s", loss)


class _WithRows(KafkaLogStreamReader, SimpleStreamReader):
    """Reader that has prefetched rows. It has this class only until Spark has called `getCache`.

    A reader that always is a simple stream reader would have no latestOffset in the progress of the query.
    """

    def getCache(self, start: JsonOffsets, end: JsonOffsets) -> Iterator[pa.RecordBatch]:
        rows, self._rows = self._rows, ()
        self.__class__ = KafkaLogStreamReader
        return iter(rows)


def _check_topic(split: Split) -> None:
    """Raise DataLoss if the topic was created again since planning."""
    topic_id = split.location.topic_id()
    if split.topic_id is not None and topic_id is not None and topic_id != split.topic_id:
        tp = split.range.topic_partition
        raise records_lost(tp, f"Topic {tp[0]} was deleted and created again while a batch of it was read.")
