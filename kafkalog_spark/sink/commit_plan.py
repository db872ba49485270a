"""Plan of a commit: the segments that the tasks' staged files become, before they have offsets. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.names import metrics_name
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.sink.commit_record import NewTopic, PlannedSegment
from kafkalog_spark.sink.task_manifest import TaskManifest, partition_count


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
