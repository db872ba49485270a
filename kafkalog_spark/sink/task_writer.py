"""Writer of a task: Arrow batches in, finished .log files out, encoded while they arrive.

Rows are gathered to windows of some megabytes, so that each partition's batches are full; memory is bounded by a window
whatever the input. Where the files lie is the stage's matter; the commit gives them their offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable

import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.log.write.record_encoder import BatchParams, EncodeBuffers, encode_runs
from kafkalog_spark.sink.columns import check_rows
from kafkalog_spark.sink.commit_plan import StagedFile, TaskManifest, TaskPlace, partition_count
from kafkalog_spark.sink.medium import Stage
from kafkalog_spark.sink.options import WriteOptions, topic_fault
from kafkalog_spark.sink.partitioner import Partitioner

_WINDOW_BYTES = (8 << 20, 64 << 20)
"""Smallest and largest window. Eight Arrow batches of Spark's 10,000 rows of 100 bytes fit the smallest."""
_MANY_RECORDS = MAX_RELATIVE_OFFSET - (1 << 24)  # far more than a run holds: from here on batches are counted singly
_BATCHES_IN_WINDOW = 4  # record batches that a partition gets from a window, where the largest window allows it


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class _OpenFile:
    """The staged file that a partition is being written to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.records = 0


class TaskWriter:
    """Writes what one task is given. `run` once; on an error everything it staged is removed again."""

    def __init__(
        self,
        stage: Stage,
        options: WriteOptions,
        record_columns: tuple[str, ...],
        place: TaskPlace,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._stage = stage
        self._options = options
        self._place = place
        self._clock_ms = clock_ms
        self._file_bytes = stage.file_bytes(options.segment_bytes)
        self._attempt = uuid.uuid4().hex[:12]  # several attempts of a task may run at once
        self._params = BatchParams(
            codec=options.codec,
            level=options.level,
            batch_size=options.batch_size,
            max_batch_bytes=min(options.max_message_bytes, options.segment_bytes),
            timestamp_type=options.timestamp_type,
            log_append_time=place.made_ms if options.append_time else None,
        )
        self._partitioner = Partitioner(options.topic, record_columns, self._count_of, first=place.task)
        self._topics: dict[str, list[int]] | None = None
        self._open: dict[tuple[str, int], _OpenFile] = {}
        self._begun = 0
        self._finished: list[StagedFile] = []
        self._buffers = EncodeBuffers()

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskManifest:
        """Encode and stage all rows; what the commit needs to know.

        Raises InvalidRecord, UnknownPartition for rows that cannot be written, JobEnded, NotALogDirectory for a
        directory or bucket that cannot be written (no space left, too).
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
                    window, size, limit = [], 0, self._window_limit()
            self._write_window(window)
            for key in list(self._open):
                self._finish(key)
            self._stage.close()
        except OSError as error:
            self._stage.discard()
            raise self._stage.error(error) from error
        except BaseException:
            self._stage.discard()
            raise
        place = self._place
        return TaskManifest(
            place.job, place.task, tuple(self._finished), dict(self._partitioner.partitions), place.query, place.batch
        )

    # ---- rows

    def _write_window(self, window: list[pa.RecordBatch]) -> None:
        waiting: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        for share in self._partitioner.shares(window):
            waiting.setdefault((share.topic, share.partition), []).append(share.records)
        for key, records in waiting.items():
            self._encode(key, pa.Table.from_batches(records))
            self._hold_less()

    def _window_limit(self) -> int:
        smallest, largest = _WINDOW_BYTES
        partitions = sum(self._partitioner.partitions.values())
        return min(max(partitions * _BATCHES_IN_WINDOW * self._options.batch_size, smallest), largest)

    def _count_of(self, topic: str) -> int:
        fault = topic_fault(topic)
        if fault:
            raise InvalidRecord(fault)
        if self._topics is None:
            self._topics = self._stage.topics()
        there = self._topics.get(topic)
        return partition_count(there) if there else self._options.num_partitions

    # ---- files

    def _encode(self, key: tuple[str, int], records: pa.Table) -> None:
        file = self._open.get(key) or self._begin(key)
        params, now = self._params, self._clock_ms()
        if params.log_append_time is not None:
            now = params.log_append_time
            if "timestamp" in records.schema.names:
                records = records.drop_columns(["timestamp"])
        try:
            for run in encode_runs(records, 0, params, now, self._buffers):  # the commit numbers them
                size = len(run.data)
                if file.size + size <= self._file_bytes and file.records <= _MANY_RECORDS:
                    self._append(file, run.data, sum(count for _, count in run.batches))
                    continue
                at = 0
                for size, count in run.batches:
                    if self._is_full(file, size, count):
                        file = self._go_on(key)
                    self._append(file, run.data[at : at + size], count)
                    at += size
        except InvalidRecord as error:
            error.offset = None  # of the staged file: it says nothing to anybody
            raise error.at(topic_partition=f"{key[0]}-{key[1]}") from None

    def _append(self, file: _OpenFile, data: memoryview, records: int) -> None:
        self._stage.append(file.name, data)
        file.size += len(data)
        file.records += records

    def _is_full(self, file: _OpenFile, size: int, count: int) -> bool:
        return file.size > 0 and (file.size + size > self._file_bytes or file.records + count > MAX_RELATIVE_OFFSET)

    def _begin(self, key: tuple[str, int]) -> _OpenFile:
        file = _OpenFile(self._stage.begin(self._place.task, self._attempt, self._begun))
        self._begun += 1
        self._open[key] = file
        return file

    def _hold_less(self) -> None:
        """Finish the largest files while there is more of them than the stage can hold."""
        held = sum(file.size for file in self._open.values())
        while held > self._stage.held_bytes:
            key = max(self._open, key=lambda key: self._open[key].size)
            held -= self._open[key].size
            self._finish(key)

    def _go_on(self, key: tuple[str, int]) -> _OpenFile:
        """Finish the partition's file, begin another one."""
        self._finish(key)
        return self._begin(key)

    def _finish(self, key: tuple[str, int]) -> None:
        file = self._open.pop(key)
        self._stage.finish(file.name)
        self._finished.append(StagedFile(file.name, *key, file.size, file.records))
