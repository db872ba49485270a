"""Plan of a commit: what tasks staged, which segments it becomes, and their offsets. Decisions on plain data."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.datasource import WriterCommitMessage

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.names import metrics_name

TopicPartition = tuple[str, int]


# ---- what a task is given, and what it hands to the commit: small, whatever was written


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished staged .log file or object. Its offsets are given at the commit. size: bytes."""

    name: str
    topic: str
    partition: int
    size: int
    records: int


@dataclass(frozen=True)
class TaskPlace:
    """Identity of a task attempt. made_ms: when the write began, the time of LogAppendTime records. query, batch: of a
    stream."""

    job: str
    task: int
    made_ms: int
    query: str | None = None
    batch: int | None = None


@dataclass(frozen=True)
class TaskManifest(WriterCommitMessage):  # type: ignore[misc]
    """Result of one task attempt.

    job: of the writer. task: Spark's partition id, by which records are ordered. files: in the order of the records of
    each partition. partitions: of each topic used, how many partitions it was taken to have. query, batch: of a stream,
    the id that survives its restarts and the number of the micro-batch.
    """

    job: str
    task: int
    files: tuple[StagedFile, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)
    query: str | None = None
    batch: int | None = None


# ---- what a commit does


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that the commit creates."""

    name: str
    id: uuid.UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A staged file or object that a segment is made of, by its name from the log directory on. size: bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment that the commit makes of staged pieces. records: how many.

    epochs: content of the leader epoch checkpoint to be written first, None when it needs no change. replaces_empty: an
    empty segment of the same base offset is there (a broker's active one), whose objects are replaced.
    """

    topic: str
    partition: int
    base_offset: int
    records: int
    leader_epoch: int
    pieces: tuple[StagedPiece, ...]
    epochs: tuple[EpochEntry, ...] | None = None
    replaces_empty: bool = False

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def size(self) -> int:
        """Bytes of the .log."""
        return sum(piece.size for piece in self.pieces)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def directory(self) -> str:
        """Name of the partition's directory."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class CommitRecord:
    """Content of a commit's record. segments: by partition and offset.

    id: of no other record, so that a writer whose answer was lost knows its own. job: None in a record that only holds
    a number's place. queries: of every streaming query that ever wrote here, the last micro-batch.
    """

    id: str
    job: str | None = None
    queries: Mapping[str, int] = field(default_factory=dict)
    topics: tuple[NewTopic, ...] = ()
    segments: tuple[PlannedSegment, ...] = ()

    def has_batch(self, query: str, batch: int) -> bool:
        """True when that micro-batch, or a later one of the query, is in the log."""
        return self.queries.get(query, -1) >= batch

    def by_partition(self) -> dict[TopicPartition, list[PlannedSegment]]:
        """Segments of each partition, by offset."""
        found: dict[TopicPartition, list[PlannedSegment]] = {}
        for segment in self.segments:
            found.setdefault(segment.key, []).append(segment)
        return found


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Append position of a partition. next_offset: the log end offset. leader_epoch, epochs, replaces_empty: as in
    PlannedSegment, of the first segment appended."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


@dataclass(frozen=True)
class Layout:
    """pieces: of each partition, the staged files of each of its segments to be, in order. topics: to be created."""

    pieces: Mapping[TopicPartition, Sequence[Sequence[StagedFile]]] = field(default_factory=dict)
    topics: tuple[NewTopic, ...] = ()


def plan_segments(
    tasks: Iterable[TaskManifest],
    existing: Mapping[str, list[int]],
    segment_bytes: int,
    join_bytes: int,
    new_topic_id: Mapping[str, uuid.UUID],
) -> Layout:
    """Order the staged files of all tasks, by task, and join neighbours of up to `join_bytes`.

    existing: the partitions of each topic that are there now. new_topic_id: of topics that are not.
    Raises UnknownPartition for a topic that has not got the partitions it was taken to have, InvalidRecord for a new
    topic whose name would collide with another's.
    """
    by_partition: dict[TopicPartition, list[StagedFile]] = {}
    created: dict[str, NewTopic] = {}
    for task in sorted(tasks, key=lambda task: task.task):
        used = {file.topic for file in task.files}
        for topic, partitions in task.partitions.items():
            if topic not in used:
                continue
            if topic in existing:
                _check_unchanged(topic, partitions, partition_count(existing[topic]))
            else:
                _check_no_collision(topic, existing)
                created[topic] = NewTopic(topic, new_topic_id[topic], partitions)
        for file in task.files:
            if file.topic in existing and file.partition not in existing[file.topic]:
                raise _not_here(file.topic, file.partition, existing[file.topic])
            by_partition.setdefault((file.topic, file.partition), []).append(file)
    pieces = {key: _join(by_partition[key], segment_bytes, join_bytes) for key in sorted(by_partition)}
    return Layout(pieces, tuple(created[topic] for topic in sorted(created)))


def partition_count(partitions: list[int]) -> int:
    """Number of partitions of a topic of which these lie here: others may lie in another of log.dirs."""
    return partitions[-1] + 1


def _join(files: Sequence[StagedFile], segment_bytes: int, join_bytes: int) -> list[list[StagedFile]]:
    """Neighbours that become one segment: small ones, as long as they fit."""
    groups: list[list[StagedFile]] = []
    size = records = 0
    for file in files:
        small = groups and max(file.size, groups[-1][-1].size) <= join_bytes
        if small and size + file.size <= segment_bytes and records + file.records <= MAX_RELATIVE_OFFSET:
            groups[-1].append(file)
            size, records = size + file.size, records + file.records
        else:
            groups.append([file])
            size, records = file.size, file.records
    return groups


def assign_offsets(layout: Layout, ends: Mapping[TopicPartition, PartitionEnd]) -> tuple[PlannedSegment, ...]:
    """Segments of a layout with their offsets, each partition from its end on."""
    segments = []
    for key, own in layout.pieces.items():
        for files in own:
            pieces = tuple(StagedPiece(file.name, file.size) for file in files)
            segments.append(PlannedSegment(*key, 0, sum(file.records for file in files), 0, pieces))
    return reassign_offsets(segments, ends)


def reassign_offsets(
    segments: Iterable[PlannedSegment], ends: Mapping[TopicPartition, PartitionEnd]
) -> tuple[PlannedSegment, ...]:
    """The segments one after the other from where the log of each partition ends now."""
    ends = dict(ends)
    assigned = []
    for segment in segments:
        end = ends[segment.key]
        assigned.append(
            replace(
                segment,
                base_offset=end.next_offset,
                leader_epoch=end.leader_epoch,
                epochs=end.epochs,
                replaces_empty=end.replaces_empty,
            )
        )
        ends[segment.key] = PartitionEnd(assigned[-1].next_offset, end.leader_epoch, None)
    return tuple(assigned)


def _check_unchanged(topic: str, assumed: int, now: int) -> None:
    if assumed != now:
        raise UnknownPartition(
            f"topic {topic} has {now} partitions, it had {assumed} when the records were given theirs",
            hint="somebody created or enlarged it meanwhile; nothing was written, run the write again",
        )


def _not_here(topic: str, partition: int, partitions: list[int]) -> UnknownPartition:
    return UnknownPartition(
        f"is not in this log directory, which holds partitions {', '.join(map(str, partitions))} of {topic}",
        topic_partition=f"{topic}-{partition}",
        hint="it may lie in another directory of log.dirs; choose with column `partition` what is written here",
    )


def _check_no_collision(topic: str, existing: Mapping[str, list[int]]) -> None:
    folded = metrics_name(topic)
    for other in existing:
        if other != topic and metrics_name(other) == folded:
            raise InvalidRecord(
                f"Topic '{topic}' collides with existing topic: {other}",
                hint="brokers take '.' and '_' for the same in names of metrics; choose another name",
            )
