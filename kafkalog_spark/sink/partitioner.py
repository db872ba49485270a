"""Partitioner of the rows that a task writes.

The partition of a row is given by its column `partition`, or by murmur2 of its key
(BuiltInPartitioner.partitionForKey). The keyless rows of a window are cut into runs, one for each partition. Each
window begins with the partition after the last one of the previous window. A producer distributes keyless rows at
random; here a task that runs again makes the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import UnknownPartition
from kafkalog_spark.sink.row_checks import negative_partition, topic_column

_EMPTY_I32, _EMPTY_U8 = np.empty(0, np.int32), np.empty(0, np.uint8)


class Share(NamedTuple):
    """Rows of a window that are written to one partition, in their order."""

    topic: str
    partition: int
    records: pa.RecordBatch


@dataclass
class Partitioner:
    """Chooses the partition of each row of a task.

    Attributes:
        topic: Topic of all rows; None if they have a column `topic`.
        record_columns: Columns of the shares.
        partition_count: Returns a topic's number of partitions. Raises InvalidRecord for an invalid topic.
        first: Partition of the first keyless rows, which differs between tasks.
        partitions: Number of partitions of each topic in the rows so far.
    """

    topic: str | None
    record_columns: tuple[str, ...]
    partition_count: Callable[[str], int]
    first: int = 0
    partitions: dict[str, int] = field(default_factory=dict)
    _next_keyless: dict[str, int] = field(default_factory=dict)

    def shares(self, window: Sequence[pa.RecordBatch]) -> list[Share]:
        """Divide the rows of a window by partition. Keyless rows of a single topic are sliced, not copied.

        Args:
            window: Batches with the columns `record_columns`, and `topic` and `partition` if the rows have them.

        Raises:
            InvalidRecord, UnknownPartition: If a row names an invalid topic or partition.
        """
        batches = [batch for batch in window if batch.num_rows]
        topics_of_rows = [self._topics(batch) for batch in batches]
        names = {topic for topics, _ in topics_of_rows for topic in topics}
        if len(names) == 1 and all(map(self._is_keyless, batches)):
            return self._runs(names.pop(), batches)
        return [
            share
            for batch, (topics, codes) in zip(batches, topics_of_rows, strict=True)
            for share in self._divide(batch, topics, codes)
        ]

    def _divide(self, batch: pa.RecordBatch, topics: list[str], codes: np.ndarray) -> list[Share]:
        """Divide a batch by partition. `codes` has the index of each row's topic; it is empty for a single topic."""
        if len(topics) == 1 and self._is_keyless(batch):
            return self._runs(topics[0], [batch])
        from kafkalog_spark.kernels.partitioner import choose_slots
        from kafkalog_spark.log.write.arrow_columns import binary_column

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
                hint="option numPartitions sets the partitions of a new topic; a broker can add partitions to an "
                "existing topic",
            )
        keyless = np.flatnonzero(slots < 0)
        for code, topic in enumerate(topics if len(keyless) else ()):
            own = keyless if not len(codes) else keyless[codes[keyless] == code]
            if len(own):
                count = int(counts[code])
                runs = min(count, len(own))
                start = self._advance(topic, runs)
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
            count = self.partitions[topic] = self.partition_count(topic)
        return count

    def _advance(self, topic: str, runs: int) -> int:
        """Return the partition of the next run of keyless rows, and advance by `runs` partitions."""
        count = self._count(topic)
        start = self._next_keyless.get(topic, self.first % count)
        self._next_keyless[topic] = (start + runs) % count
        return start

    def _runs(self, topic: str, batches: Sequence[pa.RecordBatch]) -> list[Share]:
        """Cut keyless rows of a topic into runs, one for each partition."""
        records = pa.Table.from_batches([batch.select(self.record_columns) for batch in batches])
        count = self._count(topic)
        runs = min(count, records.num_rows)
        start = self._advance(topic, runs)
        cuts = [records.num_rows * run // runs for run in range(runs + 1)]
        return [
            Share(topic, (start + run) % count, part)
            for run in range(runs)
            for part in records.slice(cuts[run], cuts[run + 1] - cuts[run]).to_batches()
        ]


def _gather(records: pa.RecordBatch, slots: np.ndarray, counts: np.ndarray, topics: list[str]) -> list[Share]:
    """Return the rows of each slot, in their order. A slot is a topic and a partition as one number."""
    keys = [(topic, partition) for topic, count in zip(topics, counts, strict=True) for partition in range(count)]
    sizes = np.bincount(slots, minlength=len(keys))
    used = np.flatnonzero(sizes)
    if len(used) == 1:
        return [Share(*keys[int(used[0])], records)]
    narrow = slots.astype(np.int16) if len(keys) < 2**15 else slots  # NumPy sorts int16 with a radix sort
    ordered = records.take(pa.array(np.argsort(narrow, kind="stable")))
    shares, start = [], 0
    for slot in used.tolist():
        size = int(sizes[slot])
        shares.append(Share(*keys[slot], ordered.slice(start, size)))
        start += size
    return shares
