"""Writer of a task: encodes Arrow batches into staged .log files while they arrive.

Rows are gathered into windows of some megabytes, so that each partition's record batches are full; memory is bounded by
a window. The commit assigns the offsets.

The partition of a row is given by its column, or by murmur2 of its key (BuiltInPartitioner.partitionForKey). The
keyless rows of a window are cut into runs, one for each partition, beginning with the next partition each time. A
producer spreads them randomly; here a task that runs again makes the same choice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.log.write.record_encoder import BatchParams, RecordEncoder, binary_column
from kafkalog_spark.sink.columns import check_rows, negative_partition, topic_column
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.commit_plan import PlannedSegment, StagedPiece, TaskAttempt, TaskManifest, partition_count
from kafkalog_spark.sink.options import WriteOptions, topic_fault

_WINDOW_BYTES = (8 << 20, 64 << 20)
"""Smallest and largest window. Eight Arrow batches of Spark's 10,000 rows of 100 bytes fit the smallest."""
_MANY_RECORDS = MAX_RELATIVE_OFFSET - (1 << 24)  # a run has far fewer than 2**24; from here on batches are counted
_BATCHES_IN_WINDOW = 4  # record batches that a partition gets from a window, where the largest window allows it
_EMPTY_I32, _EMPTY_U8 = np.empty(0, np.int32), np.empty(0, np.uint8)


class Share(NamedTuple):
    """Rows of one partition, in their order."""

    topic: str
    partition: int
    records: pa.RecordBatch


