"""Plan of a commit: staged segments, the record that commits them, and their offsets. Decisions on plain data.

{"version": 0, "id": "c0ff...", "job": "9f...", "queries": {"5e4b...": 17},
 "topics": [{"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3}],
 "segments": [{"topic": "orders", "partition": 0, "records": 20, "base_offset": 100,
               "leader_epoch": 0, "epochs": [[0, 0]], "replaces_empty": false,
               "pieces": [{"name": "kafkalog.staged/9f.../0-1a2b3c-0.log", "size": 4711}]}]}
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from kafkalog_spark.errors import CorruptFile, InvalidRecord, UnknownPartition, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry, TopicPartition
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import MAX_PARTITIONS, metrics_name, segment_name, valid_topic_name
from kafkalog_spark.format.partition_metadata import new_uuid, uuid_from_text, uuid_to_text

VERSION = 0

_JOB = re.compile(r"[0-9a-f]{32}")
_PIECE = re.compile(r"kafkalog\.(staged/[0-9a-f]{32}/[0-9]+|sink-[0-9a-f]{32}-[0-9]+)-[0-9a-f]+-[0-9]+\.log")


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    id: uuid.UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A staged file or object that a segment is made of. name: relative to the log directory. size: bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment that the commit makes of staged pieces. The commit assigns the fields from `base_offset` on.

    Attributes:
        records: Number of records.
        epochs: Leader epoch checkpoint to write before the segment; None if it needs no change.
        replaces_empty: True if an empty segment of the same base offset, a broker's active one, is replaced. In a
            bucket only.
    """

    topic: str
    partition: int
    records: int
    pieces: tuple[StagedPiece, ...]
    base_offset: int = 0
    leader_epoch: int = 0
    epochs: tuple[EpochEntry, ...] | None = None
    replaces_empty: bool = False

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def size(self) -> int:
        """Size of the .log in bytes."""
        return sum(piece.size for piece in self.pieces)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def directory(self) -> str:
        return f"{self.topic}-{self.partition}"

    def file(self, suffix: str) -> str:
        """Return the name of one of its files, relative to the log directory."""
        return f"{self.directory}/{segment_name(self.base_offset)}{suffix}"


@dataclass(frozen=True)
class TaskAttempt:
    """Attempt of one task of a write.

    Attributes:
        task: Spark's partition id. Records of a partition are in the order of the tasks.
        made_ms: When the write began; the records' timestamp with LogAppendTime.
        query: Id of a streaming query, which survives its restarts.
    """

    job: str
    task: int
    made_ms: int
    query: str | None = None


@dataclass(frozen=True)
class TaskManifest(WriterCommitMessage):  # type: ignore[misc]
    """Result of one task attempt.

    Attributes:
        segments: One for each staged file, in the order of each partition's records.
        partitions: Number of partitions with which the task divided the records of each topic.
    """

    attempt: TaskAttempt
    segments: tuple[PlannedSegment, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Append position of a partition: its log end offset, and these fields of the first segment to append."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


FIRST_EPOCH = 0  # leader epoch of a log that has none yet

EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),))
"""Append position of a partition that does not exist yet."""


def leader_epochs_at(epochs: list[EpochEntry], next_offset: int) -> tuple[int, tuple[EpochEntry, ...] | None]:
    """Return the epoch of batches from `next_offset` on, and the checkpoint's new entries if it needs any.

    The latest epoch continues. An entry beyond `next_offset`, of a leader whose records were truncated, moves there.
    """
    epoch = epochs[-1].epoch if epochs else FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return epoch, None
    return epoch, (*(entry for entry in kept if entry.start_offset < next_offset), EpochEntry(epoch, next_offset))


