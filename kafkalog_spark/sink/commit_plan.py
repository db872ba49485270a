"""What a commit is going to do: where each staged file goes. Decisions on plain data."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.names import metrics_name
from kafkalog_spark.sink.bucket_target import BucketEnd
from kafkalog_spark.sink.commit_log import BucketRecord, BucketSegment, StagedPiece, new_record_id
from kafkalog_spark.sink.local_target import partition_count
from kafkalog_spark.sink.sink_record import NewTopic, PlannedSegment
from kafkalog_spark.sink.staging import StagedFile, TaskManifest, joined_file

JOIN_BYTES = 4 << 20
"""Staged files up to this size are joined to one segment with their neighbours: a segment for each task of each
micro-batch would leave a broker with many thousands of files. Larger ones are not: what is joined is copied and flushed
a second time while nothing else goes on."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """Staged files that become one segment: one file, or several that are joined to `file`."""

    file: str
    sources: tuple[str, ...]
    records: int


@dataclass(frozen=True)
class Layout:
    """pieces: of each partition, its segments to be, in order. topics: to be created."""

    pieces: Mapping[TopicPartition, tuple[Piece, ...]] = field(default_factory=dict)
    topics: tuple[NewTopic, ...] = ()


def lay_out(
    job: str,
    tasks: Iterable[TaskManifest],
    existing: Mapping[str, list[int]],
    segment_bytes: int,
    new_topic_id: Mapping[str, uuid.UUID],
    join_bytes: int = JOIN_BYTES,
) -> Layout:
    """Order the staged files of all tasks, by task, and join those of up to `join_bytes`.

    existing: the partitions of each topic that are there now. new_topic_id: of topics that are not.
    Raises UnknownPartition for a topic that has not got the partitions it was taken to have, InvalidRecord for a new
    topic whose name would collide with another's.
    """
    ordered = sorted(tasks, key=lambda task: task.task)
    by_partition: dict[TopicPartition, list[StagedFile]] = {}
    created: dict[str, NewTopic] = {}
    for task in ordered:
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
    pieces: dict[TopicPartition, tuple[Piece, ...]] = {}
    number = 0
    for key in sorted(by_partition):
        groups = _join(by_partition[key], segment_bytes, join_bytes)
        found = []
        for group in groups:
            name = group[0].name
            if len(group) > 1:
                name, number = joined_file(job, number), number + 1
            found.append(Piece(name, tuple(file.name for file in group), sum(file.records for file in group)))
        pieces[key] = tuple(found)
    return Layout(pieces, tuple(created[topic] for topic in sorted(created)))


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


def place(pieces: Mapping[TopicPartition, Sequence[Piece]], ends: Mapping[TopicPartition, int]) -> list[PlannedSegment]:
    """The segments with their base offsets, each partition from its end in `ends` on."""
    planned = []
    for (topic, partition), own in pieces.items():
        offset = ends[topic, partition]
        for piece in own:
            planned.append(PlannedSegment(piece.file, topic, partition, offset, piece.records))
            offset += piece.records
    return planned


def place_again(segments: Iterable[PlannedSegment], ends: Mapping[TopicPartition, int]) -> list[PlannedSegment]:
    """Segments that were planned before, one after the other from where the log of each partition ends now."""
    ends = dict(ends)
    placed = []
    for segment in segments:
        key = (segment.topic, segment.partition)
        placed.append(replace(segment, base_offset=ends[key]))
        ends[key] = placed[-1].next_offset
    return placed


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


# The record of a commit to a bucket, before it is put. A decision on plain data.


def new_record(
    job: str,
    layout: Layout,
    ends: Mapping[TopicPartition, BucketEnd],
    tasks: Iterable[TaskManifest],
    newest: BucketRecord,
    query: str | None,
    batch: int,
) -> BucketRecord:
    """The commit of `layout`, each partition going on at its end. newest: the commit before, whose queries are kept;
    query, batch: the micro-batch that this one is."""
    sizes = {file.name: file.size for task in tasks for file in task.files}
    sources = {piece.file: piece.sources for own in layout.pieces.values() for piece in own}
    segments = []
    first = set(layout.pieces)
    for planned in place(layout.pieces, {key: end.next_offset for key, end in ends.items()}):
        key = planned.topic, planned.partition
        pieces = tuple(StagedPiece(name, sizes[name]) for name in sources[planned.file])
        end = ends[key]
        is_first = key in first
        first.discard(key)
        segments.append(
            BucketSegment(
                *key,
                planned.base_offset,
                planned.records,
                sum(piece.size for piece in pieces),
                end.leader_epoch,
                pieces,
                end.epochs if is_first else None,
                end.replaces_empty and is_first,
            )
        )
    queries = dict(newest.queries) if query is None else {**newest.queries, query: batch}
    return BucketRecord(new_record_id(), job, queries, layout.topics, tuple(segments))
