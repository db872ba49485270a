"""One task: Arrow batches in, finished .log files out, encoded while they arrive.

Rows are gathered to windows of some megabytes, so that each partition's batches are full; memory is bounded by a window
whatever the input. The files lie in the log directory under staging names; the commit gives them their offsets.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord, JobEnded
from kafkalog_spark.log.format.durable import descriptor, write_all
from kafkalog_spark.log.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.log.write.record_encoder import BatchParams, EncodeBuffers, encode_runs
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.manifest import StagedFile, TaskManifest, TaskPlace
from kafkalog_spark.sink.options import WriteOptions, topic_fault
from kafkalog_spark.sink.partitioner import Partitioner
from kafkalog_spark.sink.row_checks import check_rows
from kafkalog_spark.sink.target import find_topics_unlocked, partition_count, unwritable
from kafkalog_spark.sink.write_behind import WriteBehind

_WINDOW_BYTES = (8 << 20, 64 << 20)
"""Smallest and largest window. Eight Arrow batches of Spark's 10,000 rows of 100 bytes fit the smallest."""
_MANY_RECORDS = MAX_RELATIVE_OFFSET - (1 << 24)  # far more than a run holds: from here on batches are counted singly
_BATCHES_IN_WINDOW = 4  # record batches that a partition gets from a window, where the largest window allows it


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class _OpenFile:
    """The staged file that a partition is being written to. Not kept open: a process may open only so many."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.size = 0
        self.records = 0

    def append(self, data: memoryview, records: int) -> None:
        with descriptor(self.path, os.O_WRONLY | os.O_APPEND) as fd:
            write_all(fd, data)
        self.size += len(data)
        self.records += records


class TaskWriter:
    """Writes what one task is given. `run` once; on an error everything it staged is removed again."""

    def __init__(
        self,
        log_dir: Path,
        options: WriteOptions,
        record_columns: tuple[str, ...],
        place: TaskPlace,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._log_dir = log_dir
        self._options = options
        self._place = place
        self._clock_ms = clock_ms
        self._segment_bytes = options.segment_bytes
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
        self._files: list[_OpenFile] = []
        self._finished: list[StagedFile] = []
        self._write_behind = WriteBehind()
        self._buffers = EncodeBuffers()

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskManifest:
        """Encode and stage all rows; what the commit needs to know.

        Raises InvalidRecord, UnknownPartition for rows that cannot be written, JobEnded, NotALogDirectory for a
        directory that cannot be written (no space left, too).
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
            self._write_behind.close()
        except OSError as error:
            self.discard()
            raise unwritable(self._log_dir, error) from error
        except BaseException:
            self.discard()
            raise
        place = self._place
        return TaskManifest(
            place.job, place.task, tuple(self._finished), dict(self._partitioner.partitions), place.query, place.batch
        )

    def discard(self) -> None:
        """Remove what was staged."""
        with suppress(OSError):  # the files go, so does what the disk said of them
            self._write_behind.close()
        for file in self._files:
            file.path.unlink(missing_ok=True)

    # ---- rows

    def _write_window(self, window: list[pa.RecordBatch]) -> None:
        waiting: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        for share in self._partitioner.shares(window):
            waiting.setdefault((share.topic, share.partition), []).append(share.records)
        for key, records in waiting.items():
            self._encode(key, pa.Table.from_batches(records))

    def _window_limit(self) -> int:
        smallest, largest = _WINDOW_BYTES
        partitions = sum(self._partitioner.partitions.values())
        return min(max(partitions * _BATCHES_IN_WINDOW * self._options.batch_size, smallest), largest)

    def _count_of(self, topic: str) -> int:
        fault = topic_fault(topic)
        if fault:
            raise InvalidRecord(fault)
        if self._topics is None:
            self._topics = find_topics_unlocked(self._log_dir)
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
                if file.size + size <= self._segment_bytes and file.records <= _MANY_RECORDS:
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
        file.append(data, records)
        self._write_behind.wrote(file.path, len(data))

    def _is_full(self, file: _OpenFile, size: int, count: int) -> bool:
        return file.size > 0 and (file.size + size > self._segment_bytes or file.records + count > MAX_RELATIVE_OFFSET)

    def _begin(self, key: tuple[str, int]) -> _OpenFile:
        name = staging.staged_file(self._place.job, self._place.task, self._attempt, len(self._files))
        file = _OpenFile(name, self._log_dir / name)
        os.close(os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        self._files.append(file)
        self._open[key] = file
        if not staging.job_lives(self._log_dir, self._place.job):  # looked for after the file was made: see staging
            raise JobEnded(
                f"the write that this task belongs to is over (job {self._place.job})",
                path=str(self._log_dir),
                hint="driver and executors must see the same directory under this path",
            )
        return file

    def _go_on(self, key: tuple[str, int]) -> _OpenFile:
        """Finish the partition's file, begin another one."""
        self._finish(key)
        return self._begin(key)

    def _finish(self, key: tuple[str, int]) -> None:
        file = self._open.pop(key)
        self._finished.append(StagedFile(file.name, *key, file.size, file.records))