@dataclass(frozen=True)
class CommitRecord:
    """Content of a commit's record.

    Attributes:
        id: Unique, so that a writer that lost the answer to its put recognises its own record.
        job: None in a record that only takes a number.
        queries: Last micro-batch of every streaming query that ever wrote to the directory.
        segments: Sorted by partition and offset.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    job: str | None = None
    queries: Mapping[str, int] = field(default_factory=dict)
    topics: tuple[NewTopic, ...] = ()
    segments: tuple[PlannedSegment, ...] = ()

    def by_partition(self) -> dict[TopicPartition, list[PlannedSegment]]:
        segments: dict[TopicPartition, list[PlannedSegment]] = {}
        for segment in self.segments:
            segments.setdefault(segment.key, []).append(segment)
        return segments


def format_record(record: CommitRecord) -> bytes:
    return (json.dumps({"version": VERSION} | asdict(record), indent=1, default=uuid_to_text) + "\n").encode("utf-8")


def parse_record(data: bytes) -> CommitRecord:
    """Return the record that format_record wrote.

    Raises:
        CorruptFile: If the bytes are no record.
        UnsupportedFormat: If a later release wrote it.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise CorruptFile(f"this is not JSON: {error}") from None
    if not isinstance(content, dict) or type(content.get("version")) is not int:
        raise CorruptFile("expected a JSON object with an integer 'version'")
    if content["version"] != VERSION:
        raise UnsupportedFormat(
            f"version {content['version']} of a record of kafkalog.commits, only {VERSION} is known",
            hint="a later release of kafkalog wrote to this directory; use that one",
        )
    try:
        return CommitRecord(
            str(content["id"]),
            None if content["job"] is None else _job(content["job"]),
            {str(query): _whole_number(batch) for query, batch in content["queries"].items()},
            tuple(
                NewTopic(
                    _topic_name(topic["name"]),
                    uuid_from_text(topic["id"]),
                    _whole_number(topic["partitions"], MAX_PARTITIONS),
                )
                for topic in content["topics"]
            ),
            tuple(_segment(entry) for entry in content["segments"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"{type(error).__name__}: {error}") from None


def _segment(entry: Any) -> PlannedSegment:
    epochs, pieces = entry["epochs"], entry["pieces"]
    if not pieces:
        raise ValueError("a segment has no pieces")
    segment = PlannedSegment(
        topic=_topic_name(entry["topic"]),
        partition=_whole_number(entry["partition"], MAX_INT32),
        records=_whole_number(entry["records"]),
        pieces=tuple(StagedPiece(_piece(piece["name"]), _whole_number(piece["size"])) for piece in pieces),
        base_offset=_whole_number(entry["base_offset"]),
        leader_epoch=_whole_number(entry["leader_epoch"], MAX_INT32),
        epochs=None
        if epochs is None
        else tuple(EpochEntry(_whole_number(e, MAX_INT32), _whole_number(o)) for e, o in epochs),
        replaces_empty=entry["replaces_empty"] is True,
    )
    _whole_number(segment.next_offset)
    return segment


def _job(value: Any) -> str:
    """Check the id strictly: names of files to remove are made of it."""
    if not isinstance(value, str) or not _JOB.fullmatch(value):
        raise ValueError(f"{value!r:.100} is no ID of a job")
    return value


def _topic_name(value: Any) -> str:
    if not isinstance(value, str) or not valid_topic_name(value):
        raise ValueError(f"{value!r:.100} is no name of a topic")
    return value


def _whole_number(value: Any, largest: int = MAX_INT64) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r:.100} is no whole number from 0 to {largest}")
    return value


def _piece(value: Any) -> str:
    if not isinstance(value, str) or not _PIECE.fullmatch(value):
        raise ValueError(f"{value!r:.100} is no name of a staged file")
    return value


def plan_segments(
    tasks: Iterable[TaskManifest], existing: Mapping[str, list[int]], segment_bytes: int, join_bytes: int
) -> tuple[list[PlannedSegment], tuple[NewTopic, ...]]:
    """Return the segments to append, without offsets, and the topics to create, both sorted by name.

    Segments of a partition are in the order of the tasks. Neighbours of up to `join_bytes` are joined.

    Args:
        existing: Partitions of each topic.

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
                now = partition_count(existing[topic])
                if partitions != now:
                    raise UnknownPartition(
                        f"topic {topic} has {now} partitions, it had {partitions} when the records were given theirs",
                        hint="it was created or enlarged meanwhile; nothing was written, run the write again",
                    )
            else:
                for other in existing:
                    if metrics_name(other) == metrics_name(topic):
                        raise InvalidRecord(
                            f"Topic '{topic}' collides with existing topic: {other}",
                            hint="brokers take '.' and '_' for the same in names of metrics; choose another name",
                        )
                created[topic] = NewTopic(topic, new_uuid(), partitions)
        for segment in task.segments:
            if segment.partition not in existing.get(segment.topic, (segment.partition,)):
                raise UnknownPartition(
                    f"is not in this log directory, which holds partitions "
                    f"{', '.join(map(str, existing[segment.topic]))} of {segment.topic}",
                    topic_partition=segment.directory,
                    hint="it may lie in another directory of log.dirs; choose with column `partition` what is written "
                    "here",
                )
            by_partition.setdefault(segment.key, []).append(segment)
    segments = [
        segment for key in sorted(by_partition) for segment in _join(by_partition[key], segment_bytes, join_bytes)
    ]
    return segments, tuple(created[topic] for topic in sorted(created))


def partition_count(partitions: list[int]) -> int:
    """Return a topic's number of partitions by those in this directory; others may be in another of log.dirs."""
    return partitions[-1] + 1


def _join(staged: Sequence[PlannedSegment], segment_bytes: int, join_bytes: int) -> list[PlannedSegment]:
    """Join small neighbours to one segment, as long as they fit."""
    groups: list[list[PlannedSegment]] = []
    size = records = 0
    for segment in staged:
        small = groups and max(segment.size, groups[-1][-1].size) <= join_bytes
        if small and size + segment.size <= segment_bytes and records + segment.records <= MAX_RELATIVE_OFFSET:
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
