"""Record of a commit: the segments and topics that it adds to a log directory, and its JSON.

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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry, TopicPartition
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import MAX_PARTITIONS, segment_name, valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text

VERSION = 0

_JOB = re.compile(r"[0-9a-f]{32}")
_PIECE = re.compile(r"kafkalog\.(staged/[0-9a-f]{32}/[0-9]+|sink-[0-9a-f]{32}-[0-9]+)-[0-9a-f]+-[0-9]+\.log")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that the commit creates."""

    name: str
    id: uuid.UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A staged file or object that becomes a segment, or part of one.

    Attributes:
        name: Path relative to the log directory.
        size: Bytes.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment that the commit makes of staged pieces. The commit assigns `base_offset` and the fields after it.

    Attributes:
        records: Number of records.
        epochs: Leader epoch checkpoint to write before the segment; None if it needs no change.
        pieces: The staged pieces, in the order of their records.
        replaces_empty: True if the segment replaces an empty one of the same base offset, which was a broker's active
            segment. In a bucket only.
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
        """Return the path, relative to the log directory, of the segment's file with this suffix."""
        return f"{self.directory}/{segment_name(self.base_offset)}{suffix}"


@dataclass(frozen=True)
class CommitRecord:
    """Content of a commit's record.

    Attributes:
        id: Unique, so that a writer that received no response to its put recognises its own record.
        job: Job whose staged files are committed; None in a record that only occupies a number.
        queries: Last micro-batch of every streaming query that ever wrote to the directory.
        topics: The topics to create.
        segments: The segments, sorted by partition and offset.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    job: str | None = None
    queries: Mapping[str, int] = field(default_factory=dict)
    topics: tuple[NewTopic, ...] = ()
    segments: tuple[PlannedSegment, ...] = ()

    def segments_by_partition(self) -> dict[TopicPartition, list[PlannedSegment]]:
        segments: dict[TopicPartition, list[PlannedSegment]] = {}
        for segment in self.segments:
            segments.setdefault(segment.key, []).append(segment)
        return segments


def format_record(record: CommitRecord) -> bytes:
    return (json.dumps({"version": VERSION} | asdict(record), indent=1, default=uuid_to_text) + "\n").encode("utf-8")


def parse_record(data: bytes) -> CommitRecord:
    """Parse a record that `format_record` has written.

    Raises:
        CorruptFile: If `data` is not a record.
        UnsupportedFormat: If a later release wrote it.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise CorruptFile(f"the file is not JSON: {error}") from None
    if not isinstance(content, dict) or type(content.get("version")) is not int:
        raise CorruptFile("expected a JSON object with an integer 'version'")
    if content["version"] != VERSION:
        raise UnsupportedFormat(
            f"the commit record has version {content['version']}, only version {VERSION} is supported",
            hint="a later release of kafkalog wrote to this directory; use that release",
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
    """Check the job ID strictly: it becomes part of the names of files to remove."""
    if not isinstance(value, str) or not _JOB.fullmatch(value):
        raise ValueError(f"{value!r:.100} is not the ID of a job")
    return value


def _topic_name(value: Any) -> str:
    if not isinstance(value, str) or not valid_topic_name(value):
        raise ValueError(f"{value!r:.100} is not the name of a topic")
    return value


def _whole_number(value: Any, largest: int = MAX_INT64) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r:.100} is not a whole number from 0 to {largest}")
    return value


def _piece(value: Any) -> str:
    if not isinstance(value, str) or not _PIECE.fullmatch(value):
        raise ValueError(f"{value!r:.100} is not the name of a staged file")
    return value
