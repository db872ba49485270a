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
    """A staged file or object that a segment is made of, by its name from the log directory on. size: bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment that the commit makes of staged pieces. records: how many. The commit assigns what follows.

    epochs: content of the leader epoch checkpoint to be written first, None when it needs no change. replaces_empty: an
    empty segment of the same base offset is there (a broker's active one), whose objects are replaced.
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
        """Bytes of the .log."""
        return sum(piece.size for piece in self.pieces)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def directory(self) -> str:
        return f"{self.topic}-{self.partition}"

    def file(self, suffix: str) -> str:
        """Name of one of its files, from the log directory on."""
        return f"{self.directory}/{segment_name(self.base_offset)}{suffix}"


@dataclass(frozen=True)
class TaskAttempt:
    """task: Spark's partition id, by which records are ordered. made_ms: when the write began, LogAppendTime of
    records. query: of a stream, the id that survives its restarts."""

    job: str
    task: int
    made_ms: int
    query: str | None = None


@dataclass(frozen=True)
class TaskManifest(WriterCommitMessage):  # type: ignore[misc]
    """Result of one task attempt. segments: one for each staged file, in the order of the records of each partition.
    partitions: of each topic used, how many partitions it was taken to have."""

    attempt: TaskAttempt
    segments: tuple[PlannedSegment, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Append position of a partition. next_offset: the log end offset. leader_epoch, epochs, replaces_empty: as in
    PlannedSegment, of the first segment appended."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


FIRST_EPOCH = 0  # leader epoch of a log that has none yet

EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),))
"""Append position of a partition that is not there yet."""


def leader_epochs_at(epochs: list[EpochEntry], next_offset: int) -> tuple[int, tuple[EpochEntry, ...] | None]:
    """(epoch of batches from `next_offset` on, the entries that the checkpoint needs for them or None). The latest
    epoch goes on. An entry after the end, of a leader that was cut off, begins at the end."""
    epoch = epochs[-1].epoch if epochs else FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return epoch, None
    return epoch, (*(entry for entry in kept if entry.start_offset < next_offset), EpochEntry(epoch, next_offset))


@dataclass(frozen=True)
class CommitRecord:
    """Content of a commit's record. segments: by partition and offset.

    id: of no other record, so that a writer whose answer was lost knows its own. job: None in a record that only holds
    a number's place. queries: of every streaming query that ever wrote here, the last micro-batch.
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
    """A commit's record. Raises CorruptFile unless format_record wrote it, UnsupportedFormat for a later release's."""
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
    """The names of files that are removed are made of it."""
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
    """(segments without offsets, topics to be created), both sorted by name; of each partition in the order of the
    tasks, neighbours of up to `join_bytes` joined. existing: the partitions of each topic. Raises UnknownPartition for
    a topic without the partitions it was taken to have, InvalidRecord for a new one whose name collides with another's.
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
                        hint="somebody created or enlarged it meanwhile; nothing was written, run the write again",
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
    """Number of partitions of a topic of which these lie here: others may lie in another of log.dirs."""
    return partitions[-1] + 1


def _join(staged: Sequence[PlannedSegment], segment_bytes: int, join_bytes: int) -> list[PlannedSegment]:
    """Small neighbours as one segment, as long as they fit."""
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
    """The segments one after the other from where the log of each partition ends."""
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
