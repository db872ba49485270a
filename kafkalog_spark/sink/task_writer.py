"""Writer of a task: encodes Arrow batches into staged .log files while they arrive.

Rows are collected in windows of some megabytes, so that the record batches of each partition are full. The size of a
window bounds the memory. The commit assigns the offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.log.write.record_encoder import BatchParams, RecordEncoder
from kafkalog_spark.sink.commit_record import PlannedSegment, StagedPiece
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.sink.partitioner import Partitioner
from kafkalog_spark.sink.row_checks import check_rows
from kafkalog_spark.sink.task_manifest import TaskAttempt, TaskManifest, partition_count
from kafkalog_spark.sink.topic_listing import list_topics
from kafkalog_spark.sink.topic_names import topic_fault
from kafkalog_spark.sink.write_target import WriteTarget

_WINDOW_BYTES = (8 << 20, 64 << 20)
"""Sizes of the smallest and the largest window. The smallest holds eight of Spark's Arrow batches of 10,000 rows of 100
bytes."""
_MANY_RECORDS = MAX_RELATIVE_OFFSET - (1 << 24)
"""Records of a file above which the next run is appended batch by batch, to end the file before its relative offsets
overflow. A run has far fewer than 2**24 records."""
_BATCHES_IN_WINDOW = 4  # record batches of a partition in a window, if the largest window allows it


@dataclass
class _OpenFile:
    """A staged file to which the task still appends."""

    name: str
    size: int = 0
    records: int = 0


class TaskWriter:
    """Stages the rows of one task attempt. Call `run` once; if it raises, it has removed all staged files."""

    def __init__(
        self,
        target: WriteTarget,
        options: WriteOptions,
        record_columns: tuple[str, ...],
        attempt: TaskAttempt,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._target = target
        self._stage = target.new_stage(target.directory, attempt.job)
        self._options = options
        self._attempt = attempt
        self._attempt_id = uuid.uuid4().hex[:12]  # several attempts of a task may run at once
        self._clock_ms = clock_ms
        self._file_bytes = min(self._stage.piece_bytes, options.segment_bytes)
        params = BatchParams(
            codec=options.codec,
            level=options.level,
            batch_size=options.batch_size,
            max_batch_bytes=min(options.max_message_bytes, options.segment_bytes),
            timestamp_type=options.timestamp_type,
            log_append_time=attempt.begun_ms if options.append_time else None,
        )
        self._partitioner = Partitioner(options.topic, record_columns, self._partition_count, first=attempt.task)
        self._topics: dict[str, list[int]] | None = None
        self._open: dict[tuple[str, int], _OpenFile] = {}
        self._begun = 0
        self._finished: list[PlannedSegment] = []
        self._encoder = RecordEncoder(params)

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskManifest:
        """Stage all rows.

        Raises:
            InvalidRecord, UnknownPartition: If a row cannot be written.
            JobEnded: If the job has ended.
            NotALogDirectory: If the directory or bucket cannot be written, for example for lack of space.
        """
        try:
            window: list[pa.RecordBatch] = []
            size, limit = 0, _WINDOW_BYTES[0]
            for batch in batches:
                check_rows(batch, timestamps=not self._options.append_time)
                window.append(batch)
                size += batch.nbytes
                if size >= limit:
                    self._write_window(window)
                    partitions = sum(self._partitioner.partitions.values())
                    limit = min(
                        max(partitions * _BATCHES_IN_WINDOW * self._options.batch_size, limit), _WINDOW_BYTES[1]
                    )
                    window, size = [], 0
            self._write_window(window)
            for key in list(self._open):
                self._finish(key)
            self._stage.close()
        except BaseException as error:
            self._stage.discard()
            if isinstance(error, OSError):
                raise self._target.directory.unwritable(error) from error
            raise
        return TaskManifest(self._attempt, tuple(self._finished), dict(self._partitioner.partitions))

    def _write_window(self, window: list[pa.RecordBatch]) -> None:
        by_partition: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        for share in self._partitioner.shares(window):
            by_partition.setdefault((share.topic, share.partition), []).append(share.records)
        for key, records in by_partition.items():
            self._encode(key, pa.Table.from_batches(records))
            held = sum(file.size for file in self._open.values())
            while held > self._stage.held_bytes:  # finish the largest files
                largest = max(self._open, key=lambda key: self._open[key].size)
                held -= self._open[largest].size
                self._finish(largest)

    def _partition_count(self, topic: str) -> int:
        fault = topic_fault(topic)
        if fault:
            raise InvalidRecord(fault)
        if self._topics is None:
            self._topics = list_topics(self._target)
        partitions = self._topics.get(topic)
        return partition_count(partitions) if partitions else self._options.num_partitions

    def _encode(self, key: tuple[str, int], records: pa.Table) -> None:
        file = self._open.get(key) or self._begin(key)
        now = self._attempt.begun_ms if self._options.append_time else self._clock_ms()
        if self._options.append_time and "timestamp" in records.schema.names:
            records = records.drop_columns(["timestamp"])
        try:
            for run in self._encoder.runs(records, 0, now):  # the commit numbers them
                size = len(run.data)
                if file.size + size <= self._file_bytes and file.records <= _MANY_RECORDS:
                    self._append(file, run.data, sum(count for _, count in run.batches))
                    continue
                position = 0
                for size, count in run.batches:
                    is_full = file.size + size > self._file_bytes or file.records + count > MAX_RELATIVE_OFFSET
                    if is_full and file.size:
                        self._finish(key)
                        file = self._begin(key)
                    self._append(file, run.data[position : position + size], count)
                    position += size
        except InvalidRecord as error:
            error.offset = None  # an offset in the staged file means nothing to the user
            raise error.at(topic_partition=f"{key[0]}-{key[1]}") from None

    def _append(self, file: _OpenFile, data: memoryview, records: int) -> None:
        self._stage.append(file.name, data)
        file.size += len(data)
        file.records += records

    def _begin(self, key: tuple[str, int]) -> _OpenFile:
        file = _OpenFile(self._stage.begin(self._attempt.task, self._attempt_id, self._begun))
        self._begun += 1
        self._open[key] = file
        return file

    def _finish(self, key: tuple[str, int]) -> None:
        file = self._open.pop(key)
        self._stage.finish(file.name)
        self._finished.append(PlannedSegment(*key, file.records, (StagedPiece(file.name, file.size),)))
