"""Which partition each row goes to, as a Kafka producer would decide.

1. The row's own partition. 2. murmur2 of its key (BuiltInPartitioner.partitionForKey). 3. Without a key: the keyless
rows of a window are cut into runs, one for each partition, beginning with another partition each time. A producer
spreads them in batches, by chance; here it is the same when a task runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.log.write.encoder_columns import key_column

_EMPTY_I32, _EMPTY_U8 = np.empty(0, np.int32), np.empty(0, np.uint8)


class Share(NamedTuple):
    """Rows of a window that go to one partition, in their order."""

    topic: str
    partition: int
    records: pa.RecordBatch


@dataclass
class Partitioner:
    """Chooses the partition of each row of a task. count_of(topic): how many partitions it has; raises InvalidRecord
    for a topic that cannot be.

    topic: of all rows, None when they bring their own. first: where keyless rows begin; another one for each task.
    record_columns: what the shares hold.
    """

    topic: str | None
    record_columns: tuple[str, ...]
    count_of: Callable[[str], int]
    first: int = 0
    partitions: dict[str, int] = field(default_factory=dict)
    """Number of partitions of each topic met so far."""
    _next_keyless: dict[str, int] = field(default_factory=dict)

    def shares(self, window: Sequence[pa.RecordBatch]) -> list[Share]:
        """Divide the rows of some batches, which have the columns `record_columns` and perhaps `topic`, `partition`.

        Raises InvalidRecord for a null topic, UnknownPartition. A window of keyless rows of one topic is sliced, not
        copied, and cut as a whole; another one batch by batch.
        """
        looked = [(batch, *self._topics(batch)) for batch in window if batch.num_rows]
        names = {topic for _, topics, _ in looked for topic in topics}
        if len(names) == 1 and all(self._is_keyless(batch) for batch, *_ in looked):
            return self._runs(names.pop(), [batch for batch, *_ in looked])
        return [share for batch, topics, codes in looked for share in self._divide(batch, topics, codes)]

    def _divide(self, batch: pa.RecordBatch, topics: list[str], codes: np.ndarray) -> list[Share]:
        if len(topics) == 1 and self._is_keyless(batch):
            return self._runs(topics[0], [batch])
        counts = np.array([self._count(topic) for topic in topics], np.int64)
        firsts = np.cumsum(counts) - counts
        partition = batch.column("partition") if "partition" in batch.schema.names else None
        slots = self._slots(batch, partition, codes, counts, firsts, topics)
        self._spread_keyless(slots, codes, counts, firsts, topics)
        return _gather(batch.select(self.record_columns), slots, counts, topics)

    def _is_keyless(self, batch: pa.RecordBatch) -> bool:
        """True when no row has a key or names its partition."""
        keyless = "key" not in self.record_columns or batch.column("key").null_count == batch.num_rows
        return keyless and (
            "partition" not in batch.schema.names or batch.column("partition").null_count == batch.num_rows
        )

    def _topics(self, batch: pa.RecordBatch) -> tuple[list[str], np.ndarray]:
        """The topics of the rows, and which each row has: int32[rows], empty when it is one for all."""
        if self.topic is not None:
            return [self.topic], _EMPTY_I32
        column = batch.column("topic")
        if column.null_count:
            raise null_topic(column)
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), np.ascontiguousarray(encoded.indices, np.int32)

    def _count(self, topic: str) -> int:
        count = self.partitions.get(topic)
        if count is None:
            count = self.partitions[topic] = self.count_of(topic)
        return count

    def _take_turns(self, topic: str, runs: int) -> int:
        """The partition to begin with, when keyless rows are cut into `runs` runs."""
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

    def _slots(
        self,
        batch: pa.RecordBatch,
        partition: pa.Array | None,
        codes: np.ndarray,
        counts: np.ndarray,
        firsts: np.ndarray,
        topics: list[str],
    ) -> np.ndarray:
        """int32[rows]: topic and partition as one number; -1 for keyless rows."""
        from kafkalog_spark.kernels.partition import choose_slots

        named: tuple[np.ndarray, np.ndarray, int] = (_EMPTY_I32, _EMPTY_U8, 0)
        if partition is not None and partition.null_count < len(partition):
            named = _int32(partition)
        key = key_column(batch.column("key") if "key" in self.record_columns else None)
        slots = np.empty(batch.num_rows, np.int32)
        fault = choose_slots(batch.num_rows, key, *named, codes, counts, firsts, slots)
        if fault >= 0:
            assert partition is not None
            topic = topics[int(codes[fault]) if len(codes) else 0]
            raise unknown_partition(topic, partition[fault].as_py(), self._count(topic))
        return slots

    def _spread_keyless(
        self, slots: np.ndarray, codes: np.ndarray, counts: np.ndarray, firsts: np.ndarray, topics: list[str]
    ) -> None:
        rows = np.flatnonzero(slots < 0)
        if not len(rows):
            return
        for code, topic in enumerate(topics):
            own = rows if not len(codes) else rows[codes[rows] == code]
            if len(own):
                count = int(counts[code])
                runs = min(count, len(own))
                start = self._take_turns(topic, runs)
                slots[own] = firsts[code] + (start + np.arange(len(own)) * runs // len(own)) % count


def null_topic(column: pa.Array) -> InvalidRecord:
    """The error for a column `topic` with nulls, in the connector's words."""
    row = pc.index(column.is_null(), True).as_py()
    return InvalidRecord(
        "[KAFKA_NULL_TOPIC_IN_DATA] null topic present in the data. Use the topic option for setting a default topic",
        hint=f"it is row {row} of an Arrow batch",
    )


def unknown_partition(topic: str, partition: int, count: int) -> UnknownPartition:
    """The error for a row whose partition its topic does not have."""
    if partition < 0:
        return UnknownPartition(
            f"Invalid partition number: {partition}. Partition number should always be non-negative or null."
        )
    return UnknownPartition(
        f"the topic has {count} partition{'s' if count > 1 else ''}, 0 to {count - 1}",
        topic_partition=f"{topic}-{partition}",
        hint="option numPartitions sets how many a new topic gets; a broker can give an existing one more",
    )


def _int32(column: pa.Array) -> tuple[np.ndarray, np.ndarray, int]:
    valid, data = column.buffers()
    at = column.offset
    values = np.frombuffer(data, np.int32)[at : at + len(column)]
    return values, _EMPTY_U8 if valid is None or not column.null_count else np.frombuffer(valid, np.uint8), at


def _gather(records: pa.RecordBatch, slots: np.ndarray, counts: np.ndarray, topics: list[str]) -> list[Share]:
    """The rows by slot, in their order within each."""
    places = [(topic, partition) for topic, count in zip(topics, counts, strict=True) for partition in range(count)]
    sizes = np.bincount(slots, minlength=len(places))
    used = np.flatnonzero(sizes)
    if len(used) == 1:
        return [Share(*places[int(used[0])], records)]
    narrow = slots.astype(np.int16) if len(places) < 2**15 else slots  # of int16 the sort is a radix sort
    ordered = records.take(pa.array(np.argsort(narrow, kind="stable")))
    shares, at = [], 0
    for slot in used.tolist():
        size = int(sizes[slot])
        shares.append(Share(*places[slot], ordered.slice(at, size)))
        at += size
    return shares
