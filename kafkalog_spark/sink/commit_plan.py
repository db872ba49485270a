"""Plan of a commit: the segments that the tasks' staged files become, and their offsets. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.datasource import WriterCommitMessage

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.format.checkpoint import EpochEntry, TopicPartition
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.names import metrics_name
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.sink.commit_record import NewTopic, PlannedSegment


@dataclass(frozen=True)
class TaskAttempt:
    """Attempt of one task of a write.

    Attributes:
        task: Spark's partition id. Records of a partition are in the order of the tasks.
        begun_ms: When the write began; the records' timestamp with LogAppendTime.
        query: ID of a streaming query, which survives its restarts; None for a batch.
    """

    job: str
    task: int
    begun_ms: int
    query: str | None = None


@dataclass(frozen=True)
class TaskManifest(WriterCommitMessage):  # type: ignore[misc]
    """Result of one task attempt.

    Attributes:
        segments: One segment for each staged file, in the order of each partition's records.
        partitions: Number of partitions of each topic, as the task assumed it when it chose the records' partitions.
    """

    attempt: TaskAttempt
    segments: tuple[PlannedSegment, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Append position of a partition.

    Attributes:
        next_offset: The log end offset.
        leader_epoch, epochs, replaces_empty: These fields of the first segment to append; see PlannedSegment.
    """

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


FIRST_EPOCH = 0  # leader epoch of a log that has none yet

EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),))
"""Append position of a partition that does not exist yet."""


def partition_end(next_offset: int, epochs: list[EpochEntry], *, replaces_empty: bool = False) -> PartitionEnd:
    """Return the append position of a log that ends at `next_offset` and has these leader epochs.

    New batches get the latest epoch. If the records of that epoch were truncated, its entry is beyond `next_offset` and
    moves there.
    """
    epoch = epochs[-1].epoch if epochs else FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return PartitionEnd(next_offset, epoch, None, replaces_empty)
    before_end = [entry for entry in kept if entry.start_offset < next_offset]
    return PartitionEnd(next_offset, epoch, (*before_end, EpochEntry(epoch, next_offset)), replaces_empty)


def plan_segments(
    tasks: Iterable[TaskManifest], existing: Mapping[str, list[int]], segment_bytes: int, join_bytes: int
) -> tuple[list[PlannedSegment], tuple[NewTopic, ...]]:
    """Return the segments to append, without offsets, and the topics to create, both sorted by name.

    Segments of a partition are in the order of the tasks. Adjacent segments of up to `join_bytes` are joined.

    Args:
        tasks: Results of the tasks.
        existing: Partitions of each existing topic, sorted.
        segment_bytes: Largest size of a joined segment.
        join_bytes: Largest size of a segment that is joined.

    Raises:
        UnknownPartition: If a topic does not have the partitions that a task assumed.
        InvalidRecord: If the name of a new topic collides with another's.
    """
    by_partition: dict[TopicPartition, list[PlannedSegment]] = {}
    created: dict[str, NewTopic] = {}
    for task in sorted(tasks, key=lambda task: task.attempt.task):
        for topic in dict.fromkeys(segment.topic for segment in task.segments):
            partitions = task.partitions[topic]
            if topic in existing:
                present = partition_count(existing[topic])
                if partitions != present:
                    raise UnknownPartition(
                        f"topic {topic} has {present} partitions, but had {partitions} when the tasks chose the "
                        "records' partitions",
                        hint="the topic was created or enlarged meanwhile; nothing was written, run the write again",
                    )
            else:
                for other in existing:
                    if metrics_name(other) == metrics_name(topic):
                        raise InvalidRecord(
                            f"Topic '{topic}' collides with existing topic: {other}",
                            hint="brokers do not distinguish '.' and '_' in names of metrics; choose another name",
                        )
                created[topic] = NewTopic(topic, new_uuid(), partitions)
        for segment in task.segments:
            if segment.partition not in existing.get(segment.topic, (segment.partition,)):
                raise UnknownPartition(
                    f"is not in this log directory, which holds partitions "
                    f"{', '.join(map(str, existing[segment.topic]))} of {segment.topic}",
                    topic_partition=segment.directory,
                    hint="the partition may be in another directory of log.dirs; write only to partitions of this "
                    "directory, with the column `partition`",
                )
            by_partition.setdefault(segment.key, []).append(segment)
    segments = [
        segment for key in sorted(by_partition) for segment in _join(by_partition[key], segment_bytes, join_bytes)
    ]
    return segments, tuple(created[topic] for topic in sorted(created))


def partition_count(partitions: list[int]) -> int:
    """Return the number of partitions of a topic: the highest one in this log directory plus one.

    Lower ones may be in another directory of log.dirs.
    """
    return partitions[-1] + 1


def _join(staged: Sequence[PlannedSegment], segment_bytes: int, join_bytes: int) -> list[PlannedSegment]:
    """Join adjacent segments of up to `join_bytes` to segments of up to `segment_bytes`."""
    groups: list[list[PlannedSegment]] = []
    size = records = 0
    for segment in staged:
        are_small = groups and max(segment.size, groups[-1][-1].size) <= join_bytes
        if are_small and size + segment.size <= segment_bytes and records + segment.records <= MAX_RELATIVE_OFFSET:
            groups[-1].append(segment)
            size, records = size + segment.size, records + segment.records
        else:
            groups.append([segment])
            size, records = segment.size, segment.records
    return [
        replace(
            group[0],
            records=sum(segment.records for segment in group),
            pieces=tuple(piece for segment in group for piece in segment.pieces),
        )
        for group in groups
    ]


def assign_offsets(
    segments: Iterable[PlannedSegment], ends: Mapping[TopicPartition, PartitionEnd]
) -> tuple[PlannedSegment, ...]:
    """Return the segments with offsets, one after the other from the end of each partition's log."""
    ends = dict(ends)
    assigned = []
    for segment in segments:
        end = ends[segment.key]
        segment = replace(
            segment,
            base_offset=end.next_offset,
            leader_epoch=end.leader_epoch,
            epochs=end.epochs,
            replaces_empty=end.replaces_empty,
        )
        assigned.append(segment)
        ends[segment.key] = PartitionEnd(segment.next_offset, end.leader_epoch, None)
    return tuple(assigned)
