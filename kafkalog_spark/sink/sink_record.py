"""`kafkalog.sink.json`: what sinks have to remember in a log directory. The one file whose replacement is the commit.

    {"version": 0,
     "queries": {"5e4b...": 17},
     "pending": {"job": "9f...", "topics": [{"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3}],
                 "segments": [{"file": "kafkalog.sink-9f...-0.log", "topic": "orders", "partition": 0,
                               "base_offset": 100, "records": 20}]}}

queries: of each streaming query, the last micro-batch that was committed. pending: a commit whose files are not all in
their places; null when there is none. A staged file that is still there has not been published.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import read_whole
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.sink.staging import is_staging_name

RECORD_FILE = "kafkalog.sink.json"
VERSION = 0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that the commit creates."""

    name: str
    id: uuid.UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A staged file and its place: it becomes the segment `base_offset` of the partition. records: how many."""

    file: str
    topic: str
    partition: int
    base_offset: int
    records: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Decided, and to be brought to its end by whoever comes next. segments: by partition and offset."""

    job: str
    topics: tuple[NewTopic, ...]
    segments: tuple[PlannedSegment, ...]


@dataclass(frozen=True)
class SinkRecord:
    """Everything the file holds."""

    queries: Mapping[str, int] = field(default_factory=dict)
    pending: PendingCommit | None = None

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether that micro-batch, or a later one of the query, is in the log."""
        return self.queries.get(query, -1) >= batch

    def decided(self, pending: PendingCommit, query: str | None, batch: int | None) -> SinkRecord:
        """With a commit, and the micro-batch that it is."""
        queries = dict(self.queries)
        if query is not None and batch is not None:
            queries[query] = batch
        return SinkRecord(queries, pending)

    def done(self) -> SinkRecord:
        """With nothing pending."""
        return replace(self, pending=None)


def format_record(record: SinkRecord) -> bytes:
    """The file's bytes."""
    pending = record.pending
    content = {
        "version": VERSION,
        "queries": dict(record.queries),
        "pending": None
        if pending is None
        else {
            "job": pending.job,
            "topics": topics_to_json(pending.topics),
            "segments": [
                {
                    "file": segment.file,
                    "topic": segment.topic,
                    "partition": segment.partition,
                    "base_offset": segment.base_offset,
                    "records": segment.records,
                }
                for segment in pending.segments
            ],
        },
    }
    return (json.dumps(content, indent=1) + "\n").encode("utf-8")


def parse_record(data: bytes) -> SinkRecord:
    """Parse a file's bytes. Raises CorruptFile for anything but what `format_record` writes, UnsupportedFormat for the
    file of a later release."""
    content = versioned_json(data, RECORD_FILE, VERSION)
    try:
        queries = queries_of(content["queries"])
        pending = content["pending"]
        return SinkRecord(queries, None if pending is None else _pending(pending))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"{type(error).__name__}: {error}") from None


def _pending(entry: Any) -> PendingCommit:
    topics = topics_of(entry["topics"])
    segments = tuple(
        PlannedSegment(
            _file(segment["file"]),
            topic_name(segment["topic"]),
            whole_number(segment["partition"]),
            whole_number(segment["base_offset"]),
            whole_number(segment["records"]),
        )
        for segment in entry["segments"]
    )
    return PendingCommit(str(entry["job"]), topics, segments)


def versioned_json(data: bytes, name: str, version: int) -> Any:
    """The JSON object of a sink's file `name`. Raises CorruptFile, UnsupportedFormat for another `version`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise CorruptFile(f"this is not JSON: {error}") from None
    if not isinstance(content, dict) or type(content.get("version")) is not int:
        raise CorruptFile("expected a JSON object with an integer 'version'")
    if content["version"] != version:
        raise UnsupportedFormat(
            f"version {content['version']} of {name}, only {version} is known",
            hint="a later release of kafkalog wrote to this directory; use that one",
        )
    return content


def topics_to_json(topics: Iterable[NewTopic]) -> list[dict[str, Any]]:
    return [{"name": topic.name, "id": uuid_to_text(topic.id), "partitions": topic.partitions} for topic in topics]


def topics_of(entries: Any) -> tuple[NewTopic, ...]:
    """The reverse. Raises KeyError, TypeError, ValueError."""
    return tuple(
        NewTopic(topic_name(topic["name"]), uuid_from_text(topic["id"]), whole_number(topic["partitions"]))
        for topic in entries
    )


def queries_of(entries: Any) -> dict[str, int]:
    """By query id, its last micro-batch. Raises AttributeError, ValueError."""
    return {str(query): whole_number(batch) for query, batch in entries.items()}


def topic_name(value: Any) -> str:
    """A name that is part of a directory's. Raises ValueError for what is no topic's."""
    if not isinstance(value, str) or not valid_topic_name(value):
        raise ValueError(f"{value!r} is no name of a topic")
    return value


def whole_number(value: Any) -> int:
    """Raises ValueError for anything but a whole number from 0 on."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return value


def _file(name: Any) -> str:
    if not isinstance(name, str) or not is_staging_name(name):
        raise ValueError(f"{name!r} is no name of a staged file")
    return name


def read_record(log_dir: Path) -> SinkRecord:
    """What the file in a log directory says; an empty record when there is none. Raises as parse_record, OSError."""
    path = log_dir / RECORD_FILE
    try:
        return parse_record(read_whole(path))
    except FileNotFoundError:
        return SinkRecord()
    except (CorruptFile, UnsupportedFormat) as error:
        error.hint = error.hint or "it says which micro-batches are in the log: restore it from a backup"
        raise error.at(path=str(path)) from None