@dataclass
class Partitioner:
    """Chooses the partition of each row of a task.

    Attributes:
        topic: Topic of all rows; None if they have a column `topic`.
        record_columns: Columns of the shares.
        count_of: Returns a topic's number of partitions. Raises InvalidRecord for an invalid topic.
        first: Partition of the first keyless rows, which differs between tasks.
        partitions: Number of partitions of each topic met so far.
    """

    topic: str | None
    record_columns: tuple[str, ...]
    count_of: Callable[[str], int]
    first: int = 0
    partitions: dict[str, int] = field(default_factory=dict)
    _next_keyless: dict[str, int] = field(default_factory=dict)

    def shares(self, window: Sequence[pa.RecordBatch]) -> list[Share]:
        """Divide the rows of some batches by partition.

        A window of keyless rows of one topic is sliced, not copied.

        Args:
            window: Batches with the columns `record_columns` and perhaps `topic` and `partition`.

        Raises:
            InvalidRecord, UnknownPartition: If a row names an invalid topic or partition.
        """
        looked = [(batch, *self._topics(batch)) for batch in window if batch.num_rows]
        names = {topic for _, topics, _ in looked for topic in topics}
        if len(names) == 1 and all(self._is_keyless(batch) for batch, *_ in looked):
            return self._runs(names.pop(), [batch for batch, *_ in looked])
        return [share for batch, topics, codes in looked for share in self._divide(batch, topics, codes)]

    def _divide(self, batch: pa.RecordBatch, topics: list[str], codes: np.ndarray) -> list[Share]:
        """Divide a batch by partition. `codes` has the index of each row's topic; it is empty for a single topic."""
        if len(topics) == 1 and self._is_keyless(batch):
            return self._runs(topics[0], [batch])
        from kafkalog_spark.kernels.partitioner import choose_slots

        counts = np.array([self._count(topic) for topic in topics], np.int64)
        firsts = np.cumsum(counts) - counts
        partition = batch.column("partition") if "partition" in batch.schema.names else None
        given: tuple[np.ndarray, np.ndarray, int] = (_EMPTY_I32, _EMPTY_U8, 0)
        if partition is not None and partition.null_count < len(partition):
            valid, data = partition.buffers()
            values = np.frombuffer(data, np.int32)[partition.offset : partition.offset + len(partition)]
            all_valid = valid is None or not partition.null_count
            given = values, _EMPTY_U8 if all_valid else np.frombuffer(valid, np.uint8), partition.offset
        key = binary_column("key", batch.column("key") if "key" in self.record_columns else None)
        slots = np.empty(batch.num_rows, np.int32)  # topic and partition as one number; -1 for keyless rows
        bad_row = choose_slots(batch.num_rows, key, *given, codes, counts, firsts, slots)
        if bad_row >= 0:
            assert partition is not None
            code = int(codes[bad_row]) if len(codes) else 0
            number, count = partition[bad_row].as_py(), int(counts[code])
            if number < 0:
                raise UnknownPartition(negative_partition(number))
            raise UnknownPartition(
                f"the topic has {count} partition{'s' if count > 1 else ''}, 0 to {count - 1}",
                topic_partition=f"{topics[code]}-{number}",
                hint="option numPartitions sets how many a new topic gets; a broker can give an existing one more",
            )
        keyless = np.flatnonzero(slots < 0)
        for code, topic in enumerate(topics if len(keyless) else ()):
            own = keyless if not len(codes) else keyless[codes[keyless] == code]
            if len(own):
                count = int(counts[code])
                runs = min(count, len(own))
                start = self._take_turns(topic, runs)
                slots[own] = firsts[code] + (start + np.arange(len(own)) * runs // len(own)) % count
        return _gather(batch.select(self.record_columns), slots, counts, topics)

    def _is_keyless(self, batch: pa.RecordBatch) -> bool:
        keyless = "key" not in self.record_columns or batch.column("key").null_count == batch.num_rows
        return keyless and (
            "partition" not in batch.schema.names or batch.column("partition").null_count == batch.num_rows
        )

    def _topics(self, batch: pa.RecordBatch) -> tuple[list[str], np.ndarray]:
        """Return the topics, and the index of each row's topic: int32[rows], empty if all have the same."""
        if self.topic is not None:
            return [self.topic], _EMPTY_I32
        encoded = topic_column(batch).dictionary_encode()
        return encoded.dictionary.to_pylist(), np.ascontiguousarray(encoded.indices, np.int32)

    def _count(self, topic: str) -> int:
        count = self.partitions.get(topic)
        if count is None:
            count = self.partitions[topic] = self.count_of(topic)
        return count

    def _take_turns(self, topic: str, runs: int) -> int:
        """Return the partition of the first run of keyless rows."""
        count = self._count(topic)
        start = self._next_keyless.get(topic, self.first % count)
        self._next_keyless[topic] = (start + runs) % count
        return start

    def _runs(self, topic: str, batches: Sequence[pa.RecordBatch]) -> list[Share]:
        records = pa.Table.from_batches([batch.select(self.record_columns) for batch in batches])
        count = self._count(topic)
        runs = min(count, records.num_rows)
        start = self._take_turns(topic, runs)
        cuts = [records.num_rows * run // runs for run in range(runs + 1)]
        return [
            Share(topic, (start + run) % count, part)
            for run in range(runs)
            for part in records.slice(cuts[run], cuts[run + 1] - cuts[run]).to_batches()
        ]


def _gather(records: pa.RecordBatch, slots: np.ndarray, counts: np.ndarray, topics: list[str]) -> list[Share]:
    """Return the rows by slot, in their order."""
    keys = [(topic, partition) for topic, count in zip(topics, counts, strict=True) for partition in range(count)]
    sizes = np.bincount(slots, minlength=len(keys))
    used = np.flatnonzero(sizes)
    if len(used) == 1:
        return [Share(*keys[int(used[0])], records)]
    narrow = slots.astype(np.int16) if len(keys) < 2**15 else slots  # of int16 the sort is a radix sort
    ordered = records.take(pa.array(np.argsort(narrow, kind="stable")))
    shares, at = [], 0
    for slot in used.tolist():
        size = int(sizes[slot])
        shares.append(Share(*keys[slot], ordered.slice(at, size)))
        at += size
    return shares


@dataclass
class _OpenFile:
    name: str
    size: int = 0
    records: int = 0


class TaskWriter:
    """Stages the rows of one task attempt. Call `run` once; after an error it has removed all staged files."""

    def __init__(
        self,
        committer: Committer,
        options: WriteOptions,
        record_columns: tuple[str, ...],
        attempt: TaskAttempt,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._committer = committer
        self._stage = committer.target.stage(attempt.job)
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
            log_append_time=attempt.made_ms if options.append_time else None,
        )
        self._partitioner = Partitioner(options.topic, record_columns, self._count_of, first=attempt.task)
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
            NotALogDirectory: If the directory or bucket cannot be written, for lack of space too.
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
                raise self._committer.directory.unwritable(error) from error
            raise
        return TaskManifest(self._attempt, tuple(self._finished), dict(self._partitioner.partitions))

    def _write_window(self, window: list[pa.RecordBatch]) -> None:
        waiting: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        for share in self._partitioner.shares(window):
            waiting.setdefault((share.topic, share.partition), []).append(share.records)
        for key, records in waiting.items():
            self._encode(key, pa.Table.from_batches(records))
            held = sum(file.size for file in self._open.values())
            while held > self._stage.held_bytes:  # finish the largest files
                largest = max(self._open, key=lambda key: self._open[key].size)
                held -= self._open[largest].size
                self._finish(largest)

    def _count_of(self, topic: str) -> int:
        fault = topic_fault(topic)
        if fault:
            raise InvalidRecord(fault)
        if self._topics is None:
            self._topics = self._committer.topics()
        partitions = self._topics.get(topic)
        return partition_count(partitions) if partitions else self._options.num_partitions

    def _encode(self, key: tuple[str, int], records: pa.Table) -> None:
        file = self._open.get(key) or self._begin(key)
        now = self._attempt.made_ms if self._options.append_time else self._clock_ms()
        if self._options.append_time and "timestamp" in records.schema.names:
            records = records.drop_columns(["timestamp"])
        try:
            for run in self._encoder.runs(records, 0, now):  # the commit numbers them
                size = len(run.data)
                if file.size + size <= self._file_bytes and file.records <= _MANY_RECORDS:
                    self._append(file, run.data, sum(count for _, count in run.batches))
                    continue
                at = 0
                for size, count in run.batches:
                    full = file.size + size > self._file_bytes or file.records + count > MAX_RELATIVE_OFFSET
                    if full and file.size:
                        self._finish(key)
                        file = self._begin(key)
                    self._append(file, run.data[at : at + size], count)
                    at += size
        except InvalidRecord as error:
            error.offset = None  # an offset in the staged file is of no use
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
